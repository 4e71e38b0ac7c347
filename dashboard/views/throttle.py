"""The Throttle events page, and its live panel."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts import visibility
from accounts.cost import dear
from accounts.decorators import requires
from accounts.roles import Capability
from accounts.visibility import Visibility
from dashboard import causes, exports, panels, throttle_groups, throttling
from dashboard.causes import CAUSES
from dashboard.throttle_groups import By
from dashboard.throttling import Filters
from fleet.models import Site
from telemetry.models import ThrottleEvent
from telemetry.throttle.rules import PROGRESS_S, Severity

__all__ = ["page", "panel"]

_PANEL = "dashboard/panels/throttle_events.html"
_PAGE_SIZE = 50


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time, the site or the cause")
def page(request: HttpRequest) -> HttpResponse:
    """The GPUs that throttle now, with causes, and past events."""
    filters = throttling.read(request.GET.dict(), time.time())
    drawn = _panel(request, filters)
    html, _ = panels.draw(request, *drawn)
    context = {
        "now": drawn[-1]["now"],
        "filters": filters,
        "picker": filters.picker,
        "causes": list(CAUSES.values()),
        "classes": ThrottleEvent.Class.values,
        "severities": [severity.token for severity in Severity],
        "sites": Site.objects.values_list("name", flat=True),
        "panel": html,
    }
    return render(
        request, "dashboard/throttle_events.html", context, status=400 if filters.error else 200
    )


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Answer, timeline and table, for htmx."""
    filters = throttling.read(request.GET.dict(), time.time())
    template, url, params, context = _panel(request, filters)
    return panels.answer(request, template, url, params, {**context, "oob": True})


def _panel(
    request: HttpRequest, filters: Filters
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    shown = exports.page_of(_listed(filters), _PAGE_SIZE, request.GET.get("page"))
    params = {**filters.params, **({"page": str(shown.number)} if shown.number > 1 else {})}
    now = time.time()
    rows = throttling.timeline(filters)
    context = {
        "filters": filters,
        "now": throttling.throttling_now(filters),
        "timeline": rows,
        "legend": [CAUSES[cause] for cause in sorted({c for row in rows for c in row.causes})],
        "span": filters.picker.span,
        "middle": (filters.picker.span.start + filters.picker.span.end) / 2,
        "shown": shown,
        "rows": _rows(list(shown), filters, visibility.of(request), now),
        "choices": list(By),
        "any_ever": bool(shown) or ThrottleEvent.objects.exists(),
        "query": filters.params,
    }
    return _PANEL, reverse("live-throttle-events"), params, context


def _listed(filters: Filters) -> QuerySet[ThrottleEvent, Any]:
    events = throttling.in_range(filters)
    if filters.by == By.EVENT:
        return throttling.one_by_one(events)
    return throttle_groups.by_cause_and_place(events, filters.by)


def _rows(found: list[Any], filters: Filters, seen: Visibility, now: float) -> list[dict[str, Any]]:
    if filters.by != By.EVENT:
        return [throttle_groups.row_of(each, filters.by, filters.params) for each in found]
    jobs = seen.shown([event.job.name if event.job else "" for event in found])
    return [_row(event, job, now) for event, job in zip(found, jobs, strict=True)]


def _row(event: ThrottleEvent, job: str, now: float) -> dict[str, Any]:
    end = now if event.closed_at is None else event.closed_at.timestamp()
    # It is written down again within that time while its GPU is heard.
    silent_after_s = 2 * PROGRESS_S + settings.STALE_AFTER_S
    return {
        "event": event,
        "job": job,
        "cause": causes.of(event.cause),
        "lasted_s": end - event.opened_at.timestamp(),
        "silent": event.closed_at is None and now - event.updated_at.timestamp() > silent_after_s,
    }
