"""Small real HTTP servers of what the agent reads by HTTP."""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import tarfile
import threading
from base64 import b64encode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["RedfishServer", "TextServer", "make_certificate"]


class _Server:
    """Answers GET, POST and DELETE by ``answer``, on a port of its own."""

    scheme = "http"

    def __init__(self, certificate: Path | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        if certificate is not None:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        raise NotImplementedError

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.requests.append((self.command, self.path))
                status, headers, text = server.answer(
                    self.command, self.path, dict(self.headers.items()), body
                )
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            # The base class calls them by these names.
            do_GET = do_POST = do_DELETE = _handle  # noqa: N815

            def log_message(self, *args: object) -> None:
                """Keep the test's output clean."""

        return Handler


class TextServer(_Server):
    """Gives ``text``, or what ``status`` says."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.status = 200
        self.headers: dict[str, str] = {}
        super().__init__()

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        return self.status, self.headers, self.text.encode()


class RedfishServer(_Server):
    """Serves a tree of resources to whoever has logged in, by session or with each request."""

    SESSIONS = "/redfish/v1/SessionService/Sessions"

    def __init__(
        self, archive: Path, *, password: str = "", certificate: Path | None = None
    ) -> None:
        self.password = password
        self.sessions: dict[str, str] = {}
        self.resources = _unpack(archive)
        super().__init__(certificate)

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if method == "POST" and path == self.SESSIONS:
            return self._log_in(json.loads(body))
        if self.password and not self._knows(headers):
            return 401, {}, b"{}"
        if method == "DELETE":
            self.sessions.pop(path, None)
            return 204, {}, b""
        found = self.resources.get(path.rstrip("/"))
        return (404, {}, b"{}") if found is None else (200, {}, json.dumps(found).encode())

    def _log_in(self, given: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        if (given["UserName"], given["Password"]) != ("reader", self.password):
            return 401, {}, b"{}"
        token, place = secrets.token_hex(8), f"{self.SESSIONS}/{len(self.requests)}"
        self.sessions[place] = token
        return 201, {"X-Auth-Token": token, "Location": place}, b"{}"

    def _knows(self, headers: Mapping[str, str]) -> bool:
        pair = b64encode(f"reader:{self.password}".encode()).decode()
        by_name = headers.get("Authorization") == f"Basic {pair}"
        return by_name or headers.get("X-Auth-Token") in self.sessions.values()


def _unpack(archive: Path) -> dict[str, dict[str, Any]]:
    """Return the resources of a mockup by their paths."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            if file is not None and member.name.endswith("index.json"):
                inner = member.name.split("/")[1:-1]
                found["/".join(["/redfish/v1", *inner])] = json.loads(file.read())
    return found


def make_certificate(folder: Path) -> Path:
    """Make a key and a certificate for 127.0.0.1, signed by itself, in one file."""
    file = folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(file), "-out", str(folder / "only-certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )
    with file.open("a") as out:
        out.write((folder / "only-certificate.pem").read_text())
    return file
