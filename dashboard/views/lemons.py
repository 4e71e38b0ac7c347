"""The Lemons page, and its live panel."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.decorators import requires
from accounts.roles import Capability
from dashboard import exports, lemons, panels
from telemetry.lemons.models import LemonFinding, LemonWatch

__all__ = ["page", "panel"]

_PANEL = "dashboard/panels/lemons.html"
_PAGE_SIZE = 50
_STATES = {"open": "now", "ended": "ended"}


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The GPUs that are worse than their peers."""
    drawn = _panel(request)
    html, _ = panels.draw(request, *drawn)
    return render(request, "dashboard/lemons.html", {**drawn[-1], "panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Answer and table, for htmx."""
    template, url, params, context = _panel(request)
    return panels.answer(request, template, url, params, {**context, "oob": True})


def _panel(request: HttpRequest) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    state = request.GET.get("state", "")
    state = state if state in _STATES else "open"
    found = {each: lemons.listed(ended=each == "ended") for each in _STATES}
    shown = exports.page_of(found[state], _PAGE_SIZE, request.GET.get("page"))
    worst = found["open"].first()
    query = {"state": state} if state != "open" else {}
    params = {**query, **({"page": str(shown.number)} if shown.number > 1 else {})}
    context = {
        "state": state,
        "states": [(each, words, found[each].count()) for each, words in _STATES.items()],
        "shown": shown,
        "lemons": [lemons.lemon(finding) for finding in shown],
        "query": query,
        "count": LemonFinding.objects.open().lemons(),
        "worst": lemons.lemon(worst) if worst else None,
        "until": LemonWatch.objects.values_list("until", flat=True).first(),
    }
    return _PANEL, reverse("live-lemons"), params, context
