"""The far end of a line: see :class:`bench.traffic_line.FarEnd`. ``ADDRESS FOLDER``."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import zstandard

from bench.traffic_line import HTTP_PORT, STORE_PORT
from headroom.contracts import LimitSet, LinkLimit, TelemetryAck, decode_batch
from headroom.work.contract import WorkOrders


class _Answer(msgspec.Struct):
    links: list[LinkLimit] | None
    valid_for_s: float


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    folder: Path
    lock = threading.Lock()

    def do_GET(self) -> None:
        if urlsplit(self.path).path != "/api/v1/limits":
            self._send(404)
            return
        try:
            said = msgspec.json.decode((self.folder / "answer.json").read_bytes(), type=_Answer)
        except FileNotFoundError:
            said = _Answer(None, 0.0)
        if said.links is None:
            self._send(503)
            return
        self._send(
            200,
            LimitSet(limits=[], now=time.time(), valid_for_s=said.valid_for_s, links=said.links),
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if urlsplit(self.path).path == "/api/v1/work":
            self._send(200, WorkOrders(now=time.time(), orders=[], poll_s=1.0, report_s=5.0))
            return
        if urlsplit(self.path).path != "/api/v1/telemetry":
            self._send(404)
            return
        batch = decode_batch(
            zstandard.ZstdDecompressor().decompressobj().decompress(body), json=False
        )
        with self.lock, (self.folder / "told.jsonl").open("ab") as told:
            told.write(msgspec.json.encode((batch.limits, batch.links)) + b"\n")
        self._send(202, TelemetryAck(durable_seq=batch.seq, received_at=time.time()))

    def _send(self, status: int, answer: msgspec.Struct | None = None) -> None:
        body = b"" if answer is None else msgspec.json.encode(answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        # Agents are killed here, amid what they ask.
        with suppress(ConnectionResetError):
            super().handle()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def _take(listening: socket.socket, counts: list[int]) -> None:
    """Take all that comes, and count it."""

    def drain(connection: socket.socket) -> None:
        buffer = bytearray(1 << 18)
        while got := connection.recv_into(buffer):
            counts[0] += got

    while True:
        connection, _ = listening.accept()
        threading.Thread(target=drain, args=(connection,), daemon=True).start()


def main() -> None:
    """Serve until killed."""
    address, folder = sys.argv[1], Path(sys.argv[2])
    _Server.folder = folder
    server = ThreadingHTTPServer((address, HTTP_PORT), _Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    counts = [0]
    listening = socket.create_server((address, STORE_PORT))
    threading.Thread(target=_take, args=(listening, counts), daemon=True).start()
    while True:
        made = folder / "taken.new"
        made.write_text(str(counts[0]))
        made.replace(folder / "taken")
        (folder / "ready").touch()
        time.sleep(0.1)


if __name__ == "__main__":
    main()
