"""Pages, or JSON under /api/, for requests that end badly outside of any view's own care."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import redis
import structlog
from django.db import InterfaceError, OperationalError
from django.http import HttpResponse, JsonResponse
from django.template.loader import render_to_string

from config.api import error_body

if TYPE_CHECKING:
    from django.http import HttpRequest

CODES = {
    400: "bad_request",
    403: "permission_denied",
    404: "not_found",
    500: "server_error",
    503: "unavailable",
}
MESSAGES = {
    400: "This request could not be read.",
    403: "This is not allowed.",
    404: "There is nothing at this address.",
    500: "A fault in Headroom. It is in its logs.",
    503: "Postgres or Redis cannot be reached. Jobs and limits go on as they are.",
}
#: What the clients of both stores raise when their server is away, full, or does not answer.
STORE_AWAY = (OperationalError, InterfaceError, redis.ConnectionError, redis.TimeoutError)
#: After so long a request may be sent again, s.
RETRY_AFTER_S = 5

log = structlog.get_logger(__name__)


def bad_request(
    request: HttpRequest,
    exception: Exception | None = None,  # noqa: ARG001 - Django names it
) -> HttpResponse:
    return _answer(request, 400)


def refused(request: HttpRequest, field: str, reason: str) -> HttpResponse:
    """Answer 400: ``field`` of the request cannot be read, and why."""
    return _answer(request, 400, reason, field)


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _answer(request, 403, str(exception or ""))


def not_found(
    request: HttpRequest,
    exception: Exception | None = None,  # noqa: ARG001 - Django names it
) -> HttpResponse:
    return _answer(request, 404)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer for an uncaught exception: 503 where a store is away, else 500."""
    if isinstance(sys.exc_info()[1], STORE_AWAY):
        return _unavailable(request)
    return _answer(request, 500)


def _unavailable(request: HttpRequest) -> HttpResponse:
    log.warning("store_away", path=request.path, error=type(sys.exc_info()[1]).__name__)
    response = _answer(request, 503)
    response["Retry-After"] = str(RETRY_AFTER_S)
    # Django would write the whole traceback, of each request, for as long as the store is away.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def csrf_failure(
    request: HttpRequest,
    reason: str = "",  # noqa: ARG001 - for developers, and in the log already
) -> HttpResponse:
    """Answer a form without a valid CSRF token, or from another site."""
    return _answer(
        request, 403, "The form was too old or came from elsewhere. Load the page again."
    )


def _answer(request: HttpRequest, status: int, reason: str = "", field: str = "") -> HttpResponse:
    if request.path.startswith("/api/"):
        body = error_body(CODES[status], reason or MESSAGES[status], field)
        return JsonResponse(body, status=status)
    request_id = structlog.contextvars.get_contextvars().get("request_id", "")
    context = {"request_id": request_id, "reason": f"{field}: {reason}" if field else reason}
    # The fault may be the database, which the user's name in the header would ask again.
    source = None if status >= 500 else request
    try:
        return HttpResponse(
            render_to_string(f"errors/{status}.html", context, source), status=status
        )
    except Exception:
        log.exception("error_page_failed")
        return HttpResponse(MESSAGES[status], status=status, content_type="text/plain")
