"""A collector of OpenTelemetry on a port of this machine, which keeps what it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass
class Collector:
    """The stand-in: what it has taken, and how it answers."""

    url: str
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    rejected: int = 0

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self.headers.append(headers)
        if path != "/v1/traces" or headers.get("Content-Type") != "application/x-protobuf":
            return 404, b""
        self.requests.append(ExportTraceServiceRequest.FromString(body))
        partial = ExportTracePartialSuccess(rejected_spans=self.rejected)
        return self.status, ExportTraceServiceResponse(partial_success=partial).SerializeToString()


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run the stand-in."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    made = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = made.take(self.path, dict(self.headers.items()), body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server.RequestHandlerClass = Handler
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
