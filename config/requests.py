"""One log line for each request, with the request's id in every line written meanwhile."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import structlog
from django.utils.functional import LazyObject, empty

from accounts.addresses import client_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponseBase

#: What probes, agents and open pages send all day. It leaves a line only where it fails, and is
#: counted in /metrics.
ROUTINE = (
    "/healthz",
    "/readyz",
    "/metrics",
    "/live/",
    "/api/v1/limits",
    "/api/v1/telemetry",
    "/api/v1/prometheus/",
    "/api/v1/otlp/",
)

log = structlog.get_logger(__name__)


class RequestLogMiddleware:
    """Binds ``request_id`` and ``ip``, and logs the answer. It is on the way of every batch."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        structlog.contextvars.bind_contextvars(
            request_id=os.urandom(8).hex(), ip=client_address(request)
        )
        try:
            response = self.get_response(request)
            if response.status_code >= 400 or not request.path.startswith(ROUTINE):
                _log(request, response.status_code, time.perf_counter() - started)
        finally:
            structlog.contextvars.clear_contextvars()
        return response


def _log(request: HttpRequest, status: int, elapsed_s: float) -> None:
    log.log(
        logging.WARNING if status >= 400 else logging.INFO,
        "request",
        method=request.method,
        path=request.get_full_path(),
        status=status,
        duration_ms=round(elapsed_s * 1000, 1),
        user_id=_user_id(request),
    )


def _user_id(request: HttpRequest) -> int | None:
    """Return the user's id where the view has looked the user up; a log line asks no database."""
    user = getattr(request, "user", None)
    if isinstance(user, LazyObject) and user.__dict__.get("_wrapped") is empty:
        return None
    return getattr(user, "pk", None)
