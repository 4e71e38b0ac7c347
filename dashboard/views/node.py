"""The page of one node, and its live panels."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from accounts.cost import dear
from accounts.decorators import requires
from accounts.roles import Capability
from accounts.visibility import Visibility
from dashboard import happenings, ranges, readings, state
from dashboard.readings import GpuNow
from dashboard.timeline import Timeline
from dashboard.views.timelines import Views
from fleet.models import Gpu, Node
from headroom.contracts import RECORDING_OVER
from policies.scopes import Scope, ScopeKind
from telemetry.models import ThrottleEvent
from telemetry.series import Kind
from telemetry.trust import read as power
from telemetry.trust.compare import Standing

__all__ = ["events", "page", "panel", "table"]

#: So many of its meters are drawn.
_METERS = 4


def _node(node_id: int) -> Node:
    nodes = Node.objects.select_related("rack__site", "model", "storage_endpoint__site")
    return get_object_or_404(nodes, pk=node_id)


def _timeline(request: HttpRequest, node: Node, now: float) -> Timeline:
    # GPUs of one node are of one model almost always: the first one's ratings are drawn.
    gpu = node.gpus.select_related("model").order_by("index").first()
    meters = dict(node.meters.values_list("pk", "name")[:_METERS])
    return Timeline(
        picker=ranges.read(request.GET.dict(), now),
        sources=(
            (Kind.NODE, node.pk),
            (Kind.HOST, node.pk),
            *((Kind.METER, meter) for meter in meters),
        ),
        events=urlencode({"node": node.name}),
        slowdown_c=gpu.model.slowdown_c if gpu else None,
        sm_max_mhz=gpu.model.sm_max_mhz if gpu else None,
        rows=8 if gpu else 4,
        name=node.name,
        meters=meters,
    )


def _now(node: Node, _visibility: Visibility) -> dict[str, Any]:
    view, now = state.current(), time.time()
    records = node.gpus.select_related("model").order_by("index")
    gpus = _gpus_now(list(records), view.frame.rows, now)
    host = readings.read(
        view.frame.rows("host", np.array([node.pk]))[0], now, settings.STALE_AFTER_S
    )
    row = view.fleet.nodes.index_by_id.get(node.pk)
    nodes = view.summary.nodes
    return {
        "node": node,
        "gpus": gpus,
        "host": host,
        "known": row is not None and bool(nodes.seen[row]),
        "is_recorded": row is None and RECORDING_OVER in node.labels,
        "stale": row is None or bool(nodes.stale[row]),
        "age_s": None if row is None else float(nodes.age_s[row]),
        "load_w": None if row is None else float(nodes.load_w[row]),
        "measured_w": None if row is None else float(nodes.measured_w[row]),
        "enforced_w": None if row is None else float(nodes.enforced_w[row]),
        "gpu_power_w": readings.total(gpus, "power_w"),
        "hottest": readings.hottest(gpus),
        "clock_ratio": readings.mean_clock_ratio(gpus),
        "throttling": sum(bool(gpu.causes) for gpu in gpus),
        "unexpected": sum(gpu.is_unexpected for gpu in gpus),
        "since": _throttled_since(node),
    }


def _gpus_now(gpus: list[Gpu], rows: Any, now: float) -> list[GpuNow]:
    found = rows("gpu", np.array([gpu.pk for gpu in gpus], dtype=np.int64))
    return [
        readings.gpu_now(gpu, record, now, settings.STALE_AFTER_S)
        for gpu, record in zip(gpus, found, strict=True)
    ]


def _throttled_since(node: Node) -> Any:
    """Return when the longest throttle event that still goes on was opened, or None."""
    events = ThrottleEvent.objects.open().filter(gpu__node=node).order_by("opened_at")
    return events.values_list("opened_at", flat=True).first()


def _power_sources(node: Node, now: float) -> dict[str, Any]:
    """Return who tells of the node's power, and of which GPUs sources differ."""
    found = next(power.compare([node.pk], now), None)
    if found is None:
        return {"power_sources": [], "disputed_gpus": []}
    disputed = [
        (index, judged)
        for index, judged in found.gpus.items()
        if any(each.standing is Standing.DISPUTED for each in judged)
    ]
    return {"power_sources": found.sources, "disputed_gpus": disputed}


def _scope(node: Node) -> Scope:
    return Scope(ScopeKind.NODE, node.name)


_views = Views("node", _node, _now, _timeline, happenings.of_node, _scope, _power_sources)


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, node_id: int) -> HttpResponse:
    """The state of one node and its GPUs, and their history."""
    return _views.page(request, node_id)


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest, node_id: int) -> HttpResponse:
    """The answer, the GPUs and the host, for htmx."""
    return _views.panel(request, node_id)


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def table(request: HttpRequest, node_id: int) -> HttpResponse:
    """Least, mean and greatest values of the range, for htmx."""
    return _views.table(request, node_id)


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def events(request: HttpRequest, node_id: int) -> HttpResponse:
    """The events in the range, for htmx."""
    return _views.events(request, node_id)
