"""GET, for sources that speak HTTP: bounded in time and in size, never following a redirect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import urllib3

from headroom import __version__
from headroom.agent.sources.periodic import SourceError

__all__ = ["Http"]

_CHUNK_BYTES = 65536


class Http:
    """One server. ``verify`` off takes any certificate; ``ca_file`` names whom to trust instead."""

    def __init__(
        self,
        *,
        timeout_s: float,
        most_bytes: int,
        verify: bool = True,
        ca_file: Path | None = None,
    ) -> None:
        self._most_bytes = most_bytes
        if not verify:
            # It was asked for by name, and is in the log once.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._pool = urllib3.PoolManager(
            maxsize=1,
            retries=False,
            timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s),
            cert_reqs="CERT_REQUIRED" if verify else "CERT_NONE",
            ca_certs=str(ca_file) if ca_file else None,
        )

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body. Raises ``SourceError`` where there is no answer."""
        told = {"User-Agent": f"headroom/{__version__}", **(headers or {})}
        try:
            answer = self._pool.request(
                method, url, headers=told, body=body, redirect=False, preload_content=False
            )
            try:
                return answer.status, answer.headers, self._read(url, answer)
            finally:
                answer.drain_conn()
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as exc:
            raise SourceError(f"{url} cannot be read: {type(exc).__name__}: {exc}") from exc

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> bytes:
        """Return the body of a 200. Raises ``SourceError`` for every other answer."""
        status, _, body = self.request("GET", url, headers=headers)
        if status != 200:
            raise SourceError(f"{url} answers {status}")
        return body

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _read(self, url: str, answer: urllib3.BaseHTTPResponse) -> bytes:
        found = bytearray()
        for chunk in answer.stream(_CHUNK_BYTES):
            found += chunk
            if len(found) > self._most_bytes:
                answer.close()
                raise SourceError(f"{url} answers with more than {self._most_bytes} bytes")
        return bytes(found)
