"""The pages of incidents, their live panels, and the actions on incidents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from accounts.decorators import requires
from accounts.edge.parameters import BIGGEST_ID, whole_number
from accounts.models import User
from accounts.roles import CAPABILITIES, Capability
from accounts.visibility import Visibility
from dashboard import controller, exports, incidents, panels, playbooks, ranges
from dashboard.incidents import Filters
from dashboard.timeline import Figure
from fleet import snapshot
from fleet.models import Site
from policies.firings import Severity
from policies.incidents import actions, visible
from policies.incidents.models import Incident, Silence
from policies.rules.models import RuleVersion
from policies.timeline import reading

__all__ = ["act", "end_silence", "incident", "incident_panel", "page", "panel"]

_LIST = "dashboard/panels/incidents.html"
_ONE = "dashboard/panels/incidents_one.html"
#: Of what the controller does about an incident so many budgets are told of; and of so many of its
#: firings it is looked for.
_MOST_BUDGETS, _MOST_FIRINGS = 5, 1000
_PAGE_SIZE = 50
#: Names to choose an assignee from.
_MOST_PEOPLE = 500
_RUNNERS = [role for role, can in CAPABILITIES.items() if Capability.RUN_PLAYBOOKS in can]


# --- The list ------------------------------------------------------------------------------------


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The incidents, the open ones first."""
    filters = incidents.read(request.GET.dict(), request.user.get_username())
    drawn = _listed(request, filters)
    html, _ = panels.draw(request, *drawn)
    context = {
        **drawn[-1],
        "severities": [each.value for each in Severity],
        "sites": Site.objects.values_list("name", flat=True),
        "panel": html,
    }
    status = 400 if filters.error else 200
    return render(request, "dashboard/incidents.html", context, status=status)


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Answer, incidents and silences, for htmx."""
    drawn = _listed(request, incidents.read(request.GET.dict(), request.user.get_username()))
    template, url, params, context = drawn
    return panels.answer(request, template, url, params, {**context, "oob": True})


def _listed(
    request: HttpRequest, filters: Filters
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    now, visibility = timezone.now(), Visibility(cast(User, request.user))
    shown = exports.page_of(
        incidents.listed(filters, visibility), _PAGE_SIZE, request.GET.get("page")
    )
    params = {**filters.params, **({"page": str(shown.number)} if shown.number > 1 else {})}
    context = {
        "filters": filters,
        "query": filters.params,
        "now": incidents.current(filters, visibility, now),
        "states": Incident.State.choices,
        "shown": shown,
        "rows": incidents.rows(shown, visibility),
        "silences": incidents.silences(visibility, now),
        "at": now,
        "may_run": cast(User, request.user).can(Capability.RUN_PLAYBOOKS),
        "any_ever": bool(shown) or Incident.objects.exists(),
    }
    return _LIST, reverse("live-incidents"), params, context


@require_POST
@requires(Capability.RUN_PLAYBOOKS)
def end_silence(request: HttpRequest, silence_id: int) -> HttpResponse:
    """End a silence, so that its incidents notify again."""
    silence = get_object_or_404(Silence, pk=silence_id)
    actions.end_silence(cast(User, request.user), silence, now=timezone.now())
    messages.success(request, f"Silence {silence.pk} is over.")
    return redirect("incidents")


# --- One incident --------------------------------------------------------------------------------


@require_safe
@requires(Capability.VIEW_FLEET)
def incident(request: HttpRequest, number: int) -> HttpResponse:
    """One incident: its timeline, its playbooks, and the possible actions."""
    return _shown(request, _found(request, number), {})


@require_safe
@requires(Capability.VIEW_FLEET)
def incident_panel(request: HttpRequest, number: int) -> HttpResponse:
    """All of one incident that changes, for htmx."""
    template, url, params, context = _one(request, _found(request, number))
    return panels.answer(request, template, url, params, {**context, "oob": True})


def _found(request: HttpRequest, number: int) -> Incident:
    """Return an incident as the reader may see it. Actions read it anew."""
    visibility = Visibility(cast(User, request.user))
    found = Incident.objects.seen_by(visibility).filter(pk=number).first()
    if found is None:
        raise Http404(f"There is no incident INC-{number}.")
    return visible.incidents([found], visibility)[0]


def _one(request: HttpRequest, row: Incident) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    now, fleet, user = timezone.now(), snapshot.current(), cast(User, request.user)
    visibility = Visibility(user)
    found = incidents.members(row, visibility, fleet, now)
    now_is, shown = incidents.with_standing(row, found, visibility, now)
    happened = incidents.entries(row, visibility)
    context = {
        "incident": row,
        "standing": now_is,
        "lasted_s": incidents.lasted_s(row),
        "rule_url": _rule_url(row.rule),
        "members": shown,
        "members_total": row.members.count(),
        "firing": row.members.filter(cleared_at=None, dismissed=False).count(),
        "entries": happened,
        "entries_total": row.timeline.count(),
        "runs": playbooks.runs_of(row.pk, user),
        "controller": [] if row.is_over else _held(row),
        "may_run": user.can(Capability.RUN_PLAYBOOKS),
        "is_over": row.is_over,
        "now": now,
    }
    return _ONE, reverse("live-incident", args=[row.pk]), {}, context


def _held(row: Incident) -> list[controller.Line]:
    """Return what the controller does about an incident: for its own scope, and all that fire."""
    firing = row.members.filter(cleared_at=None, dismissed=False)
    named = firing.order_by("pk").values_list("scope_kind", "scope_name")[:_MOST_FIRINGS]
    scopes = {f"{kind} {name}" for kind, name in named}
    return controller.of_scopes({str(row.scope), *scopes}, most=_MOST_BUDGETS)


def _rule_url(name: str) -> str:
    """Return the page of a rule; empty for one of an external source."""
    known = RuleVersion.objects.filter(name=name).exists()
    return reverse("rule", args=[name]) if known else ""


def _shown(
    request: HttpRequest,
    row: Incident,
    given: Mapping[str, str],
    errors: dict[str, str] | None = None,
) -> HttpResponse:
    drawn = _one(request, row)
    html, _ = panels.draw(request, *drawn)
    timeline = _timeline(request, row)
    context = {
        **drawn[-1],
        "timeline": timeline,
        "picker": timeline.picker,
        "more": max(drawn[-1]["members_total"] - reading.FIRINGS, 0),
        "panel": html,
        "people": _people() if drawn[-1]["may_run"] else [],
        "matchers": given.get("matchers", incidents.suggested_matchers(row)),
        "given": given,
        "errors": errors or {},
    }
    status = 400 if errors or timeline.picker.error else 200
    return render(request, "dashboard/incidents_one.html", context, status=status)


def _timeline(request: HttpRequest, row: Incident) -> Figure:
    """Return the chart of an incident, over all of it or the range that the URL asks for."""
    now = timezone.now()
    life = reading.lived(row, now)
    return Figure(
        ranges.read(request.GET.dict(), now.timestamp(), life=life),
        reverse("incident-figure", args=[row.number]),
        name=row.number,
        heading="What happened, on one axis",
        read=lambda look: reading.figure(
            row, look, snapshot.current(), Visibility(cast(User, request.user))
        ),
    )


def _people() -> list[str]:
    """Return the names of users who may act on an incident."""
    found = User.objects.filter(Q(role__in=_RUNNERS), is_active=True).order_by("username")
    return list(found.values_list("username", flat=True)[:_MOST_PEOPLE])


# --- What people do ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for an action on an incident: by whom, and the form values."""

    user: User
    row: Incident
    given: dict[str, str]
    now: datetime


@require_POST
@requires(Capability.RUN_PLAYBOOKS)
def act(request: HttpRequest, number: int, verb: str) -> HttpResponse:
    """Do one of :data:`_VERBS` with an incident, and show the outcome."""
    do, row = _VERBS.get(verb), _found(request, number)
    if do is None:
        raise Http404(f"An incident cannot be asked to {verb[:40]}.")
    # Postgres refuses NUL in text.
    given = {name: value.replace("\0", "") for name, value in request.POST.dict().items()}
    try:
        said = do(Asked(cast(User, request.user), row, given, timezone.now()))
    except actions.WrongState as error:
        messages.error(request, str(error))
    except ValidationError as error:
        return _shown(request, row, given, _errors(error))
    else:
        messages.success(request, said)
    return redirect("incident", row.pk)


def _errors(error: ValidationError) -> dict[str, str]:
    return {field: " ".join(texts) for field, texts in error.message_dict.items()}


def _acknowledge(ask: Asked) -> str:
    done = actions.acknowledge(ask.user, ask.row, now=ask.now)
    return f"{done.number} is acknowledged by {done.acknowledged_by}: nothing is repeated any more."


def _assign(ask: Asked) -> str:
    assignee = ask.given.get("assignee", "")[:150]
    actions.assign(ask.user, ask.row, assignee, now=ask.now)
    return f"{ask.row.number} is assigned to {assignee or 'nobody'}."


def _take(ask: Asked) -> str:
    return _assign(replace(ask, given={"assignee": ask.user.get_username()}))


def _comment(ask: Asked) -> str:
    text = _text(ask.given, "text", "Say something: the comment is empty.", 10_000)
    actions.comment(ask.user, ask.row, text, now=ask.now)
    return "Your comment is in the timeline."


def _close(ask: Asked) -> str:
    reason = _text(ask.given, "close_reason", "Say why it is closed.", 1000)
    actions.close(ask.user, ask.row, reason, now=ask.now)
    return f"{ask.row.number} is closed. What still fires counts no more until it has cleared once."


def _mute(ask: Asked) -> str:
    member = _member(ask.row, ask.given)
    key = f"-{member.pk}"
    reason = _text(ask.given, f"mute_reason{key}", f"Say why {member.key} is to be quiet.", 500)
    until = _until(ask.given, f"mute_hours{key}", ask.now)
    actions.mute_member(ask.user, member, until, reason, now=ask.now)
    return f"Nobody is told of {member.key} until {until:%Y-%m-%d %H:%M} UTC."


def _hear(ask: Asked) -> str:
    member = _member(ask.row, ask.given)
    actions.mute_member(ask.user, member, None, "", now=ask.now)
    return f"{member.key} is heard again."


def _silence(ask: Asked) -> str:
    lines = [line.strip() for line in ask.given.get("matchers", "").splitlines()]
    expires_at = _until(ask.given, "hours", ask.now)
    reason = _text(ask.given, "reason", "Say why.", 500)
    silence = actions.create_silence(
        ask.user,
        matchers=[line for line in lines if line],
        reason=reason,
        starts_at=ask.now,
        expires_at=expires_at,
        now=ask.now,
    )
    return f"Silence {silence.pk} keeps what matches quiet until {expires_at:%Y-%m-%d %H:%M} UTC."


def _member(row: Incident, given: Mapping[str, str]) -> Any:
    number = whole_number(given.get("member", ""), most=BIGGEST_ID)
    found = None if number is None else row.members.filter(pk=number).first()
    if found is None:
        raise Http404(f"{row.number} has no such member.")
    return found


def _text(given: Mapping[str, str], field: str, missing: str, most: int) -> str:
    text = given.get(field, "").strip()
    if not text:
        raise ValidationError({field: missing})
    if len(text) > most:
        raise ValidationError({field: f"That is too long: at most {most} characters."})
    return text


def _until(given: Mapping[str, str], field: str, now: datetime) -> datetime:
    found = incidents.until(given.get(field, ""), now)
    if found is None or not now < found <= now + actions.MAX_SILENCE:
        most = actions.MAX_SILENCE.days * 24
        raise ValidationError({field: f"Give hours from now, more than 0 and up to {most}."})
    return found


_VERBS: dict[str, Callable[[Asked], str]] = {
    "acknowledge": _acknowledge,
    "assign": _assign,
    "take": _take,
    "comment": _comment,
    "close": _close,
    "mute": _mute,
    "hear": _hear,
    "silence": _silence,
}
