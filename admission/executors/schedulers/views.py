"""``/api/v1/schedulers/NAME``: HTTP around ``sync``."""

from __future__ import annotations

import time

import msgspec
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from admission.executors.doors import answered, decoded
from admission.executors.schedulers.sync import sync
from headroom.schedulers.contract import SchedulerOrders, SchedulerReport
from telemetry.ingest.requests import authenticate, decompress, read

_decoder = msgspec.json.Decoder(SchedulerReport)


# By token alone: no cookie is looked at, so there is none to be misused.
@csrf_exempt
@require_POST
def scheduler(request: HttpRequest, name: str) -> HttpResponse:
    """Take the report of a scheduler's bridge, and tell it its orders."""
    return answered(lambda: _sync(request, name), "scheduler_unavailable")


def _sync(request: HttpRequest, name: str) -> SchedulerOrders:
    scope = authenticate(request)
    body = decompress(read(request), request.META.get("HTTP_CONTENT_ENCODING", ""))
    report = decoded(_decoder, body, "docs/reference/schedulers.md")
    return sync(scope, name, report, time.time())
