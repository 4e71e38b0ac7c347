"""``/api/v1/schedulers/NAME``: HTTP around ``sync``."""

from __future__ import annotations

import time

import msgspec
import structlog
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from admission.executors.schedulers.sync import sync
from headroom.contracts import BatchError, invalid_field
from headroom.schedulers.contract import SchedulerReport
from telemetry.ingest.errors import JSON, Overloaded, answer, malformed
from telemetry.ingest.requests import authenticate, decompress, read

log = structlog.get_logger(__name__)

_decoder = msgspec.json.Decoder(SchedulerReport)
_REFERENCE = "see docs/reference/schedulers.md"


# By token alone: no cookie is looked at, so there is none to be misused.
@csrf_exempt
@require_POST
def scheduler(request: HttpRequest, name: str) -> HttpResponse:
    """Take the report of a scheduler's bridge, and tell it its orders."""
    try:
        scope = authenticate(request)
        body = decompress(read(request), request.META.get("HTTP_CONTENT_ENCODING", ""))
        orders = sync(scope, name, _decoded(body), time.time())
    except BatchError as exc:
        return answer(exc)
    except DatabaseError as exc:
        log.warning("scheduler_unavailable", error=type(exc).__name__)
        return answer(
            Overloaded(
                "unavailable",
                "orders cannot be read at the moment",
                hint="let what runs go on, start nothing, and ask again",
            )
        )
    content = msgspec.json.encode(orders)
    return HttpResponse(content, content_type=JSON, headers={"Cache-Control": "no-store"})


def _decoded(body: bytes) -> SchedulerReport:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as exc:
        error = invalid_field(exc).error
        raise BatchError(error.code, error.message, field=error.field, hint=_REFERENCE) from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise malformed("JSON", str(exc)) from exc
