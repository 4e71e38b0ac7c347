"""The page of one GPU, and its live panels."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from accounts.cost import dear
from accounts.decorators import requires
from accounts.roles import Capability
from accounts.visibility import Visibility
from dashboard import causes, happenings, lemons, ranges, readings, slices
from dashboard.timeline import Timeline
from dashboard.views.timelines import Views
from fleet.models import Gpu
from policies.scopes import Scope, ScopeKind
from telemetry import frame
from telemetry.models import ThrottleEvent
from telemetry.series import Kind

__all__ = ["events", "page", "panel", "table"]


def _gpu(gpu_id: int) -> Gpu:
    return get_object_or_404(Gpu.objects.select_related("model", "node__rack__site"), pk=gpu_id)


def _timeline(request: HttpRequest, gpu: Gpu, now: float) -> Timeline:
    return Timeline(
        picker=ranges.read(request.GET.dict(), now),
        sources=((Kind.GPU, gpu.pk),),
        events=f"gpu={gpu.pk}",
        slowdown_c=gpu.model.slowdown_c,
        sm_max_mhz=gpu.model.sm_max_mhz,
        name=f"{gpu.node.name}-gpu-{gpu.index}",
    )


def _now(gpu: Gpu, visibility: Visibility) -> dict[str, Any]:
    """Two round trips to Redis at most, two queries, and some for one that is partitioned."""
    record = frame.read().rows("gpu", np.array([gpu.pk]))[0]
    current = readings.gpu_now(gpu, record, time.time(), settings.STALE_AFTER_S)
    events = ThrottleEvent.objects.open().filter(gpu=gpu).order_by("opened_at")
    return {
        "gpu": gpu,
        "current": current,
        "reading": current.reading,
        "events": [(causes.of(event.cause), event) for event in events],
        "lemons": lemons.of_gpu(gpu),
        "slices": slices.of_gpu(
            gpu, None if current.reading.stale else current.reading["power_w"], visibility
        ),
        "split_otherwise": slices.disagreement(gpu, current.reading),
        "now": time.time(),
    }


def _scope(gpu: Gpu) -> Scope:
    return Scope(ScopeKind.GPU, f"{gpu.node.name}/{gpu.index}")


_views = Views("gpu", _gpu, _now, _timeline, happenings.of_gpu, _scope)


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, gpu_id: int) -> HttpResponse:
    """The state of one GPU, and its history."""
    return _views.page(request, gpu_id)


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest, gpu_id: int) -> HttpResponse:
    """The answer and the latest reading, for htmx."""
    return _views.panel(request, gpu_id)


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def table(request: HttpRequest, gpu_id: int) -> HttpResponse:
    """Least, mean and greatest values of the range, for htmx."""
    return _views.table(request, gpu_id)


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def events(request: HttpRequest, gpu_id: int) -> HttpResponse:
    """The events in the range, for htmx."""
    return _views.events(request, gpu_id)
