"""The pages of service levels, and their live panels."""

from __future__ import annotations

from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from admission.jobs.models import Job
from admission.slos import measuring
from admission.slos.document import Measure
from admission.slos.models import Slo
from dashboard import exports, panels, slos

__all__ = ["detail", "detail_panel", "page", "panel"]

_LIST, _ONE = "dashboard/panels/slos.html", "dashboard/panels/slos_one.html"
_PAGE_SIZE = 50
_VERDICTS = {"": "all", "bad": "late", "good": "in time"}


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """Each objective with its budget."""
    drawn = _listed()
    html, _ = panels.draw(request, *drawn)
    return render(request, "dashboard/slos.html", {**drawn[-1], "panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Answer and objectives, for htmx."""
    template, url, params, context = _listed()
    return panels.answer(request, template, url, params, {**context, "oob": True})


def _listed() -> tuple[str, str, dict[str, str], dict[str, Any]]:
    rows = slos.rows(measuring.statuses(timezone.now()))
    idle = sum(not row.status.health.tally.events for row in rows)
    context = {
        "rows": rows,
        "wrong": [row for row in rows if row.is_wrong],
        "is_idle": idle == len(rows),
        "is_measured": any(row.status.slo.judged_at for row in rows),
    }
    return _LIST, reverse("live-slos"), {}, context


@require_safe
@requires(Capability.VIEW_FLEET)
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """One objective: its status, when events were late, and which."""
    slo = get_object_or_404(Slo.objects.active(), name=name)
    drawn = _one(request, slo)
    html, _ = panels.draw(request, *drawn)
    status = drawn[-1]["row"].status
    context = {
        **drawn[-1],
        "panel": html,
        "lines": slo.text.splitlines(),
        "held": slos.held(status.objective, timezone.now()),
    }
    return render(request, "dashboard/slos_one.html", context)


@require_safe
@requires(Capability.VIEW_FLEET)
def detail_panel(request: HttpRequest, name: str) -> HttpResponse:
    """The status of one objective, for htmx."""
    slo = get_object_or_404(Slo.objects.active(), name=name)
    return panels.answer(request, *_one(request, slo))


def _one(request: HttpRequest, slo: Slo) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    user, now = cast(User, request.user), timezone.now()
    verdict = request.GET.get("show", "")
    verdict = verdict if verdict in _VERDICTS else ""
    (status,) = measuring.statuses(now, [slo])
    visible = slo.judgments.visible_to(user)
    chosen = visible.filter(is_good=verdict == "good") if verdict else visible
    shown = exports.page_of(chosen.order_by("-at", "-id"), _PAGE_SIZE, request.GET.get("page"))
    query = {"show": verdict} if verdict else {}
    context = {
        "row": slos.Row(status),
        "health": status.health,
        "objective": status.objective,
        "is_loss": status.objective.measure is Measure.CROSS_SITE_LOSS,
        "slo": slo,
        "chart": slos.chart(status, now),
        "show": verdict,
        "shows": _VERDICTS.items(),
        "shown": shown,
        "known_jobs": set(
            Job.objects.visible_to(user)
            .filter(name__in=[each.job for each in shown])
            .values_list("name", flat=True)
        ),
        "query": query,
    }
    params = {**query, **({"page": str(shown.number)} if shown.number > 1 else {})}
    return _ONE, reverse("live-slo", args=[slo.name]), params, context
