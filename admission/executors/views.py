"""``/api/v1/work``: HTTP around ``sync``.

Most requests of machines that have nothing to do do not come here: the fast path has answered them.
"""

from __future__ import annotations

import time

import msgspec
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from admission.executors import sync
from admission.executors.doors import answered, decoded
from headroom.work.contract import WorkOrders, WorkReports
from telemetry.ingest.requests import authenticate, read

_decoder = msgspec.json.Decoder(WorkReports)


# By token alone: no cookie is looked at, so there is none to be misused.
@csrf_exempt
@require_http_methods(["GET", "POST"])
def work(request: HttpRequest) -> HttpResponse:
    """Tell a machine its orders; POST brings its reports."""
    act = _look if request.method == "GET" else _sync
    return answered(lambda: act(request), "work_unavailable")


def _look(request: HttpRequest) -> WorkOrders:
    scope = authenticate(request)
    nodes = request.GET.getlist("node")
    return sync.look(scope, nodes, request.GET.get("store", ""), time.time())


def _sync(request: HttpRequest) -> WorkOrders:
    scope = authenticate(request)
    message = decoded(_decoder, read(request), "docs/reference/executors.md")
    return sync.sync(scope, message, time.time())
