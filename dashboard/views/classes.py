"""The page of scheduling classes and projects, and its live panel."""

from __future__ import annotations

import time
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from dashboard import classes, panels
from fleet import snapshot

__all__ = ["page", "panel"]

_PANEL = "dashboard/panels/classes.html"


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The classes and projects with their limits and their use."""
    html, _ = panels.draw(request, *_drawn(request))
    return render(request, "dashboard/classes.html", {"panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Classes and projects, for htmx."""
    return panels.answer(request, *_drawn(request))


def _drawn(request: HttpRequest) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    user, fleet = cast(User, request.user), snapshot.current()
    policy = classes.policy_in_force()
    cards = classes.cards(fleet, policy.grants)
    context = {
        "cards": cards,
        "capped": [card for card in cards if card.at_cap],
        "projects": classes.projects(user, fleet, time.time(), policy.shares),
        "policy": policy,
        "may_edit": user.can(Capability.EDIT_POLICIES),
    }
    return _PANEL, reverse("live-classes"), {}, context
