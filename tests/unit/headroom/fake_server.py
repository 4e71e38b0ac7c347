"""A stand-in for the server, at the level of sockets: real HTTP, the contract's own decoder."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import zstandard

from headroom.contracts import TelemetryBatch, decode_batch


@dataclass(frozen=True)
class Answer:
    """One HTTP answer. ``drop``: the connection is cut instead."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False


def refusal(status: int, code: str = "invalid_field", **facts: str) -> Answer:
    """An error in the API's own form."""
    error = {"code": code, "message": "it is wrong", **facts}
    return Answer(status, msgspec.json.encode({"error": error}))


LOST = Answer(0, drop=True)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class FakeServer:
    """Stores each ``(agent, boot_id, seq)`` once, and does what a test scripts first."""

    def __init__(self) -> None:
        #: Answers for the next pushes, instead of taking them.
        self.script: deque[Answer] = deque()
        #: Answers for the next pushes, which are taken all the same.
        self.script_after_taking: deque[Answer] = deque()
        #: Refuse, for good, the pushes for which this holds.
        self.refuses: Callable[[TelemetryBatch], bool] = lambda batch: False
        #: Whether what is taken becomes durable.
        self.stores = True
        self.answers: dict[tuple[str, str], Any] = {}
        self.requests: list[Request] = []
        self.pushes: list[TelemetryBatch] = []
        self.stored: dict[tuple[str, str], dict[int, TelemetryBatch]] = defaultdict(dict)
        self._marks: dict[tuple[str, str], int] = defaultdict(int)
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def all_stored(self) -> list[TelemetryBatch]:
        """Everything stored, once each, in order of seq."""
        return [batch for by_seq in self.stored.values() for _, batch in sorted(by_seq.items())]

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            if request.path == "/api/v1/telemetry":
                return self._take(request)
            if request.path == "/api/v1/telemetry/position":
                return self._ack(next(iter(self._keys(request.query["boot_id"])), ("", "")))
            known = self.answers.get((request.method, request.path))
            if isinstance(known, Answer):
                return known
            return refusal(404) if known is None else Answer(200, msgspec.json.encode(known))

    def _keys(self, boot_id: str) -> list[tuple[str, str]]:
        return [key for key in self.stored if key[1] == boot_id]

    def _take(self, request: Request) -> Answer:
        if self.script:
            return self.script.popleft()
        with zstandard.ZstdDecompressor().stream_reader(request.body) as reader:
            batch = decode_batch(reader.read(), json=False)
        self.pushes.append(batch)
        if self.refuses(batch):
            return refusal(400)
        key = (batch.agent, batch.boot_id)
        if self.stores:
            self.stored[key].setdefault(batch.seq, batch)
            self._marks[key] = max(self._marks[key], batch.oldest_seq - 1)
            while self._marks[key] + 1 in self.stored[key]:
                self._marks[key] += 1
        if self.script_after_taking:
            return self.script_after_taking.popleft()
        return self._ack(key)

    def _ack(self, key: tuple[str, str]) -> Answer:
        ack = {"durable_seq": self._marks[key], "received_at": time.time()}
        return Answer(202, msgspec.json.encode(ack))

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Header and body in one packet; else each answer waits for the client's delayed ACK.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._handle("GET")

            def do_POST(self) -> None:
                self._handle("POST")

            def _handle(self, method: str) -> None:
                parts = urlsplit(self.path)
                answer = fake.answer(
                    Request(
                        method=method,
                        path=parts.path,
                        query={k: v[0] for k, v in parse_qs(parts.query).items()},
                        headers=dict(self.headers.items()),
                        body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
                    )
                )
                if answer.drop:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *args: object) -> None:
                """Keep the test's output clean."""

        return Handler
