"""The Restrictions pages: those in force, those that wait for a person, and the actions on them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from dashboard import conditions, controller, exports, panels, restrictions
from dashboard.evidence import facts
from dashboard.restriction_forms import (
    ApproveForm,
    BreakerForm,
    ExtendForm,
    IssueForm,
    ReasonForm,
)
from dashboard.restrictions import Narrowed
from dashboard.views import place
from fleet import snapshot
from policies.restrictions import actions, store, visible
from policies.restrictions.kinds import KINDS, BadRestriction, RestrictionKind
from policies.restrictions.models import FleetBreaker, Restriction
from policies.restrictions.strictest import InForce

__all__ = [
    "approve",
    "breaker",
    "detail",
    "detail_panel",
    "extend",
    "issue",
    "lift",
    "page",
    "panel",
    "refuse",
]

_PANEL = "dashboard/panels/restrictions.html"
_DETAIL = "dashboard/panels/restriction.html"
_PAGE_SIZE = 50
#: Of what waits, of sites and of what is over, the first page shows so many.
_FEW = 10
_MOST_WAITING = 100


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The restrictions in force: by whom, until when, and with which effect."""
    drawn = _panel(request)
    html, _ = panels.draw(request, *drawn)
    return render(request, "dashboard/restrictions.html", {**drawn[-1], "panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """All of it but the filters, for htmx."""
    template, url, params, context = _panel(request)
    return panels.answer(request, template, url, params, {**context, "oob": True})


@require_safe
@requires(Capability.VIEW_FLEET)
def detail(request: HttpRequest, restriction_id: int) -> HttpResponse:
    """One restriction, from issue to verdict."""
    drawn = _detail(request, restriction_id)
    html, _ = panels.draw(request, *drawn)
    hub = place.hub_if_any(request, drawn[-1]["row"].scope)
    return render(request, "dashboard/restriction.html", {**drawn[-1], "panel": html, **hub})


@require_safe
@requires(Capability.VIEW_FLEET)
def detail_panel(request: HttpRequest, restriction_id: int) -> HttpResponse:
    """All of one restriction's page, for htmx."""
    return panels.answer(request, *_detail(request, restriction_id))


# --- What people do ------------------------------------------------------------------------------


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
def issue(request: HttpRequest) -> HttpResponse:
    """Restrict something by hand, with an end."""
    if request.method != "POST":
        return _issue_page(request, IssueForm(initial=request.GET.dict()))
    form = IssueForm(request.POST)
    if not form.is_valid():
        return _issue_page(request, form, status=400)
    user, now = cast(User, request.user), timezone.now()
    try:
        row = actions.issue(user, form.wanted(actions.owner_of(user), now), now=now)
    except BadRestriction as exc:
        form.refuse(exc)
        return _issue_page(request, form, status=400)
    except actions.Conflict as exc:
        form.add_error(None, restrictions.sentence(str(exc)))
        return _issue_page(request, form, status=409)
    messages.success(request, f"Restriction {row.pk} is in force.")
    return redirect("restriction", row.pk)


def _issue_page(request: HttpRequest, form: IssueForm, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "kinds": [
            (kind, KINDS[kind], ", ".join(sorted(s.replace("_", " ") for s in KINDS[kind].scopes)))
            for kind in KINDS
        ],
        "breaker": FleetBreaker.current(),
        "sites": snapshot.current().sites.names.tolist(),
    }
    return render(request, "dashboard/restriction_issue.html", context, status=status)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
def extend(request: HttpRequest, restriction_id: int) -> HttpResponse:
    """Ask until when, then draw out the lease."""

    def act(user: User, form: ExtendForm, now: datetime) -> Restriction:
        return actions.extend(user, restriction_id, expires_at=form.expires_at(now), now=now)

    return _decide(request, restriction_id, "extend", ExtendForm, act)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.RUN_PLAYBOOKS)
def lift(request: HttpRequest, restriction_id: int) -> HttpResponse:
    """Ask why, then end a restriction."""

    def act(user: User, form: ReasonForm, now: datetime) -> Restriction:
        given = form.cleaned_data
        return actions.lift(
            user, restriction_id, why=given["reason"], version=given["version"], now=now
        )

    return _decide(request, restriction_id, "lift", ReasonForm, act)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.RUN_PLAYBOOKS)
def approve(request: HttpRequest, restriction_id: int) -> HttpResponse:
    """Ask, then bring a restriction that waits for a person into force."""

    def act(user: User, form: ApproveForm, now: datetime) -> Restriction:
        return actions.approve(user, restriction_id, version=form.cleaned_data["version"], now=now)

    return _decide(request, restriction_id, "approve", ApproveForm, act)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.RUN_PLAYBOOKS)
def refuse(request: HttpRequest, restriction_id: int) -> HttpResponse:
    """Ask why, then refuse a restriction that waits for a person."""

    def act(user: User, form: ReasonForm, now: datetime) -> Restriction:
        given = form.cleaned_data
        return actions.refuse(
            user, restriction_id, why=given["reason"], version=given["version"], now=now
        )

    return _decide(request, restriction_id, "refuse", ReasonForm, act)


_DONE = {
    "extend": "Restriction {} is extended.",
    "lift": "Restriction {} is lifted.",
    "approve": "Restriction {} is in force.",
    "refuse": "Restriction {} is refused.",
}


def _decide(
    request: HttpRequest,
    restriction_id: int,
    verb: str,
    form_of: type[Any],
    act: Callable[[User, Any, datetime], Restriction],
) -> HttpResponse:
    """Show a restriction to decide on, and act once the form is sent."""
    row = _seen(restriction_id, Visibility(cast(User, request.user)))
    if request.method != "POST":
        return _decision(request, row, verb, form_of(initial={"version": row.version}))
    form = form_of(request.POST)
    if not form.is_valid():
        return _decision(request, row, verb, form, status=400)
    try:
        act(cast(User, request.user), form, timezone.now())
    except BadRestriction as exc:
        form.refuse(exc)
        return _decision(request, row, verb, form, status=400)
    except actions.Conflict as exc:
        # The next attempt is about what is shown then.
        form.data = {**form.data.dict(), "version": row.version}
        form.add_error(None, restrictions.sentence(str(exc)))
        return _decision(request, row, verb, form, status=409)
    messages.success(request, _DONE[verb].format(row.pk))
    return redirect("restriction", row.pk)


def _decision(
    request: HttpRequest, row: Restriction, verb: str, form: forms.Form, status: int = 200
) -> HttpResponse:
    context = {
        "row": row,
        "verb": verb,
        "form": form,
        "what": restrictions.what(row.kind, row.value),
        "scope": restrictions.scope_words(row.scope),
        "held": restrictions.value_words(row.kind, row.pending_value),
        "value": restrictions.value_words(row.kind, row.value),
        "gpus": restrictions.reach(snapshot.current(), row.scope),
        "breaker": FleetBreaker.current(),
    }
    return render(request, "dashboard/restriction_decide.html", context, status=status)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.RUN_PLAYBOOKS)
def breaker(request: HttpRequest) -> HttpResponse:
    """Ask why, then open or close the fleet breaker."""
    found = FleetBreaker.current()
    # Of two who press at once the second does what the first did, and not the opposite.
    is_open = request.POST.get("open", "" if found.is_open else "1") == "1"
    form = BreakerForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        reason = form.cleaned_data["reason"]
        user = cast(User, request.user)
        actions.throw_breaker(user, is_open=is_open, reason=reason, now=timezone.now())
        messages.success(request, f"The fleet breaker is {'open' if is_open else 'closed'}.")
        return redirect("restrictions")
    context = {"breaker": found, "form": form, "opens": is_open}
    status = 400 if request.method == "POST" else 200
    return render(request, "dashboard/restriction_breaker.html", context, status=status)


# --- What is shown -------------------------------------------------------------------------------


def _panel(request: HttpRequest) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    now, fleet = timezone.now(), snapshot.current()
    chosen = restrictions.narrowed(request.GET.dict(), cast(User, request.user))
    show = "history" if request.GET.get("show") == "history" else ""
    query = {**chosen.params, **({"show": show} if show else {})}
    visibility = Visibility(cast(User, request.user))
    in_force = visible.in_force(store.in_force(now), visibility)
    context: dict[str, Any] = {
        "now": now,
        "chosen": chosen,
        "show": show,
        "query": query,
        "total": len(in_force.restrictions),
        "soonest": min((each.expires_at for each in in_force.restrictions), default=None),
        "breaker": FleetBreaker.current(),
        "most_of_site": settings.POLICY_MAX_SITE_SHARE,
        **_may(request),
    }
    if show:
        context |= _history(request, chosen, visibility, now)
    else:
        context |= _in_force(request, chosen, in_force, visibility)
        context["announced"] = restrictions.announced(
            fleet, [each for each in in_force.announced if chosen.takes(each)]
        )
        context |= _waiting(chosen, visibility, now)
        context["taken"] = restrictions.taken(fleet, now)[: exports.most(_FEW)]
        context["over"] = visible.rows(
            _over(chosen, visibility, now)[: exports.most(_FEW)], visibility
        )
    shown = context["shown"]
    params = {**query, **({"page": str(shown.number)} if shown.number > 1 else {})}
    return _PANEL, reverse("live-restrictions"), params, context


def _may(request: HttpRequest) -> dict[str, bool]:
    user = cast(User, request.user)
    return {
        "may_issue": user.can(Capability.EDIT_POLICIES),
        "may_decide": user.can(Capability.RUN_PLAYBOOKS),
    }


def _in_force(
    request: HttpRequest, chosen: Narrowed, in_force: InForce, visibility: Visibility
) -> dict[str, Any]:
    fleet, found = snapshot.current(), restrictions.effective(in_force)
    keys = [key for key, each in found.items() if any(map(chosen.takes, each.all))]
    shown = exports.page_of(keys, _PAGE_SIZE, request.GET.get("page"))
    told = restrictions.told_of((each.id for key in shown for each in found[key].all), visibility)
    return {
        "groups": [restrictions.group(fleet, found, key, told) for key in shown],
        "shown": shown,
        "scopes": len({scope for _, scope in found}),
    }


def _waiting(chosen: Narrowed, visibility: Visibility, now: datetime) -> dict[str, Any]:
    seen = Restriction.objects.waiting(now).seen_by(visibility)
    rows = seen.filter(chosen.condition(visibility)).order_by("issued_at", "id")
    fleet = snapshot.current()
    return {
        "waiting": [
            {
                "row": row,
                "asked": restrictions.value_words(
                    row.kind, row.value if row.pending_value is None else row.pending_value
                ),
                "has": "" if row.pending_value is None else restrictions.value_words(
                    row.kind, row.value
                ),
                "scope": restrictions.scope_words(row.scope),
                "href": conditions.place_url(fleet, row.scope),
                "owner_url": restrictions.owner_url(row.owner),
            }
            for row in visible.rows(rows[: exports.most(_MOST_WAITING)], visibility)
        ],
        "waiting_count": rows.count(),
    }  # fmt: skip


def _over(chosen: Narrowed, visibility: Visibility, now: datetime) -> Any:
    live = Restriction.objects.live().filter(expires_at__gt=now).exclude(
        state=Restriction.State.REFUSED
    )  # fmt: skip
    over = Restriction.objects.exclude(pk__in=live.values("pk")).seen_by(visibility)
    rows = over.filter(chosen.condition(visibility))
    return rows.order_by("-issued_at", "-id")


def _history(
    request: HttpRequest, chosen: Narrowed, visibility: Visibility, now: datetime
) -> dict[str, Any]:
    shown = exports.page_of(_over(chosen, visibility, now), _PAGE_SIZE, request.GET.get("page"))
    waiting = Restriction.objects.waiting(now).seen_by(visibility)
    return {
        "over": visible.rows(shown, visibility), "shown": shown, "waiting_count": waiting.count()
    }  # fmt: skip


def _detail(
    request: HttpRequest, restriction_id: int
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    visibility = Visibility(cast(User, request.user))
    row = _seen(restriction_id, visibility)
    now, fleet = timezone.now(), snapshot.current()
    events = visible.events(row.events.order_by("id"), visibility)
    is_standing = row.state == Restriction.State.IN_FORCE and row.expires_at > now
    is_in_force = is_standing and (row.starts_at is None or row.starts_at <= now)
    told = [e for e in events if e.cycle == row.cycle and e.kind in e.ONCE]
    cost, not_known = restrictions.cost(row, cast(User, request.user), now)
    is_draining = is_in_force and row.kind == RestrictionKind.DRAIN
    left = restrictions.remaining(row, visibility) if is_draining else None
    context = {
        "row": row,
        "now": now,
        "what": restrictions.what(row.kind, row.value),
        "asked": restrictions.value_words(row.kind, row.pending_value),
        "scope": restrictions.scope_words(row.scope),
        "href": restrictions.scope_url(fleet, row.scope),
        "owner_url": restrictions.owner_url(row.owner),
        "help": KINDS[RestrictionKind(row.kind)].help,
        "gpus": restrictions.reach(fleet, row.scope),
        "is_in_force": is_in_force,
        "controller": controller.of_budget(row.scope)
        if is_in_force and row.kind == RestrictionKind.POWER_BUDGET_W
        else [],
        "remaining": left,
        "still": left.jobs[: exports.most(_PAGE_SIZE)] if left else (),
        "is_announced": is_standing and not is_in_force,
        "is_waiting": (
            row.state == Restriction.State.PENDING_APPROVAL or row.pending_value is not None
        ),
        "is_live": row.state in Restriction.LIVE and row.expires_at > now,
        "steps": restrictions.steps(row, events, now),
        "told": told[-1].text if told else "",
        "outcome": restrictions.outcome(row, events),
        "measures": restrictions.measures(events, row.cycle),
        "cost": cost,
        "cost_not_known": not_known,
        "events": events,
        "evidence": facts(row.evidence) if isinstance(row.evidence, dict) else [],
        "beside": _beside(row, visibility, now) if is_in_force else None,
        **_may(request),
    }
    return _DETAIL, reverse("live-restriction", args=[row.pk]), {}, context


def _seen(restriction_id: int, visibility: Visibility) -> Restriction:
    found = get_object_or_404(Restriction.objects.seen_by(visibility), pk=restriction_id)
    return visible.rows([found], visibility)[0]


def _beside(row: Restriction, visibility: Visibility, now: datetime) -> Any:
    """Return the others of this kind on this scope, and which of them counts."""
    found = restrictions.effective(visible.in_force(store.in_force(now), visibility))
    key = (RestrictionKind(row.kind), row.scope)
    if key not in found:
        return None
    return restrictions.group(snapshot.current(), found, key, {})
