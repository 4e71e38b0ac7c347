"""The pages of playbooks and of their runs, and the actions on a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from accounts.decorators import requires
from accounts.edge.parameters import whole_number
from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from dashboard import panels, playbooks
from dashboard.documents import version_row
from policies.playbooks import plan, runs, visible
from policies.playbooks.document import Playbook, Program
from policies.playbooks.models import PlaybookRun, PlaybookVersion
from policies.playbooks.plan import Plan
from policies.playbooks.versions import PLAYBOOKS
from policies.scopes import MOST_NAME, Scope, ScopeKind

__all__ = ["act", "page", "playbook", "run", "run_panel", "start"]

_RUN = "dashboard/panels/playbooks_run_one.html"
#: Runs that the page of a playbook lists.
_RUNS_SHOWN = 25


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """All playbooks, with the runs under way and those that wait for a person."""
    found = playbooks.listed()
    user = cast(User, request.user)
    every = PlaybookRun.objects.live().seen_by(Visibility(user))
    live = every.select_related("version").prefetch_related("steps")
    shown = playbooks.views(list(live.order_by("-pk")[:_RUNS_SHOWN]), user)
    context = {
        "playbooks": found,
        "active": sum(each.version.state == playbooks.State.ACTIVE for each in found),
        "drafts": sum(each.drafts for each in found),
        "live_total": every.count(),
        "runs": shown,
        "asking": playbooks.waiting_for_people(shown),
    }
    return render(request, "dashboard/playbooks.html", context)


# --- One playbook --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A dry run as the URL asks for it. ``problem`` is its fault, with the way out."""

    kind: str = ""
    scope: str = ""
    inputs: Mapping[str, str] | None = None
    plan: Plan | None = None
    field: str = ""
    problem: str = ""


@require_safe
@requires(Capability.VIEW_FLEET)
def playbook(request: HttpRequest, name: str) -> HttpResponse:
    """One playbook with its versions, its runs, and a dry run."""
    found = list(PlaybookVersion.objects.filter(name=name).order_by("-number"))
    if not found:
        raise Http404(f"There is no playbook {name[:100]}.")
    shown = _chosen(found, request.GET.get("version", ""))
    program = playbooks.program_of(shown)
    asked = _asked(program, request.GET) if program else Asked()
    user = cast(User, request.user)
    visibility = Visibility(user)
    seen = PlaybookRun.objects.seen_by(visibility).filter(playbook=name)
    context = {
        "name": name,
        "plural": "playbooks",
        "versions": [version_row(PLAYBOOKS, each, user) for each in found],
        "shown": shown,
        "playbook": program.playbook if program else None,
        "inputs": _inputs(program.playbook, asked) if program else [],
        "steps": playbooks.step_lines(program) if program else [],
        "asked": asked,
        "runs": visibility.veiled(seen.select_related("version")[:_RUNS_SHOWN], *visible.RUN),
        "live_total": seen.live().count(),
        "may_run": user.can(Capability.RUN_PLAYBOOKS),
        "may_edit": user.can(Capability.EDIT_POLICIES),
    }
    status = 400 if asked.problem else 200
    return render(request, "dashboard/playbooks_one.html", context, status=status)


def _chosen(found: list[PlaybookVersion], number: str) -> PlaybookVersion:
    """Return the version that the URL names, else the active one, else the newest."""
    if number:
        for row in found:
            if str(row.number) == number:
                return row
        raise Http404(f"{found[0].name} has no version {number[:20]}.")
    return next((row for row in found if row.state == playbooks.State.ACTIVE), found[0])


def _asked(program: Program, given: Mapping[str, str]) -> Asked:
    kind, name = given.get("kind", ""), given.get("scope", "").replace("\0", "").strip()[:MOST_NAME]
    inputs = {
        key: given[f"input-{key}"] for key in program.playbook.inputs if f"input-{key}" in given
    }
    asked = Asked(kind, name, inputs)
    if not name:
        return asked
    try:
        scope, numbers = _scope(kind, name), _numbers(inputs)
        runs.check_scope(program, scope)
        chosen = runs.chosen_inputs(program, numbers)
    except runs.BadStart as error:
        problem = f"{error}: {error.hint}" if error.hint else str(error)
        return Asked(kind, name, inputs, field=error.field, problem=problem)
    return Asked(kind, name, inputs, plan.plan(program, scope, chosen, timezone.now()))


def _scope(kind: str, name: str) -> Scope:
    if kind not in [each.value for each in ScopeKind]:
        raise runs.BadStart("scope_kind", f"there is no kind {kind[:40]!r}", ", ".join(ScopeKind))
    return Scope(ScopeKind(kind), name)


def _numbers(given: Mapping[str, str]) -> dict[str, float]:
    """Return the inputs that are filled in. Raises BadStart."""
    found = {}
    for name, text in given.items():
        if not text.strip():
            continue
        try:
            found[name] = float(text)
        except ValueError:
            raise runs.BadStart(f"inputs.{name}", f"{text[:40]!r} is no number") from None
    return found


def _inputs(playbook: Playbook, asked: Asked) -> list[dict[str, Any]]:
    given = asked.inputs or {}
    return [
        {"name": name, "input": each, "value": given.get(name, f"{each.default:g}")}
        for name, each in playbook.inputs.items()
    ]


def _clean(request: HttpRequest) -> dict[str, str]:
    """Return the form values; Postgres refuses NUL in text."""
    return {name: value.replace("\0", "") for name, value in request.POST.dict().items()}


@require_POST
@requires(Capability.RUN_PLAYBOOKS)
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Start the active version on a scope, as the dry run showed it."""
    given = _clean(request)
    inputs = {key.removeprefix("input-"): v for key, v in given.items() if key.startswith("input-")}
    try:
        row = runs.start(
            name,
            scope=_scope(given.get("kind", ""), given.get("scope", "").strip()[:MOST_NAME]),
            values={},
            incident_id=None,
            by=cast(User, request.user).get_username(),
            now=timezone.now(),
            inputs=_numbers(inputs),
        )
    except runs.BadStart as error:
        messages.error(request, f"{error}: {error.hint}" if error.hint else str(error))
        return redirect("playbook-page", name)
    messages.success(request, f"Run {row.pk} of {name} has started on {row.scope}.")
    return redirect("playbook-run", row.pk)


# --- Runs ----------------------------------------------------------------------------------------


@require_safe
@requires(Capability.VIEW_FLEET)
def run(request: HttpRequest, run_id: int) -> HttpResponse:
    """One run with its steps."""
    drawn = _run(request, run_id)
    html, _ = panels.draw(request, *drawn)
    return render(request, "dashboard/playbooks_run.html", {**drawn[-1], "panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def run_panel(request: HttpRequest, run_id: int) -> HttpResponse:
    """One run, for htmx."""
    return panels.answer(request, *_run(request, run_id))


def _run(request: HttpRequest, run_id: int) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    user = cast(User, request.user)
    rows = PlaybookRun.objects.seen_by(Visibility(user)).filter(pk=run_id).select_related("version")
    found = list(rows.prefetch_related("steps"))
    if not found:
        raise Http404(f"There is no run {run_id}.")
    (view,) = playbooks.views(found, user)
    context = {"view": view, "now": timezone.now()}
    return _RUN, reverse("live-playbook-run", args=[run_id]), {}, context


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for an action on a run: by whom, and the form values."""

    user: User
    row: PlaybookRun
    given: dict[str, str]
    now: datetime
    #: of the restriction that is decided on, as it was shown
    version: str = ""


class _Missing(Exception):
    """A required form value is missing."""


@require_POST
@requires(Capability.RUN_PLAYBOOKS)
def act(request: HttpRequest, run_id: int, verb: str) -> HttpResponse:
    """Do one of :data:`_VERBS` with a run. The step itself says who may answer it."""
    row = get_object_or_404(PlaybookRun, pk=run_id)
    do, user = _VERBS.get(verb), cast(User, request.user)
    if do is None:
        raise Http404(f"A run cannot be asked to {verb[:40]}.")
    try:
        messages.success(
            request,
            do(Ask(user, row, _clean(request), timezone.now(), request.GET.get("version", ""))),
        )
    except (runs.NotPossible, _Missing) as error:
        messages.error(request, str(error))
    except runs.NotAllowed as error:
        raise PermissionDenied(f"{error}.") from error
    if row.incident_id is None:
        return redirect("playbook-run", run_id)
    return redirect("incident", row.incident_id)


def _approve(ask: Ask) -> str:
    return _answer(ask, yes=True)


def _refuse(ask: Ask) -> str:
    return _answer(ask, yes=False)


def _answer(ask: Ask, *, yes: bool) -> str:
    step, note = ask.given.get("step", "")[:70], _note(ask.row, ask.given)
    version = whole_number(ask.version, most=2**31 - 1) or 0
    runs.answer(ask.row.pk, step, yes=yes, user=ask.user, note=note, now=ask.now, version=version)
    return f"You have {'approved' if yes else 'refused'} step {step}."


def _confirm(ask: Ask) -> str:
    step = ask.given.get("step", "")[:70]
    runs.confirm(ask.row.pk, step, user=ask.user, note=_note(ask.row, ask.given), now=ask.now)
    return f"You have confirmed step {step}."


def _pause(ask: Ask) -> str:
    runs.pause(ask.row.pk, user=ask.user, now=ask.now)
    return "The run is paused. What is in force stays, within the run's time limit."


def _resume(ask: Ask) -> str:
    runs.resume(ask.row.pk, user=ask.user, now=ask.now)
    return "The run goes on."


def _abort(ask: Ask) -> str:
    runs.abort(ask.row.pk, user=ask.user, why=_why(ask.row, ask.given, "abort"), now=ask.now)
    return "The run is aborted. What it held is given back; nothing else is taken back."


def _undo(ask: Ask) -> str:
    runs.undo(ask.row.pk, user=ask.user, why=_why(ask.row, ask.given, "undo"), now=ask.now)
    return "What the run did is taken back, the last first."


def _note(row: PlaybookRun, given: Mapping[str, str]) -> str:
    return given.get(f"note-{row.pk}", "").strip()[:2000]


def _why(row: PlaybookRun, given: Mapping[str, str], verb: str) -> str:
    text = given.get(f"why-{row.pk}", "").strip()[:500]
    if not text:
        raise _Missing(f"Say why you {verb} the run: nothing has been done.")
    return text


_VERBS: dict[str, Callable[[Ask], str]] = {
    "approve": _approve,
    "refuse": _refuse,
    "confirm": _confirm,
    "pause": _pause,
    "resume": _resume,
    "abort": _abort,
    "undo": _undo,
}
