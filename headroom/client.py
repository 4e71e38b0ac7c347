"""The server's HTTP API, as the agent, the replay and the twin use it.

Errors are those of :mod:`headroom.errors`: :class:`Refused` (permanent), of which
:class:`Unauthorized` and :class:`PartlyRefused` are kinds, and :class:`Unavailable` (try again
later).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import urllib3
import zstandard
from urllib3.connection import HTTPConnection

from headroom import __version__, layouts
from headroom.contracts import (
    ErrorBody,
    FieldError,
    LimitSet,
    TelemetryAck,
    TelemetryBatch,
    encode_batch,
)
from headroom.errors import HeadroomError, PartlyRefused, Refused, Unauthorized, Unavailable
from headroom.layouts import Agreement, Layout
from headroom.schedulers.contract import SchedulerNews, SchedulerOrders, SchedulerReport
from headroom.traffic import TrafficClass, socket_options
from headroom.work.contract import WorkOrders, WorkReports

__all__ = [
    "Client",
    "HeadroomError",
    "PartlyRefused",
    "Refused",
    "Unauthorized",
    "Unavailable",
    "compress_batch",
]

S = TypeVar("S", bound=msgspec.Struct)

#: 4xx answers that a later attempt may turn into a success.
_RETRYABLE_4XX = frozenset({408, 425, 429})
#: The longest wait that a Retry-After header can ask of us.
_MAX_RETRY_AFTER_S = 3600.0
_CONNECT_TIMEOUT_S = 5.0
#: More than the server lets a bridge wait for orders.
_NEWS_TIMEOUT_S = 30.0
#: What reading an error raises that is none of the API's.
_NO_ERROR = (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, AttributeError)


def compress_batch(batch: TelemetryBatch) -> bytes:
    """Return ``batch`` as :meth:`Client.push_compressed` sends it: MessagePack under zstd."""
    return zstandard.compress(encode_batch(batch))


class Client:
    """One server and one token. Connections are kept alive and shared between threads.

    Paths are given from the server's root, such as ``/api/v1/agents/``.
    """

    def __init__(
        self,
        server_url: str,
        token: str,
        *,
        timeout_s: float = 10.0,
        connections: int = 4,
    ) -> None:
        parts = urlsplit(server_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HeadroomError(
                f"{server_url!r} is no server URL: it needs a scheme and a host, "
                "such as http://127.0.0.1:8000"
            )
        self.server_url = server_url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        # Redirects are off because a POST that is redirected arrives as a GET, or not at all;
        # retries are the caller's, who knows what may be sent twice.
        # What is pushed, asked and told here is small, and is not to wait behind what is not.
        marked = [*HTTPConnection.default_socket_options, *socket_options(TrafficClass.CONTROL)]
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False, socket_options=marked)

    def __repr__(self) -> str:
        return f"Client({self.server_url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, also those of the clients made by :meth:`with_token`."""
        self._pool.clear()

    def with_token(self, token: str) -> Client:
        """Return a client of the same server and the same connections under another token."""
        other = Client(self.server_url, token, timeout_s=self._timeout_s)
        other._pool = self._pool
        return other

    def push(self, batch: TelemetryBatch, *, timeout_s: float | None = None) -> TelemetryAck:
        """Send one batch. Sending the same ``(agent, boot_id, seq)`` again does no harm."""
        return self.push_compressed(compress_batch(batch), timeout_s=timeout_s)

    def push_compressed(self, body: bytes, *, timeout_s: float | None = None) -> TelemetryAck:
        """Send a batch that :func:`compress_batch` made."""
        return self._push("application/msgpack", body, "zstd", timeout_s)

    def _push(
        self, content_type: str, body: bytes, encoding: str, timeout_s: float | None
    ) -> TelemetryAck:
        headers = {"Content-Type": content_type, "Content-Encoding": encoding}
        answer = self._send(
            "POST", "/api/v1/telemetry", body=body, headers=headers, timeout_s=timeout_s
        )
        try:
            return self._ack(answer)
        except Refused as exc:
            _raise_if_partly_taken(exc, answer)
            if isinstance(exc, Unauthorized) or exc.status == 413 or _field_error(answer):
                raise
            # A proxy or a wrong address speaks, not the ingest: it must not cost us readings.
            raise Unavailable(
                f"{self.server_url} answers {exc.status} in a form that Headroom does not use; "
                "check the server's URL",
                status=exc.status,
            ) from exc

    def agree(self, layout: Layout, *, timeout_s: float | None = None) -> str | None:
        """Agree on the layout of batches of fixed-width rows; return its id.

        None: the server takes none.
        """
        body, headers = msgspec.json.encode(layout), {"Content-Type": "application/json"}
        answer = self._send("POST", layouts.PATH, body=body, headers=headers, timeout_s=timeout_s)
        if answer.status in (404, 405):
            return None
        return self._decoded(answer, Agreement).layout

    def push_rows(self, body: bytes, *, timeout_s: float | None = None) -> TelemetryAck:
        """Send a batch of fixed-width rows that :class:`headroom.layouts.Encoder` made."""
        return self._push(layouts.CONTENT_TYPE, *layouts.compressed(body), timeout_s)

    def position(self, boot_id: str, *, timeout_s: float | None = None) -> TelemetryAck:
        """Return how far the batches of this token's agent under ``boot_id`` are durable."""
        path = _with_query("/api/v1/telemetry/position", {"boot_id": boot_id})
        return self._ack(self._send("GET", path, timeout_s=timeout_s))

    def limits(
        self, *, gpus: bool = True, links: Sequence[str] = (), timeout_s: float | None = None
    ) -> LimitSet | None:
        """Return the limits in force on the nodes of this token's agent; None: the server has none.

        Those on GPUs, unless ``gpus`` is false, and those of ``links``. A server that answers
        otherwise than Headroom does is unavailable, not free of limits.
        """
        asked: dict[str, str | list[str]] = {} if gpus else {"gpus": "0"}
        if links:
            asked["link"] = list(links)
        path = _with_query("/api/v1/limits", asked)
        answer = self._send("GET", path, timeout_s=timeout_s)
        if answer.status == 404:
            return None
        return self._decoded(answer, LimitSet)

    def work(self, node: str, store: str, *, timeout_s: float | None = None) -> WorkOrders:
        """Return the orders for a machine that has nothing to report."""
        path = _with_query("/api/v1/work", {"node": node, "store": store})
        return self._decoded(self._send("GET", path, timeout_s=timeout_s), WorkOrders)

    def report_work(self, reports: WorkReports, *, timeout_s: float | None = None) -> WorkOrders:
        """Send the reports of a machine on its work; return the orders for it."""
        body, headers = msgspec.json.encode(reports), {"Content-Type": "application/json"}
        answer = self._send("POST", "/api/v1/work", body=body, headers=headers, timeout_s=timeout_s)
        return self._decoded(answer, WorkOrders)

    def scheduler(self, name: str, report: SchedulerReport) -> SchedulerOrders:
        """Send the report of a scheduler's bridge; return what is wanted of the scheduler."""
        body, headers = msgspec.json.encode(report), {"Content-Type": "application/json"}
        path = f"/api/v1/schedulers/{quote(name, safe='')}"
        return self._decoded(self._send("POST", path, body=body, headers=headers), SchedulerOrders)

    def scheduler_news(self, name: str, after: str) -> str:
        """Wait some seconds for orders for a scheduler that are newer than ``after``.

        Return what to ask with the next time: ``after`` itself where there were none.
        """
        path = _with_query(f"/api/v1/schedulers/{quote(name, safe='')}", {"after": after})
        return self._decoded(self._send("GET", path, timeout_s=_NEWS_TIMEOUT_S), SchedulerNews).last

    def exchange(self, method: str, path: str, body: bytes | None, kind: type[S]) -> S:
        """Send MessagePack, and return what it is answered with."""
        headers = {"Accept": "application/msgpack"}
        if body is not None:
            headers["Content-Type"] = "application/msgpack"
        answer = self._checked(self._send(method, path, body=body, headers=headers))
        try:
            return msgspec.msgpack.decode(answer.data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise Unavailable(f"{self.server_url} answers with no {kind.__name__}: {exc}") from exc

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """GET ``path`` and return the decoded JSON."""
        return _json(self._checked(self._send("GET", _with_query(path, params))))

    def post(self, path: str, document: Any, params: Mapping[str, str] | None = None) -> Any:
        """POST ``document`` as JSON and return the decoded JSON (None for an empty answer)."""
        return self.post_body(path, msgspec.json.encode(document), "application/json", params)

    def post_yaml(self, path: str, text: str, params: Mapping[str, str] | None = None) -> Any:
        """POST a YAML document and return the decoded JSON (None for an empty answer)."""
        return self.post_body(path, text.encode(), "application/yaml", params)

    def post_body(
        self,
        path: str,
        body: bytes,
        content_type: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """POST ``body`` as it is and return the decoded JSON (None for an empty answer)."""
        sent = {"Content-Type": content_type, **(headers or {})}
        answer = self._send("POST", _with_query(path, params), body=body, headers=sent)
        return _json(self._checked(answer))

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            return self._pool.request(
                method,
                self.server_url + path,
                body=body,
                headers={
                    "Accept": "application/json",
                    "Authorization": f"Bearer {self._token}",
                    "User-Agent": f"headroom/{__version__}",
                    **(headers or {}),
                },
                timeout=urllib3.Timeout(connect=min(_CONNECT_TIMEOUT_S, limit_s), read=limit_s),
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as exc:
            cause = type(exc).__name__
            raise Unavailable(f"{self.server_url} cannot be reached: {cause}: {exc}") from exc

    def _ack(self, answer: urllib3.BaseHTTPResponse) -> TelemetryAck:
        return self._decoded(answer, TelemetryAck)

    def _decoded(self, answer: urllib3.BaseHTTPResponse, kind: type[S]) -> S:
        data = self._checked(answer).data
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise Unavailable(
                f"{self.server_url} answers {answer.status} with no {kind.__name__}: {exc}; "
                "check the server's URL",
                status=answer.status,
            ) from exc

    def _checked(self, answer: urllib3.BaseHTTPResponse) -> urllib3.BaseHTTPResponse:
        """Return ``answer`` when it is a 2xx; raise the error that it stands for otherwise."""
        status = answer.status
        if 200 <= status < 300:
            return answer
        if 400 <= status < 500 and status not in _RETRYABLE_4XX:
            error = _field_error(answer) or FieldError(
                code=f"http_{status}", message=answer.reason or "refused"
            )
            kind = Unauthorized if status in (401, 403) else Refused
            raise kind(status, error, _other_errors(answer))
        raise Unavailable(
            self._describe(answer), status=status, retry_after_s=_retry_after_s(answer)
        )

    def _describe(self, answer: urllib3.BaseHTTPResponse) -> str:
        if 300 <= answer.status < 400:
            return (
                f"{self.server_url} answers {answer.status} and points to "
                f"{answer.headers.get('Location', 'nowhere')}; check the server's URL"
            )
        error = _field_error(answer)
        reason = f"{error.code}: {error.message}" if error else answer.reason or "no reason given"
        return f"{self.server_url} answers {answer.status} {reason}"


def _with_query(path: str, params: Mapping[str, str | list[str]] | None) -> str:
    return f"{path}?{urlencode(params, doseq=True)}" if params else path


def _json(answer: urllib3.BaseHTTPResponse) -> Any:
    if not answer.data:
        return None
    try:
        return msgspec.json.decode(answer.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Unavailable(
            f"the server answers {answer.status} with something that is not JSON: {exc}",
            status=answer.status,
        ) from exc


def _field_error(answer: urllib3.BaseHTTPResponse) -> FieldError | None:
    """Return the error in the body, or None when it is not one of the API's."""
    try:
        return _as_field_error(msgspec.json.decode(answer.data)["error"])
    except _NO_ERROR:
        return None


def _other_errors(answer: urllib3.BaseHTTPResponse) -> list[FieldError]:
    """Return the errors in the body after the first."""
    try:
        return [_as_field_error(each) for each in msgspec.json.decode(answer.data)["errors"][1:]]
    except _NO_ERROR:
        return []


def _as_field_error(error: Any) -> FieldError:
    known = {name: error[name] for name in FieldError.__struct_fields__ if error.get(name)}
    return msgspec.convert(known, FieldError)


def _raise_if_partly_taken(exc: Refused, answer: urllib3.BaseHTTPResponse) -> None:
    """Raise :class:`PartlyRefused` where the body acknowledges the rows that were accepted."""
    try:
        body = msgspec.json.decode(answer.data, type=ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    if body.ack is not None:
        raise PartlyRefused(
            exc.status,
            body.error,
            ack=body.ack,
            refused=body.refused,
            refused_rows=body.refused_rows,
        ) from exc


def _retry_after_s(answer: urllib3.BaseHTTPResponse) -> float | None:
    """Read Retry-After in either of its forms, seconds or an HTTP date."""
    text = answer.headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return min(float(text), _MAX_RETRY_AFTER_S)
    try:
        wait_s = parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError):
        return None
    return min(max(wait_s, 0.0), _MAX_RETRY_AFTER_S)
