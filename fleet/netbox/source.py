"""Reading NetBox's list answers, over HTTP or from a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import urllib3

from fleet.netbox import records
from fleet.netbox.exceptions import NetBoxError

#: Lists of NetBox's dcim API, and what their results are.
_LISTS: dict[str, Any] = {
    "sites": list[records.Site],
    "power-panels": list[records.PowerPanel],
    "power-feeds": list[records.PowerFeed],
    "racks": list[records.Rack],
    "device-types": list[records.DeviceType],
    "devices": list[records.Device],
}
_PAGE = 500
_MAX_PAGE_BYTES = 64 * 1024 * 1024
_TIMEOUT = urllib3.Timeout(connect=10, read=120)
_Kind = TypeVar("_Kind")
_RETRIES = urllib3.Retry(total=3, backoff_factor=0.5, status_forcelist=[502, 503, 504], redirect=0)


def read(source: str, token: str) -> records.Records:
    """Return all records of NetBox at the URL ``source``, or in the folder of that name.

    The folder has a file for each list, called as in the URL: ``sites.json``, ``power-feeds.json``;
    further pages are ``sites-2.json`` and so on. A file that is not there is an empty list.
    """
    pages = _http_pages(source, token) if "://" in source else _file_pages(Path(source))
    return records.Records(
        **{name.replace("-", "_"): list(_results(name, pages)) for name in _LISTS}
    )


def _results(name: str, pages: Callable[[str], Iterator[bytes]]) -> Iterator[Any]:
    page: Any = msgspec.defstruct("Page", [("results", _LISTS[name])])
    try:
        for body in pages(name):
            yield from _decode(body, page).results
    except NetBoxError as error:
        raise NetBoxError(f"dcim/{name}: {error}") from error


def _file_pages(folder: Path) -> Callable[[str], Iterator[bytes]]:
    if not folder.is_dir():
        raise NetBoxError(f"{folder} is neither a URL nor a folder")

    def pages(name: str) -> Iterator[bytes]:
        bodies = [file.read_bytes() for file in _files(folder, name)]
        heads = [_decode(body, _Page) for body in bodies]
        found = sum(len(head.results) for head in heads)
        told = max((head.count for head in heads), default=0)
        if found < told:
            raise NetBoxError(
                f"{folder / name}.json: {found} of {told} records; save the other pages as "
                f"{name}-2.json, {name}-3.json, …"
            )
        yield from bodies

    return pages


def _files(folder: Path, name: str) -> list[Path]:
    return [*folder.glob(f"{name}.json"), *sorted(folder.glob(f"{name}-[0-9]*.json"))]


def _http_pages(base: str, token: str) -> Callable[[str], Iterator[bytes]]:
    pool = urllib3.PoolManager(
        headers={"Accept": "application/json", **_authorization(token)},
        timeout=_TIMEOUT,
        retries=_RETRIES,
    )
    api = base.rstrip("/").removesuffix("/api") + "/api/dcim"

    def pages(name: str) -> Iterator[bytes]:
        url: str | None = f"{api}/{name}/?limit={_PAGE}"
        while url is not None:
            body = _get(pool, url)
            yield body
            following = _decode(body, _Page).next
            # Of the next address only the query counts: behind a proxy NetBox may not know its
            # own name, and the token goes nowhere but to the host that was given.
            url = None if following is None else f"{api}/{name}/?{urlsplit(following).query}"

    return pages


def _authorization(token: str) -> dict[str, str]:
    if not token:
        return {}
    # Tokens of NetBox 4.5 and later say what they are; older ones are bare.
    scheme = "Bearer" if token.startswith("nbt_") else "Token"
    return {"Authorization": f"{scheme} {token}"}


def _get(pool: urllib3.PoolManager, url: str) -> bytes:
    try:
        with pool.request("GET", url, preload_content=False) as response:
            body: bytes = response.read(_MAX_PAGE_BYTES + 1, decode_content=True)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise NetBoxError(f"{url}: {error}") from error
    if response.status in (401, 403):
        raise NetBoxError(f"{url}: NetBox refuses the token ({response.status})")
    if response.status != 200:
        raise NetBoxError(f"{url}: NetBox answers {response.status}")
    if len(body) > _MAX_PAGE_BYTES:
        raise NetBoxError(f"{url}: the answer is longer than {_MAX_PAGE_BYTES // 1024**2} MiB")
    return body


class _Page(msgspec.Struct):
    """The envelope of each list answer."""

    results: list[msgspec.Raw]
    count: int = 0
    next: str | None = None


def _decode(body: bytes, kind: type[_Kind]) -> _Kind:
    try:
        # Not strict: NetBox writes decimals as texts in some versions.
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NetBoxError(f"not what NetBox answers: {error}") from error
