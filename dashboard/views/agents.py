"""The Agents page, its live panel, and the actions on an agent's token."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.db.models import Case, Count, IntegerField, Min, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from dashboard import exports, panels
from telemetry import enrollment
from telemetry.models import Agent, AgentQuerySet, AgentState, state_condition

__all__ = ["page", "panel", "revoke", "rotate"]

_PANEL = "dashboard/panels/agents.html"
_PAGE_SIZE = 50
#: A clock that is off by more than this puts readings where they do not belong, s.
_MOST_SKEW_S = 2.0
#: How long an old token may go on beside a new one, s.
_GRACES = {0: "within seconds", 3600: "in an hour", 24 * 3600: "in a day"}
#: In this order they ask for attention.
_ORDER = (AgentState.STALE, AgentState.NEVER, AgentState.LIVE, AgentState.REVOKED)


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The agents that push telemetry, with their state."""
    drawn = _panel(request)
    html, _ = panels.draw(request, *drawn)
    context = {**drawn[-1], "panel": html, "any": Agent.objects.exists()}
    return render(request, "dashboard/agents.html", context)


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Answer and table, for htmx."""
    template, url, params, context = _panel(request)
    return panels.answer(request, template, url, params, {**context, "oob": True})


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.MANAGE_AGENTS)
def rotate(request: HttpRequest, agent_id: int) -> HttpResponse:
    """Ask, then give the agent a new token and show it, this once."""
    agent = get_object_or_404(Agent, pk=agent_id)
    if request.method != "POST":
        context = {"agent": agent, "graces": _GRACES.items()}
        return render(request, "dashboard/agent_rotate.html", context)
    given = request.POST.get("grace_s", "0")
    grace_s = int(given) if given in map(str, _GRACES) else 0
    user = cast(User, request.user)
    token = enrollment.rotate(user, agent, grace=timedelta(seconds=grace_s))
    return render(request, "dashboard/agent_token.html", {"agent": agent, "token": token})


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.MANAGE_AGENTS)
def revoke(request: HttpRequest, agent_id: int) -> HttpResponse:
    """Ask, then end the agent's token."""
    agent = get_object_or_404(Agent, pk=agent_id)
    if request.method != "POST":
        return render(request, "dashboard/agent_revoke.html", {"agent": agent})
    enrollment.revoke(cast(User, request.user), agent)
    messages.success(request, f"The token of {agent.name} is revoked.")
    return redirect("agents")


def _state(request: HttpRequest) -> AgentState | None:
    text = request.GET.get("state", "")
    return AgentState(text) if text in AgentState.values else None


def _search(request: HttpRequest) -> str:
    return request.GET.get("search", "").replace("\0", "").strip()[:200]


def _panel(request: HttpRequest) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    now = datetime.fromtimestamp(time.time(), UTC)
    state, search = _state(request), _search(request)
    agents = Agent.objects.search(search) if search else Agent.objects.all()
    counts = agents.count_by_state(now, settings.STALE_AFTER_S)
    if state is not None:
        agents = agents.in_state(state, now, settings.STALE_AFTER_S)
    shown = exports.page_of(_ordered(agents, now), _PAGE_SIZE, request.GET.get("page"))
    filters = {name: v for name, v in (("state", state), ("search", search)) if v}
    params = {**filters, **({"page": str(shown.number)} if shown.number > 1 else {})}
    context = {
        "counts": [(each, counts[each]) for each in _ORDER],
        "by_state": {each.value: counts[each] for each in _ORDER},
        "total": sum(counts.values()),
        "state": state,
        "search": search,
        "filters": filters,
        "shown": shown,
        "rows": [_row(agent, now) for agent in shown],
        "may_manage": cast(User, request.user).can(Capability.MANAGE_AGENTS),
        "stale_after_s": settings.STALE_AFTER_S,
    }
    return _PANEL, reverse("live-agents"), params, context


def _ordered(agents: AgentQuerySet, now: datetime) -> AgentQuerySet:
    stale_before = now - timedelta(seconds=settings.STALE_AFTER_S)
    rank = Case(
        *(
            When(state_condition(state, stale_before), then=Value(place))
            for place, state in enumerate(_ORDER)
        ),
        output_field=IntegerField(),
    )
    scoped = agents.annotate(
        rank=rank, node_count=Count("nodes", distinct=True), first_node=Min("nodes__name")
    )
    return scoped.prefetch_related("sites").order_by("rank", "name")


def _row(agent: Agent, now: datetime) -> dict[str, Any]:
    seen = agent.last_seen_at
    return {
        "agent": agent,
        "state": agent.state(now, settings.STALE_AFTER_S),
        "age_s": None if seen is None else (now - seen).total_seconds(),
        "skewed": agent.skew_s is not None and abs(agent.skew_s) > _MOST_SKEW_S,
    }
