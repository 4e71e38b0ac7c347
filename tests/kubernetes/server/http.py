"""The server's addresses: requests in, objects, lists and streams of events out."""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from tests.kubernetes.server import certificates, discovery, errors
from tests.kubernetes.server.access import Call, Rule, User
from tests.kubernetes.server.answers import Answers
from tests.kubernetes.server.errors import ApiError
from tests.kubernetes.server.objects import Store
from tests.kubernetes.server.requests import Request
from tests.kubernetes.server.schemas import Resource
from tests.kubernetes.server.selectors import Selection

Document = dict[str, Any]


class ApiServer:
    """An API server on the loopback address, over TLS, with its objects and its users.

    Stopping cuts every connection, as when the process dies; objects and versions stay, as they do
    in etcd. ``calls`` has what was called since it was cleared.
    """

    def __init__(
        self, folder: Path, store: Store | None = None, *, bookmark_s: float = 1.0, port: int = 0
    ) -> None:
        self.store = store or Store()
        self.folder = folder
        self.bookmark_s = bookmark_s
        #: Whether a watch that comes too late is answered by 410, or, as most are, in its stream.
        self.late_by_status = False
        self.calls: list[Call] = []
        self._users: dict[str, User] = {}
        self._failures: list[ApiError] = []
        self._port = port
        self._context, self.trusted = certificates.make(folder)
        self._server: _Server | None = None
        self.token = self.token_for("admin")

    # Running

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, at the same port as before."""
        server = _Server(("127.0.0.1", self._port), self, self._context)
        self._port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Cut all connections and listen no more."""
        server, self._server = self._server, None
        if server is not None:
            server.stopping.set()
            server.shutdown()
            server.cut()
            server.server_close()
            self.store.wake()

    def cut(self) -> None:
        """Cut all connections, and go on listening: a load balancer does that."""
        if self._server is not None:
            self._server.cut()

    def __enter__(self) -> ApiServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def fail(self, code: int, reason: str, times: int = 1, **details: Any) -> None:
        """Answer the next requests with this error instead of looking at them."""
        error = ApiError(code, reason, f"as the test wants it: {reason}", details)
        self._failures += [error] * times

    def next_failure(self) -> ApiError | None:
        return self._failures.pop(0) if self._failures else None

    # Users

    def token_for(self, user: str, rules: tuple[Rule, ...] | None = None) -> str:
        """Return a token of a user who may do what rules say, or everything."""
        token = secrets.token_urlsafe(24)
        self._users[token] = User(user, rules)
        return token

    def user_of(self, authorization: str) -> User:
        """Return whose token this is.

        Raises:
            ApiError: 401, where it is nobody's.
        """
        found = self._users.get(authorization.removeprefix("Bearer ").strip())
        if found is None or not authorization.startswith("Bearer "):
            raise errors.unauthorized()
        return found

    def kubeconfig(self, token: str = "", namespace: str = "default") -> Path:
        """Write a kubeconfig for a token and return where it lies."""
        token = token or self.token
        path = self.folder / f"kubeconfig-{token[:8]}.yaml"
        path.touch(mode=0o600)
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "clusters": [
                        {
                            "name": "tests",
                            "cluster": {
                                "server": self.url,
                                "certificate-authority": str(self.trusted),
                            },
                        }
                    ],
                    "users": [{"name": "tests", "user": {"token": token}}],
                    "contexts": [
                        {
                            "name": "tests",
                            "context": {
                                "cluster": "tests",
                                "user": "tests",
                                "namespace": namespace,
                            },
                        }
                    ],
                }
            )
        )
        return path


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], api: ApiServer, context: ssl.SSLContext) -> None:
        self.api = api
        self.stopping = threading.Event()
        self._context = context
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Speak TLS in the thread of the connection, so that a slow hello holds up nobody."""
        try:
            request.settimeout(30)
            secured = self._context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return
        self._open.add(secured)
        try:
            _Handler(secured, client_address, self)
        finally:
            self._open.discard(secured)
            secured.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go away, and tests cut connections: no news."""

    def cut(self) -> None:
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._warnings: list[str] = []

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Calls are recorded, not printed."""

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        try:
            failure = self.server.api.next_failure()
            if failure is not None:
                raise failure
            user = self.server.api.user_of(self.headers.get("Authorization", ""))
            path = [unquote(part) for part in parts.path.strip("/").split("/")]
            code, document = self._answer(user, path, query, body)
        except ApiError as error:
            code, document = error.code, error.document()
        if document is not None:
            self._send(code, document)

    def _answer(
        self, user: User, path: list[str], query: Mapping[str, str], body: bytes
    ) -> tuple[int, Document | None]:
        """Return the code and the object of an answer, None where it was streamed."""
        wants_all = "as=APIGroupDiscoveryList" in self.headers.get("Accept", "")
        found = discovery.answer(self.server.api.store.resources, path, wants_all=wants_all)
        if found is not None:
            return 200, found
        request = Request.read(self.server.api.store, self.command, path, query)
        code = 500
        try:
            if not user.may(request.call(user)):
                raise request.forbidden(user)
            if request.verb == "watch":
                code = 200
                self._watch(request)
                return 200, None
            code, document = Answers(self.server.api.store, self.headers, self._warn).of(
                request, body
            )
            return code, document
        except ApiError as error:
            code = error.code
            raise
        finally:
            self.server.api.calls.append(replace(request.call(user), code=code))

    def _warn(self, warning: str) -> None:
        self._warnings.append(warning)

    def _send(self, code: int, document: Document) -> None:
        body = json.dumps(document, separators=(",", ":")).encode()
        kind = "application/json"
        if document.get("kind") == "APIGroupDiscoveryList":
            kind = discovery.AGGREGATED
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        wait_s = document.get("details", {}).get("retryAfterSeconds")
        if wait_s and code in (429, 503, 504):
            self.send_header("Retry-After", str(wait_s))
        for warning in self._warnings:
            self.send_header("Warning", f'299 - "{warning}"')
        self._warnings.clear()
        self.end_headers()
        self.wfile.write(body)

    # Watching

    def _watch(self, request: Request) -> None:
        store = self.server.api.store
        given = request.query.get("resourceVersion", "")
        since = int(given or 0)
        chosen = request.selection()
        if since and self.server.api.late_by_status:
            store.events_after(since, timeout_s=0)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            if since == 0 or request.asks("sendInitialEvents"):
                since = self._begin(request, chosen)
            self._follow(request, chosen, since)
            self.wfile.write(b"0\r\n\r\n")
        except ApiError as error:
            self._event("ERROR", error.document())
            self.wfile.write(b"0\r\n\r\n")

    def _begin(self, request: Request, chosen: Selection) -> int:
        """Send all there is as added, for a watch that begins nowhere."""
        page = self.server.api.store.page(request.resource, chosen, limit=0, token="")
        for item in page.items:
            self._event("ADDED", item)
        if request.asks("sendInitialEvents"):
            self._bookmark(request.resource, page.version, {"k8s.io/initial-events-end": "true"})
        return page.version

    def _follow(self, request: Request, chosen: Selection, since: int) -> None:
        api = self.server.api
        ends = time.monotonic() + float(request.query.get("timeoutSeconds", 3600))
        marked = time.monotonic()
        while not self.server.stopping.is_set() and time.monotonic() < ends:
            wait_s = min(api.bookmark_s, max(0.0, ends - time.monotonic()))
            for event in api.store.events_after(since, timeout_s=wait_s):
                since = event.version
                kind = event.seen_by(chosen) if event.resource is request.resource else ""
                if kind:
                    self._event(kind, event.document)
            is_due = time.monotonic() - marked >= api.bookmark_s
            if request.asks("allowWatchBookmarks") and is_due:
                self._bookmark(request.resource, since, {})
                marked = time.monotonic()

    def _event(self, kind: str, document: Document) -> None:
        line = json.dumps({"type": kind, "object": document}, separators=(",", ":")).encode()
        self.wfile.write(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))

    def _bookmark(self, resource: Resource, version: int, annotations: Document) -> None:
        metadata: Document = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = annotations
        self._event(
            "BOOKMARK",
            {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata},
        )
