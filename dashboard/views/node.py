"""The page of one node, and its live panels."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from accounts import visibility
from accounts.cost import dear
from accounts.decorators import requires
from accounts.roles import Capability
from accounts.visibility import Visibility
from dashboard import happenings, panels, ranges, readings, state
from dashboard.readings import GpuNow
from dashboard.timeline import Timeline
from fleet.models import Gpu, Node
from telemetry.models import ThrottleEvent
from telemetry.series import Kind

__all__ = ["events", "page", "panel", "table"]

_PANEL = "dashboard/panels/node.html"
_TABLE = "dashboard/panels/range_table.html"
_HAPPENINGS = "dashboard/panels/happenings.html"


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, node_id: int) -> HttpResponse:
    """The state of one node and its GPUs, and their history."""
    node, now = _node(node_id), time.time()
    timeline = _timeline(request, node, now)
    panel_html, _ = panels.draw(request, _PANEL, _url("live-node", node), {}, _now(node))
    drawn = _table(node, timeline, now)
    table_html, _ = panels.draw(request, *drawn)
    events_html, _ = panels.draw(request, *_happenings(node, timeline, visibility.of(request)))
    context = {
        "rows": timeline.rows if drawn[-1]["rows"] else 0,
        "node": node,
        "timeline": timeline,
        "picker": timeline.picker,
        "panel": panel_html,
        "table": table_html,
        "happenings": events_html,
    }
    return render(
        request, "dashboard/node.html", context, status=400 if timeline.picker.error else 200
    )


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest, node_id: int) -> HttpResponse:
    """The answer, the GPUs and the host, for htmx."""
    node = _node(node_id)
    return panels.answer(request, _PANEL, _url("live-node", node), {}, _now(node))


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def table(request: HttpRequest, node_id: int) -> HttpResponse:
    """Least, mean and greatest values of the range, for htmx."""
    node, now = _node(node_id), time.time()
    return panels.answer(request, *_table(node, _timeline(request, node, now), now))


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def events(request: HttpRequest, node_id: int) -> HttpResponse:
    """The events in the range, for htmx."""
    node = _node(node_id)
    timeline = _timeline(request, node, time.time())
    return panels.answer(request, *_happenings(node, timeline, visibility.of(request)))


def _node(node_id: int) -> Node:
    nodes = Node.objects.select_related("rack__site", "model", "storage_endpoint__site")
    return get_object_or_404(nodes, pk=node_id)


def _url(name: str, node: Node) -> str:
    return reverse(name, args=[node.pk])


def _timeline(request: HttpRequest, node: Node, now: float) -> Timeline:
    # GPUs of one node are of one model almost always: the first one's ratings are drawn.
    gpu = node.gpus.select_related("model").order_by("index").first()
    return Timeline(
        picker=ranges.read(request.GET.dict(), now),
        sources=((Kind.NODE, node.pk), (Kind.HOST, node.pk)),
        events=urlencode({"node": node.name}),
        slowdown_c=gpu.model.slowdown_c if gpu else None,
        sm_max_mhz=gpu.model.sm_max_mhz if gpu else None,
        rows=8 if gpu else 4,
    )


def _table(
    node: Node, timeline: Timeline, now: float
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    query = ranges.as_params(timeline.picker)
    context = {"rows": timeline.table(now), "live": timeline.picker.span.live}
    return _TABLE, _url("live-node-range", node), query, context


def _happenings(
    node: Node, timeline: Timeline, seen: Visibility
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    span = timeline.picker.span
    query = ranges.as_params(timeline.picker)
    context = {
        "happenings": happenings.of_node(node.pk, span, seen),
        "most": happenings.MOST,
        "of_node": True,
        "more": urlencode({"node": node.name, **query}),
        "live": span.live,
    }
    return _HAPPENINGS, _url("live-node-events", node), query, context


def _now(node: Node) -> dict[str, Any]:
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
        "stale": row is None or bool(nodes.stale[row]),
        "age_s": None if row is None else float(nodes.age_s[row]),
        "load_w": None if row is None else float(nodes.load_w[row]),
        "measured_w": None if row is None else float(nodes.measured_w[row]),
        "enforced_w": None if row is None else float(nodes.enforced_w[row]),
        "gpu_power_w": readings.total(gpus, "power_w"),
        "hottest": readings.hottest(gpus),
        "clock_ratio": readings.mean_clock_ratio(gpus),
        "throttling": sum(bool(gpu.causes) for gpu in gpus),
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
