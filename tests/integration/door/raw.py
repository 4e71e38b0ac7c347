"""HTTP byte by byte, as attackers and poor links send it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from urllib.parse import urlsplit


@dataclass
class Raw:
    """One connection to a server."""

    socket: socket.socket

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def head(self, method: str, path: str, **headers: str | int) -> None:
        """Send a request up to the empty line; underscores in names stand for hyphens."""
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]))

    def answer(self, method: str = "GET", within_s: float = 20.0) -> tuple[HTTPResponse, bytes]:
        """Return the answer to a request of ``method``, with its body."""
        self.socket.settimeout(within_s)
        response = HTTPResponse(self.socket, method=method)
        response.begin()
        return response, response.read()

    def is_closed(self, within_s: float = 5.0) -> bool:
        """Say whether the server closes the connection."""
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


@contextmanager
def connected(url: str, source: str = "127.0.0.1") -> Iterator[Raw]:
    """Connect to the server at ``url`` from the loopback address ``source``."""
    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port or 80)
    with socket.create_connection(address, timeout=20, source_address=(source, 0)) as made:
        yield Raw(made)


@contextmanager
def crowd(url: str, count: int, source: str = "127.0.0.1") -> Iterator[list[Raw]]:
    """Make ``count`` connections."""
    with ExitStack() as stack:
        yield [stack.enter_context(connected(url, source)) for _ in range(count)]


def slowest_s(url: str, path: str, times: int, status: int = 200, cookie: str = "") -> float:
    """Ask ``times`` for ``path``, on a new connection each; return the longest wait."""
    waits = []
    for _ in range(times):
        began = time.monotonic()
        with connected(url, "127.0.0.9") as raw:
            raw.head("GET", path, Cookie=cookie)
            response, _body = raw.answer()
        assert response.status == status, (path, response.status)
        waits.append(time.monotonic() - began)
    return max(waits)
