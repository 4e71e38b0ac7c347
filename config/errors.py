"""Pages, or JSON under /api/, for requests that end badly outside of any view's own care."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from django.http import HttpResponse, JsonResponse
from django.template.loader import render_to_string

from config.api import error_body

if TYPE_CHECKING:
    from django.http import HttpRequest

CODES = {400: "bad_request", 403: "permission_denied", 404: "not_found", 500: "server_error"}
MESSAGES = {
    400: "This request could not be read.",
    403: "This is not allowed.",
    404: "There is nothing at this address.",
    500: "A fault in Headroom. It is in its logs.",
}

log = structlog.get_logger(__name__)


def bad_request(
    request: HttpRequest,
    exception: Exception | None = None,  # noqa: ARG001 - Django names it
) -> HttpResponse:
    return _answer(request, 400)


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _answer(request, 403, str(exception or ""))


def not_found(
    request: HttpRequest,
    exception: Exception | None = None,  # noqa: ARG001 - Django names it
) -> HttpResponse:
    return _answer(request, 404)


def server_error(request: HttpRequest) -> HttpResponse:
    return _answer(request, 500)


def csrf_failure(
    request: HttpRequest,
    reason: str = "",  # noqa: ARG001 - for developers, and in the log already
) -> HttpResponse:
    """Answer a form that came without its CSRF token, or from another site."""
    return _answer(
        request, 403, "The form was too old or came from elsewhere. Load the page again."
    )


def _answer(request: HttpRequest, status: int, reason: str = "") -> HttpResponse:
    if request.path.startswith("/api/"):
        return JsonResponse(error_body(CODES[status], reason or MESSAGES[status]), status=status)
    request_id = structlog.contextvars.get_contextvars().get("request_id", "")
    context = {"request_id": request_id, "reason": reason}
    # The fault may be the database, which the user's name in the header would ask again.
    source = None if status == 500 else request
    try:
        return HttpResponse(
            render_to_string(f"errors/{status}.html", context, source), status=status
        )
    except Exception:
        log.exception("error_page_failed")
        return HttpResponse(MESSAGES[status], status=status, content_type="text/plain")
