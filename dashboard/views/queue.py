"""The Queue page, and its live panel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from django.core.paginator import Page
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from admission.core.reasons import ReasonToken
from admission.jobs import catalog
from admission.jobs.models import Attempt, Job, Project
from admission.queue import queue_status
from dashboard import exports, fixes, panels, queue
from dashboard.queue import Filters, Now, QueueRow, RunRow, Tab
from fleet import snapshot
from fleet.cache import KeyedCache
from fleet.models import Site

__all__ = ["find_fixes", "page", "panel", "shared"]

_PANEL = "dashboard/panels/queue.html"
_PAGE_SIZE = 100
_LABELS = {
    Tab.QUEUED: "waiting",
    Tab.WAITING: "behind others",
    Tab.RUNNING: "running",
    Tab.ENDED: "ended",
}

#: Counts and order of the list: alike for all who look, s.
shared = KeyedCache(2.0)


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The phases that wait, with reasons, and when they are likely to begin."""
    filters = queue.read(request.GET.dict())
    drawn = _listed(request, filters)
    html, _ = panels.draw(request, *drawn)
    user = cast(User, request.user)
    context = {
        **drawn[-1],
        "panel": html,
        "tokens": [token.value for token in ReasonToken],
        "classes": sorted(catalog.current()),
        "bookings": queue.booked(user, snapshot.current(), timezone.now()),
        "projects": Project.objects.visible_to(user).values_list("name", flat=True),
        "sites": Site.objects.values_list("name", flat=True),
    }
    return render(request, "dashboard/queue.html", context, status=400 if filters.error else 200)


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Answer, reasons and list, for htmx."""
    template, url, params, context = _listed(request, queue.read(request.GET.dict()))
    return panels.answer(request, template, url, params, {**context, "oob": True})


@require_safe
@requires(Capability.VIEW_FLEET)
def find_fixes(request: HttpRequest) -> HttpResponse:
    """Look for fixes of the first phases of a page; the panel then asks again."""
    rows = _listed(request, queue.read(request.GET.dict()))[-1]["rows"]
    fixes.find([row.name for row in rows[: fixes.ROWS] if isinstance(row, QueueRow) and row.name])
    return HttpResponse(status=204, headers={"HX-Trigger": "headroom:visible"})


def _listed(
    request: HttpRequest, filters: Filters
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    user, at = cast(User, request.user), timezone.now()
    who = user.pk if filters.names_jobs else None
    now: Now = shared.get(("now", filters, who), lambda: queue.current(filters, user))
    cycle = queue_status.read()
    shown, rows = _rows(request, filters, user, cycle)
    params = {**filters.params, **({"page": str(shown.number)} if shown.number > 1 else {})}
    context = {
        "filters": filters,
        "query": filters.params,
        "now": now,
        "tab": filters.state.value,
        "tabs": [(tab.value, _label(tab, now)) for tab in Tab],
        "shown": shown,
        "rows": rows,
        "at": at,
        "cycle": cycle,
        "old_s": queue.age_s(cycle, time.time()),
        "total_gpus": len(snapshot.current().gpus),
        "any_ever": bool(now.total) or Job.objects.exists(),
        "fixes_url": _fixes_url(rows, params),
        "may_submit": user.can(Capability.SUBMIT_JOBS),
    }
    return _PANEL, reverse("live-queue"), params, context


def _label(tab: Tab, now: Now) -> str:
    return f"{_LABELS[tab]} {now.by_tab[tab]:,}" if tab in now.by_tab else _LABELS[tab]


def _rows(
    request: HttpRequest, filters: Filters, user: User, cycle: queue_status.QueueStatus | None
) -> tuple[Page[int] | Page[Attempt], Sequence[QueueRow | RunRow | Attempt]]:
    """Return the page that the URL asks for, and its lines."""
    number = request.GET.get("page")
    if filters.state is Tab.ENDED:
        ended = exports.page_of(queue.ended(filters, user, timezone.now()), _PAGE_SIZE, number)
        return ended, Visibility(user).veiled(ended, "why")
    who = user.pk if filters.names_jobs else None
    key = ("ids", filters, who, cycle.cycle if cycle else None)
    ids: list[int] = shared.get(key, lambda: queue.listed(filters, user))
    shown = exports.page_of(ids, _PAGE_SIZE, number)
    if filters.state is Tab.RUNNING:
        return shown, queue.run_rows(list(shown), Visibility(user))
    return shown, queue.queue_rows(list(shown), Visibility(user), snapshot.current())


def _fixes_url(rows: Sequence[object], params: dict[str, str]) -> str:
    """Return where fixes of the first rows are found; empty where none is due."""
    first = [row for row in rows[: fixes.ROWS] if isinstance(row, QueueRow)]
    if not any(row.fix_is_due for row in first):
        return ""
    return f"{reverse('live-queue-fixes')}?{urlencode(params)}"
