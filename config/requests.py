"""One log line for each request, with the request's id in every line written meanwhile."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

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
        structlog.contextvars.bind_contextvars(request_id=_new_id(), ip=client_address(request))
        try:
            response = self.get_response(request)
            if response.status_code >= 400 or not request.path.startswith(ROUTINE):
                _log(request, response.status_code, time.perf_counter() - started)
        finally:
            structlog.contextvars.clear_contextvars()
        return response


def log_short(
    method: str, path: str, status: int, elapsed_s: float, *, user_id: int, ip: str | None
) -> None:
    """Log the answer to a good request that bypasses Django."""
    of_request = {"request_id": _new_id(), "ip": ip}
    log.info("request", **_told(method, path, status, elapsed_s, user_id), **of_request)


def _log(request: HttpRequest, status: int, elapsed_s: float) -> None:
    told = _told(request.method, request.get_full_path(), status, elapsed_s, _user_id(request))
    log.log(logging.WARNING if status >= 400 else logging.INFO, "request", **told)


def _told(
    method: str | None, path: str, status: int, elapsed_s: float, user_id: int | None
) -> dict[str, Any]:
    return {
        "method": method,
        "path": path,
        "status": status,
        "duration_ms": round(elapsed_s * 1000, 1),
        "user_id": user_id,
    }


def _new_id() -> str:
    return os.urandom(8).hex()


def _user_id(request: HttpRequest) -> int | None:
    """Return the user's id where the view has looked the user up; a log line asks no database."""
    user = getattr(request, "user", None)
    if isinstance(user, LazyObject) and user.__dict__.get("_wrapped") is empty:
        return None
    return getattr(user, "pk", None)
