"""Where the files of the cold tier lie: a directory, or a bucket of an object store.

A file appears whole or not at all, and is never changed afterwards. Paths are relative to the place
and have ``/`` between their parts.
"""

from __future__ import annotations

# PyArrow is imported in methods: only an object store needs it, and it is large.
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings

SUFFIX = ".parquet"
#: A file that is being written has this before its name, until it is renamed.
_UNFINISHED = ".unfinished-"


#: How long a store may take to answer at all, and to go on, s; and how often it is asked.
_CONNECT_S, _REQUEST_S, _RETRIES = 3.0, 15.0, 3
_CODE, _MESSAGE = re.compile(r"<Code>(.*?)</Code>"), re.compile(r"<Message>(.*?)</Message>")


class Unreachable(RuntimeError):
    """The cold tier's files cannot be read or written: the place is away, or one is damaged."""


class Place(ABC):
    """A folder for files. Where it cannot be used, methods raise :class:`Unreachable`."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write a file durably: when this returns, it outlives a power cut."""

    @abstractmethod
    def get(self, path: str) -> bytes:
        """Return a file's bytes. Raises ``FileNotFoundError``."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def listed(self) -> Iterator[tuple[str, datetime]]:
        """Yield the path of each file, finished or not, and when it was written."""

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the address by which Polars reads the file, part by part."""

    def options(self) -> dict[str, Any]:
        """Return what Polars needs besides to read files here."""
        return {}


class Directory(Place):
    """A folder of this machine, or one that several mount."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, path: str, data: bytes) -> None:
        target = self._root / path
        self._make(target.parent)
        unfinished = target.with_name(_UNFINISHED + target.name)
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(target)
        _sync(target.parent)

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        # Readings are nobody else's business: as private as the rest of the state folder.
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        for each in (folder, *folder.parents):
            _sync(each)
            if each == self._root.parent:
                break

    def get(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def delete(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def listed(self) -> Iterator[tuple[str, datetime]]:
        for file in self._root.rglob(f"*{SUFFIX}"):
            at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            yield file.relative_to(self._root).as_posix(), at

    def uri(self, path: str) -> str:
        return str(self._root / path)


def _sync(folder: Path) -> None:
    """Make a rename within ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Bucket(Place):
    """A prefix in a bucket of an S3-compatible store, where a file appears when all of it is there.

    ``url`` is ``s3://bucket/prefix``. Credentials are found by the libraries themselves, in the
    environment or with the machine's role: they pass through none of our code, log or address.
    """

    def __init__(self, url: str) -> None:
        from pyarrow import fs

        self._url = url.rstrip("/")
        self._root = self._url.removeprefix("s3://")
        endpoint = urlsplit(settings.COLD_ENDPOINT_URL)
        self._files = fs.S3FileSystem(
            region=settings.COLD_REGION,
            endpoint_override=endpoint.netloc or None,
            scheme=endpoint.scheme or None,
            connect_timeout=_CONNECT_S,
            request_timeout=_REQUEST_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_RETRIES),
            # Small files then take one request.
            allow_delayed_open=True,
        )

    def put(self, path: str, data: bytes) -> None:
        # What fails before the store has been told that all is there leaves no file.
        with self._told_of(), self._files.open_output_stream(f"{self._root}/{path}") as out:
            out.write(data)

    def get(self, path: str) -> bytes:
        with self._told_of(), self._files.open_input_stream(f"{self._root}/{path}") as file:
            return bytes(file.readall())

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), self._told_of():
            self._files.delete_file(f"{self._root}/{path}")

    def listed(self) -> Iterator[tuple[str, datetime]]:
        from pyarrow import fs

        chosen = fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        with self._told_of():
            found = self._files.get_file_info(chosen)
        for info in found:
            if info.is_file and info.path.endswith(SUFFIX):
                yield info.path.removeprefix(f"{self._root}/"), info.mtime

    def uri(self, path: str) -> str:
        return f"{self._url}/{path}"

    def options(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {"aws_region": settings.COLD_REGION, "max_retries": _RETRIES}
        if settings.COLD_ENDPOINT_URL:
            is_plain = urlsplit(settings.COLD_ENDPOINT_URL).scheme == "http"
            wanted["aws_endpoint_url"] = settings.COLD_ENDPOINT_URL
            wanted["aws_allow_http"] = str(is_plain).lower()
        return wanted

    @contextmanager
    def _told_of(self) -> Iterator[None]:
        """Turn what the store answers into :class:`Unreachable`; a missing file stays one."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unreachable(reason(error)) from None


def reason(error: Exception) -> str:
    """Return in one line what is wrong with the cold tier, and where to look.

    Of a store's answer in XML its code and message alone are told: others of its fields repeat what
    was signed, and by which key.
    """
    text = str(error)
    said = [*_CODE.findall(text), *_MESSAGE.findall(text)]
    told = " ".join([*text.partition("<?xml")[0].split(), ": ".join(said)]).rstrip()
    known = settings.TELEMETRY_COLD_URL or "in the state folder"
    return f"the cold tier, {known}, cannot be used: {told}"


def place() -> Place:
    """Return where this installation keeps the cold tier."""
    return _place(settings.TELEMETRY_COLD_URL or str(settings.STATE_DIR / "cold"))


@cache
def _place(url: str) -> Place:
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return Directory(Path(unquote(parts.path)).absolute())
    return Bucket(url)
