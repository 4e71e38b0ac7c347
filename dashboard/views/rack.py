"""The Rack page, and its live panel."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from accounts.decorators import requires
from accounts.roles import Capability
from dashboard import conditional, controller, racks, ranges, state
from dashboard.racks import GPU_LEGENDS, GPU_METRICS
from dashboard.state import View
from dashboard.svg.rack import elevation
from dashboard.timeline import Timeline
from dashboard.views import place
from fleet.models import Meter
from policies.scopes import Scope, ScopeKind
from telemetry.models import ThrottleEvent
from telemetry.series import Kind

__all__ = ["page", "panel"]

_EVENTS = 20
#: So many of its meters are drawn.
_METERS = 4


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, rack_id: int) -> HttpResponse:
    """One rack: its draw against its budget, node by node."""
    view, row = _shown(rack_id)
    timeline = _timeline(request, rack_id)
    scope = Scope(ScopeKind.RACK, str(view.fleet.racks.paths[row]))
    context = {
        **_context(view, row, _metric(request)),
        **place.hub_of(request, scope),
        **place.chart_of(request, scope, timeline),
    }
    status = 400 if timeline.picker.error else 200
    return render(request, "dashboard/rack.html", context, status=status)


def _timeline(request: HttpRequest, rack_id: int) -> Timeline:
    """Return the chart of a rack and of its own meters. One query."""
    meters = dict(Meter.objects.filter(rack=rack_id).values_list("pk", "name")[:_METERS])
    return Timeline(
        picker=ranges.read(request.GET.dict(), time.time(), keep=("metric",)),
        sources=((Kind.RACK, rack_id), *((Kind.METER, meter) for meter in meters)),
        events="",
        name=f"rack-{rack_id}",
        limits_of="rack-panel",
        meters=meters,
    )


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest, rack_id: int) -> HttpResponse:
    """Everything on the page but the chart, for htmx. Made once for all viewers."""
    (view, row), metric = _shown(rack_id), _metric(request)

    def make() -> str:
        return render_to_string(
            "dashboard/panels/rack.html", {**_context(view, row, metric), "oob": True}
        )

    return conditional.panel_of(request, view, ("rack-panel", rack_id, metric), make)


def _shown(rack_id: int) -> tuple[View, int]:
    """Return the view, and the row of the rack."""
    view, row = state.having(lambda fleet: fleet.racks.index_by_id.get(rack_id))
    if row is None:
        raise Http404(f"no rack {rack_id}")
    return view, row


def _metric(request: HttpRequest) -> str:
    name = request.GET.get("metric", "")
    return name if name in GPU_METRICS else racks.DEFAULT_GPU_METRIC


def _context(view: View, row: int, metric: str) -> dict[str, Any]:
    rack = racks.rack_now(view, row, metric, settings.STALE_AFTER_S)
    events = (
        ThrottleEvent.objects.open()
        .filter(gpu__node__rack_id=rack.id)
        .select_related("gpu__node")
        .order_by("-severity", "opened_at")
    )
    return {
        "version": view.version,
        "now": view.now,
        "rack": rack,
        "causes": racks.throttle_causes(view, row),
        "elevation": elevation(rack),
        "controller": controller.of_scopes(controller.above_rack(view.fleet, row)),
        "metric": metric,
        "metrics": GPU_METRICS,
        "legend": GPU_LEGENDS[metric],
        "events": list(events[:_EVENTS]),
        "stale_after_s": settings.STALE_AFTER_S,
    }
