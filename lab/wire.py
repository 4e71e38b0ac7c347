"""HTTP as thin as it can be, for the load generator: CPU that it uses, the server under it lacks.

It speaks what the ingest answers and no more: HTTP/1.1 in the clear, kept alive, answers with a
Content-Length.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import quote, urlsplit

import msgspec

from headroom import layouts
from headroom.client import HeadroomError, Refused, Unauthorized, Unavailable
from headroom.contracts import ErrorBody, FieldError, TelemetryAck
from headroom.layouts import Agreement, Layout

_PATH = "/api/v1/telemetry"
_decode_ack = msgspec.json.Decoder(TelemetryAck).decode


class Wire:
    """A server's address, with a connection for each thread that talks to it."""

    def __init__(self, server_url: str, *, timeout_s: float) -> None:
        parts = urlsplit(server_url)
        if parts.scheme != "http" or not parts.hostname:
            raise HeadroomError(f"load is pushed over http:// alone, not to {server_url!r}")
        self.host = parts.hostname
        self._address = (parts.hostname, parts.port or 80)
        self._timeout_s = timeout_s
        self._own = threading.local()
        self._open: set[socket.socket] = set()
        #: connections that the server had closed when they were wanted again
        self.reconnects = 0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._open:
            self._open.pop().close()

    def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Send a whole request; return status, headers and body of the answer.

        Where the server has closed the thread's connection, it goes out once more over a new one,
        as an agent's does: whatever agents ask may be asked twice. Raises :class:`Unavailable`
        where that fails, too.
        """
        try:
            if self._is_connected:
                with suppress(ConnectionError):
                    return self._asked(request)
                self._drop()
                with self._lock:
                    self.reconnects += 1
            return self._asked(request)
        except (OSError, ValueError) as exc:
            self._drop()
            raise Unavailable(f"{self.host} cannot be reached: {exc}") from exc

    @property
    def _is_connected(self) -> bool:
        return getattr(self._own, "connection", None) is not None

    def _asked(self, request: bytes) -> tuple[int, bytes, bytes]:
        connection = self._connection()
        connection.sendall(request)
        return _read_answer(connection)

    def _connection(self) -> socket.socket:
        found: socket.socket | None = getattr(self._own, "connection", None)
        if found is None:
            found = self._own.connection = socket.create_connection(
                self._address, timeout=self._timeout_s
            )
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(found)
        return found

    def _drop(self) -> None:
        found: socket.socket | None = getattr(self._own, "connection", None)
        if found is not None:
            self._open.discard(found)
            found.close()
            self._own.connection = None


def _read_answer(connection: socket.socket) -> tuple[int, bytes, bytes]:
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _receive(connection)
    head, body = data[:end].lower(), data[end + 4 :]
    _, status, _ = head.split(b" ", 2)
    length = _header(head, b"content-length")
    if length is None:
        # Where it ends is not known, so what follows could not be told from it.
        raise ValueError(f"an answer without Content-Length: {head[:200]!r}")
    while len(body) < int(length):
        body += _receive(connection)
    return int(status), head, body


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionResetError("the server closed the connection")
    return data


def _header(head: bytes, name: bytes) -> bytes | None:
    _, found, rest = head.partition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if found else None


class WireAgent:
    """One agent's token on a wire: pushes its batches as :class:`headroom.client.Client` does."""

    def __init__(self, wire: Wire, token: str) -> None:
        self._wire = wire
        common = f"Host: {wire.host}\r\nAuthorization: Bearer {token}\r\n"
        self._push = (
            f"POST {_PATH} HTTP/1.1\r\n{common}"
            "Content-Type: application/msgpack\r\nContent-Encoding: zstd\r\nContent-Length: "
        ).encode()
        self._get = common
        self._push_rows = (
            f"POST {_PATH} HTTP/1.1\r\n{common}Content-Type: {layouts.CONTENT_TYPE}\r\n"
        ).encode()
        self._agree = (
            f"POST {layouts.PATH} HTTP/1.1\r\n{common}"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    def push_compressed(self, body: bytes) -> TelemetryAck:
        """Send a batch that is MessagePack under zstd."""
        return self._ack(self._push + b"%d\r\n\r\n" % len(body) + body)

    def push_rows(self, body: bytes) -> TelemetryAck:
        """Send a batch of fixed-width rows."""
        data, encoding = layouts.compressed(body)
        head = b"%sContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n"
        return self._ack(head % (self._push_rows, encoding.encode(), len(data)) + data)

    def agree(self, layout: Layout) -> str | None:
        """Agree on a layout of batches of fixed-width rows; None: the server takes none."""
        body = msgspec.json.encode(layout)
        status, head, told = self._wire.ask(self._agree + b"%d\r\n\r\n" % len(body) + body)
        if status in (404, 405):
            return None
        if status != 200:
            raise _failure(status, head, told)
        return msgspec.json.decode(told, type=Agreement).layout

    def position(self, boot_id: str) -> TelemetryAck:
        """Return how far the agent's batches under ``boot_id`` are durable."""
        target = f"{_PATH}/position?boot_id={quote(boot_id)}"
        return self._ack(f"GET {target} HTTP/1.1\r\n{self._get}\r\n".encode())

    def _ack(self, request: bytes) -> TelemetryAck:
        status, head, body = self._wire.ask(request)
        if status in (200, 202):
            return _decode_ack(body)
        raise _failure(status, head, body)


def _failure(status: int, head: bytes, body: bytes) -> HeadroomError:
    """Return the error that an answer stands for."""
    error = _error(status, body)
    if status in (401, 403):
        return Unauthorized(status, error)
    if 400 <= status < 500 and status != 429:
        return Refused(status, error)
    wait = _header(head, b"retry-after")
    return Unavailable(
        f"the server answers {status} {error.code}: {error.message}",
        status=status,
        retry_after_s=float(wait) if wait else None,
    )


def _error(status: int, body: bytes) -> FieldError:
    try:
        return msgspec.json.decode(body, type=ErrorBody).error
    except msgspec.MsgspecError:
        return FieldError(code=f"http_{status}", message=body[:200].decode(errors="replace"))
