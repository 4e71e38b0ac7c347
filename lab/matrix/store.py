"""A small artifact storage for runs of a matrix: files by name, over HTTP.

``PUT /name`` keeps the body once all of it has come, ``GET /name`` returns it, ``DELETE /name``
removes it, ``GET /`` lists the names. The answers have the SHA-256 of the body as their ETag.
"""

from __future__ import annotations

import hashlib
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, unquote, urlsplit

__all__ = ["Store"]

_DRAFT = ".draft-"
_WAIT_S = 120.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Closing does not wait for what hangs in a fault.
    block_on_close = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        # The inherited one asks a name server who we are.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "storage", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that breaks: faults are there to break them."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = _WAIT_S
    server: _Server

    def do_GET(self) -> None:
        if self.path == "/":
            names = sorted(p.name for p in self.server.folder.iterdir() if _is_whole(p))
            self._answer(HTTPStatus.OK, "\n".join(map(unquote, names)).encode())
            return
        try:
            body = self._file().read_bytes()
        except FileNotFoundError:
            self._answer(HTTPStatus.NOT_FOUND, b"no such name\n")
            return
        self._answer(HTTPStatus.OK, body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if len(body) != int(self.headers.get("Content-Length", "0")):
            self.close_connection = True
            return
        draft = self.server.folder / f"{_DRAFT}{threading.get_ident()}"
        draft.write_bytes(body)
        draft.replace(self._file())
        self._answer(HTTPStatus.CREATED, b"", digest_of=body)

    def do_DELETE(self) -> None:
        self._file().unlink(missing_ok=True)
        self._answer(HTTPStatus.NO_CONTENT, b"")

    def log_message(self, *args: object) -> None:
        """Log nothing: the report counts the requests."""

    def _file(self) -> Path:
        name = unquote(urlsplit(self.path).path).strip("/")
        # One flat folder, in which drafts alone begin with a dot: no name leads out of it.
        flat = quote(name, safe="")
        return self.server.folder / (f"%2E{flat[1:]}" if flat.startswith(".") else flat)

    def _answer(self, status: HTTPStatus, body: bytes, *, digest_of: bytes | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        digest = hashlib.sha256(body if digest_of is None else digest_of).hexdigest()
        self.send_header("ETag", f'"{digest}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _is_whole(path: Path) -> bool:
    return not path.name.startswith(_DRAFT)


class Store:
    """Serves a folder until :meth:`close`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._server = _Server(folder)
        host, port = self._server.server_address[:2]
        self.address = (str(host), int(port))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
