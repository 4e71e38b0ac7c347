"""HTTP servers of the other side, real ones, with answers that a test chooses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import msgspec


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


#: Answers one request: told its place in the row (from 0), returns status, headers and text.
Answering: TypeAlias = Callable[[int], tuple[int, dict[str, str], str]]


@dataclass
class Listener:
    """A server on a port of this machine, and what it was sent."""

    url: str
    received: list[Received] = field(default_factory=list)
    #: set to let requests that hang go on
    go_on: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, count: int, within_s: float = 60.0) -> list[Received]:
        end = time.monotonic() + within_s
        while len(self.received) < count and time.monotonic() < end:
            time.sleep(0.01)
        assert len(self.received) >= count, f"{len(self.received)} of {count} came"
        return self.received


def statuses(*codes: int, headers: dict[str, str] | None = None) -> Answering:
    """Answer with each of ``codes`` in turn, and with the last from then on."""
    return lambda place: (codes[min(place, len(codes) - 1)], headers or {}, "said")


@contextmanager
def listening(answer: Answering | None = None, *, hangs: bool = False) -> Iterator[Listener]:
    """Run a server. One that ``hangs`` takes requests and answers none, until told to."""
    answering = answer or statuses(202)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            place = len(listener.received)
            listener.received.append(Received(self.path, dict(self.headers.items()), body))
            if hangs:
                listener.go_on.wait(30)
                return
            status, headers, text = answering(place)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener = Listener(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
