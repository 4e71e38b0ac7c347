"""The pages of curtailments: what grids ask of sites, what it would cost, and what was kept."""

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
from accounts.visibility import Visibility
from admission.curtailments.models import Curtailment
from admission.curtailments.seeing import seen
from dashboard import controller, exports, panels
from policies.scopes import Scope, ScopeKind

__all__ = ["detail", "detail_panel", "page", "panel"]

_LIST, _ONE = "dashboard/panels/curtailments.html", "dashboard/panels/curtailment.html"
_PAGE_SIZE = 50
#: States that something is wrong with.
_WRONG = ("late", "missed", "unproven")


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """All curtailments, the newest first."""
    drawn = _listed(request)
    html, _ = panels.draw(request, *drawn)
    return render(request, "dashboard/curtailments.html", {**drawn[-1], "panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """All of the list, for htmx."""
    return panels.answer(request, *_listed(request))


@require_safe
@requires(Capability.VIEW_FLEET)
def detail(request: HttpRequest, curtailment_id: int) -> HttpResponse:
    """One curtailment: asked, answered, held and proven."""
    drawn = _detail(request, curtailment_id)
    html, _ = panels.draw(request, *drawn)
    return render(request, "dashboard/curtailment.html", {**drawn[-1], "panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def detail_panel(request: HttpRequest, curtailment_id: int) -> HttpResponse:
    """All of one curtailment's page, for htmx."""
    return panels.answer(request, *_detail(request, curtailment_id))


def _listed(request: HttpRequest) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    now, visibility = timezone.now(), Visibility(cast(User, request.user))
    shown = exports.page_of(Curtailment.objects.all(), _PAGE_SIZE, request.GET.get("page"))
    rows = visibility.veiled(shown, "reason")
    context = {
        "lines": [(row, state, state in _WRONG) for row in rows for state in [row.state_at(now)]],
        "shown": shown,
        "record": Curtailment.objects.record(),
        "open": Curtailment.objects.open(now).count(),
        "query": {},
        "now": now,
    }
    params = {"page": str(shown.number)} if shown.number > 1 else {}
    return _LIST, reverse("live-curtailments"), params, context


def _detail(
    request: HttpRequest, curtailment_id: int
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    now, visibility = timezone.now(), Visibility(cast(User, request.user))
    found = get_object_or_404(Curtailment, pk=curtailment_id)
    (row,) = visibility.veiled([found], "reason")
    state = row.state_at(now)
    context = {
        "row": row,
        "now": now,
        "state": state,
        "is_wrong": state in _WRONG,
        "controller": controller.of_budget(Scope(ScopeKind.SITE, row.site))
        if state == "active"
        else [],
        "estimate": seen(row.estimate, visibility),
        "result": row.result,
        "given_w": _given_w(row),
        "lasts_s": (row.ends_at - row.starts_at).total_seconds(),
    }
    return _ONE, reverse("live-curtailment", args=[row.pk]), {}, context


def _given_w(row: Curtailment) -> tuple[float, float] | None:
    """Return how much less was drawn than the baseline, and how much less was asked for, W."""
    mean_w = row.result.get("mean_w")
    if row.baseline_w is None or mean_w is None:
        return None
    return row.baseline_w - mean_w, row.baseline_w - row.target_w
