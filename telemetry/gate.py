"""The short way for good batches: before Django.

What Django does for a request, with its middleware, costs as much as the batch itself, and a good
batch needs none of it. Whatever else a batch may be is handed on: refused ones get their answer,
their entry in the log and their note on the Agents page from ``telemetry.views``.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec
from django.conf import settings

from headroom.contracts import MAX_BATCH_BYTES, TelemetryBatch, decode_batch
from telemetry import intake, metrics
from telemetry.views import is_json
from telemetry.ways_in.errors import JSON
from telemetry.ways_in.requests import agent_of, decompress

Environ: TypeAlias = dict[str, Any]
Application: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

PATH = "/api/v1/telemetry"
_HEADERS = [
    ("Content-Type", JSON),
    # No browser is to show it.
    ("Content-Security-Policy", "default-src 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


class Gate:
    """A WSGI application that takes good batches and hands all else to ``behind``.

    ``answered`` is called with the seconds that each batch took, for the metrics of HTTP.
    """

    def __init__(self, behind: Application, answered: Callable[[float], None]) -> None:
        self._behind = behind
        self._answered = answered
        self._accepted = metrics.BATCHES.labels("accepted")

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH or not _may_be_batch(environ):
            return self._behind(environ, start_response)
        started = time.perf_counter()
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        try:
            scope = agent_of(environ.get("HTTP_AUTHORIZATION", ""))
            intake.check_pace(scope)
            ack = intake.take(_batch(environ, body), scope, time.time())
        except Exception:
            # It is tried once more where what is wrong has an answer. Nothing is lost by that: a
            # batch that was appended twice is stored once.
            environ["wsgi.input"] = io.BytesIO(body)
            return self._behind(environ, start_response)
        self._accepted.inc()
        self._answered(time.perf_counter() - started)
        start_response("202 Accepted", _HEADERS)
        return [msgspec.json.encode(ack)]


def _batch(environ: Environ, body: bytes) -> TelemetryBatch:
    json = is_json(environ.get("CONTENT_TYPE", ""))
    return decode_batch(decompress(body, environ.get("HTTP_CONTENT_ENCODING", "")), json=json)


def _may_be_batch(environ: Environ) -> bool:
    """Say whether it is a POST of no more than the limit, by TLS where that is asked for."""
    length = environ.get("CONTENT_LENGTH", "")
    return (
        environ["REQUEST_METHOD"] == "POST"
        and length.isdecimal()
        and int(length) <= MAX_BATCH_BYTES
        and (not settings.BEHIND_TLS or environ.get("HTTP_X_FORWARDED_PROTO") == "https")
    )
