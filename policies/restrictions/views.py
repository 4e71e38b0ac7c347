"""``GET /api/v1/limits``: HTTP around ``limits``.

Good requests do not come here: ``gate`` has answered them.
"""

from __future__ import annotations

import time

import structlog
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from headroom.contracts import BatchError
from policies.restrictions import limits
from telemetry.ingest.errors import JSON, Overloaded, answer
from telemetry.ingest.requests import authenticate

log = structlog.get_logger(__name__)


@require_GET
def agents_limits(request: HttpRequest) -> HttpResponse:
    """Answer an agent with the limits in force on its nodes."""
    try:
        body = limits.answer(
            authenticate(request),
            time.time(),
            limits.asked_in(request.META.get("QUERY_STRING", "")),
        )
    except limits.TooManyLimits as exc:
        return answer(exc, status=413)
    except BatchError as exc:
        return answer(exc)
    except DatabaseError as exc:
        log.warning("limits_unavailable", error=type(exc).__name__)
        return answer(
            Overloaded(
                "unavailable",
                "limits cannot be read at the moment",
                hint="keep to those that are known until their leases end, and ask again",
            )
        )
    return HttpResponse(body, content_type=JSON)
