"""``/api/v1/work``: HTTP around ``sync``.

Most requests of machines that have nothing to do do not come here: the fast path has answered them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import structlog
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from admission.executors import sync
from headroom.contracts import BatchError, invalid_field
from headroom.work.contract import WorkOrders, WorkReports
from telemetry.ingest.errors import JSON, Overloaded, answer, malformed
from telemetry.ingest.requests import authenticate, read

log = structlog.get_logger(__name__)

_decoder = msgspec.json.Decoder(WorkReports)
_REFERENCE = "see docs/reference/executors.md"


# By token alone: no cookie is looked at, so there is none to be misused.
@csrf_exempt
@require_http_methods(["GET", "POST"])
def work(request: HttpRequest) -> HttpResponse:
    """Tell a machine its orders; POST brings its reports."""
    return _answered(lambda: _look(request) if request.method == "GET" else _sync(request))


def _look(request: HttpRequest) -> WorkOrders:
    scope = authenticate(request)
    nodes = request.GET.getlist("node")
    return sync.look(scope, nodes, request.GET.get("store", ""), time.time())


def _sync(request: HttpRequest) -> WorkOrders:
    scope = authenticate(request)
    try:
        message = _decoder.decode(read(request))
    except msgspec.ValidationError as exc:
        error = invalid_field(exc).error
        raise BatchError(error.code, error.message, field=error.field, hint=_REFERENCE) from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise malformed("JSON", str(exc)) from exc
    return sync.sync(scope, message, time.time())


def _answered(work: Callable[[], WorkOrders]) -> HttpResponse:
    try:
        body = msgspec.json.encode(work())
    except BatchError as exc:
        return answer(exc)
    except DatabaseError as exc:
        log.warning("work_unavailable", error=type(exc).__name__)
        return answer(
            Overloaded(
                "unavailable",
                "orders cannot be read at the moment",
                hint="let what runs go on, start nothing, and ask again",
            )
        )
    return HttpResponse(body, content_type=JSON, headers={"Cache-Control": "no-store"})
