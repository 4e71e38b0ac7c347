"""The page of one GPU, and its live panels."""

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
from dashboard import causes, happenings, lemons, panels, ranges, readings
from dashboard.timeline import Timeline
from fleet.models import Gpu
from telemetry import frame
from telemetry.models import ThrottleEvent
from telemetry.series import Kind

__all__ = ["events", "page", "panel", "table"]

_PANEL = "dashboard/panels/gpu.html"
_TABLE = "dashboard/panels/range_table.html"
_HAPPENINGS = "dashboard/panels/happenings.html"


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, gpu_id: int) -> HttpResponse:
    """The state of one GPU, and its history."""
    gpu, now = _gpu(gpu_id), time.time()
    timeline = _timeline(request, gpu, now)
    panel_html, _ = panels.draw(request, _PANEL, _url("live-gpu", gpu), {}, _now(gpu))
    drawn = _table(gpu, timeline, now)
    table_html, _ = panels.draw(request, *drawn)
    events_html, _ = panels.draw(request, *_happenings(gpu, timeline, visibility.of(request)))
    context = {
        "rows": timeline.rows if drawn[-1]["rows"] else 0,
        "gpu": gpu,
        "timeline": timeline,
        "picker": timeline.picker,
        "panel": panel_html,
        "table": table_html,
        "happenings": events_html,
    }
    return render(
        request, "dashboard/gpu.html", context, status=400 if timeline.picker.error else 200
    )


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest, gpu_id: int) -> HttpResponse:
    """The answer and the latest reading, for htmx."""
    gpu = _gpu(gpu_id)
    return panels.answer(request, _PANEL, _url("live-gpu", gpu), {}, _now(gpu))


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def table(request: HttpRequest, gpu_id: int) -> HttpResponse:
    """Least, mean and greatest values of the range, for htmx."""
    gpu, now = _gpu(gpu_id), time.time()
    return panels.answer(request, *_table(gpu, _timeline(request, gpu, now), now))


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def events(request: HttpRequest, gpu_id: int) -> HttpResponse:
    """The events in the range, for htmx."""
    gpu = _gpu(gpu_id)
    timeline = _timeline(request, gpu, time.time())
    return panels.answer(request, *_happenings(gpu, timeline, visibility.of(request)))


def _gpu(gpu_id: int) -> Gpu:
    return get_object_or_404(Gpu.objects.select_related("model", "node__rack__site"), pk=gpu_id)


def _url(name: str, gpu: Gpu) -> str:
    return reverse(name, args=[gpu.pk])


def _timeline(request: HttpRequest, gpu: Gpu, now: float) -> Timeline:
    return Timeline(
        picker=ranges.read(request.GET.dict(), now),
        sources=((Kind.GPU, gpu.pk),),
        events=f"gpu={gpu.pk}",
        slowdown_c=gpu.model.slowdown_c,
        sm_max_mhz=gpu.model.sm_max_mhz,
    )


def _table(
    gpu: Gpu, timeline: Timeline, now: float
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    query = ranges.as_params(timeline.picker)
    context = {"rows": timeline.table(now), "live": timeline.picker.span.live}
    return _TABLE, _url("live-gpu-range", gpu), query, context


def _happenings(
    gpu: Gpu, timeline: Timeline, seen: Visibility
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    span = timeline.picker.span
    query = ranges.as_params(timeline.picker)
    context = {
        "happenings": happenings.of_gpu(gpu.pk, span, seen),
        "most": happenings.MOST,
        "of_node": False,
        "more": urlencode({"node": gpu.node.name, **query}),
        "live": span.live,
    }
    return _HAPPENINGS, _url("live-gpu-events", gpu), query, context


def _now(gpu: Gpu) -> dict[str, Any]:
    """Two round trips to Redis at most, two queries."""
    record = frame.read().rows("gpu", np.array([gpu.pk]))[0]
    current = readings.gpu_now(gpu, record, time.time(), settings.STALE_AFTER_S)
    events = ThrottleEvent.objects.open().filter(gpu=gpu).order_by("opened_at")
    return {
        "gpu": gpu,
        "current": current,
        "reading": current.reading,
        "events": [(causes.of(event.cause), event) for event in events],
        "lemons": lemons.of_gpu(gpu),
        "now": time.time(),
    }
