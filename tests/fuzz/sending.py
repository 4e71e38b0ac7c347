"""Sending requests as they are: targets and headers that no client library would let pass."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

#: An answer that takes longer has not come at all.
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Sent:
    """A request as it goes over the wire. ``who`` and ``kind`` are for the report."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    who: str = ""
    kind: str = ""

    def __str__(self) -> str:
        told = f"{self.method} {self.target[:300]}"
        return f"{self.who}: {told} {self.headers!r:.200} {self.body[:300]!r}"


@dataclass(frozen=True)
class Got:
    """What came back. ``status`` 0: no answer, and ``body`` says why."""

    status: int
    seconds: float
    headers: dict[str, str]
    body: bytes


class _Raw(http.client.HTTPConnection):
    """Sends a target as it is."""

    def _validate_path(self, url: str) -> None: ...

    def _validate_method(self, method: str) -> None: ...

    def _encode_request(self, request: str) -> bytes:
        return request.encode("latin-1", "replace")


class Sender:
    """One connection that is kept, as a browser keeps it. For one thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port
        self._connection: _Raw | None = None

    def send(self, request: Sent) -> Got:
        """Return the answer. A kept connection that turns out to be closed is opened once more."""
        was_kept = self._connection is not None
        got = self._try(request)
        return self._try(request) if got.status == 0 and was_kept else got

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _try(self, request: Sent) -> Got:
        started = time.perf_counter()
        try:
            if self._connection is None:
                self._connection = _Raw(*self._address, timeout=TIMEOUT_S)
            answer, body = self._exchange(self._connection, request)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            elapsed = time.perf_counter() - started
            return Got(0, elapsed, {}, f"{type(error).__name__}: {error}".encode())
        if answer.will_close:
            self.close()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Got(answer.status, time.perf_counter() - started, headers, body)

    @staticmethod
    def _exchange(connection: _Raw, request: Sent) -> tuple[http.client.HTTPResponse, bytes]:
        connection.putrequest(request.method, request.target, skip_accept_encoding=True)
        for name, value in request.headers:
            connection.putheader(name, value.encode("utf-8", "replace"))
        if request.body or request.method not in ("GET", "HEAD", "OPTIONS", "TRACE"):
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body or None)
        answer = connection.getresponse()
        return answer, answer.read()
