"""Runs in Postgres: started, moved on, answered by people. Each move is one transaction.

A run's row is locked for as long as it is moved, so of two workers one moves it. What a move asks
for and the state that tells of it are committed together: a worker that dies in between has done
nothing, and the next one begins where the last commit was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from celery import current_app
from django.db import IntegrityError, transaction

from accounts import audit
from accounts.models import User
from accounts.roles import Capability
from fleet import snapshot
from policies.incidents import follow
from policies.incidents.models import Incident
from policies.playbooks import machine, pursuit
from policies.playbooks.document import Program
from policies.playbooks.effects import Performer
from policies.playbooks.machine import (
    Effect,
    Escalate,
    Machine,
    Move,
    NotPossible,
    Run,
    RunState,
    StepState,
)
from policies.playbooks.models import PlaybookRun, PlaybookVersion
from policies.playbooks.models import StepRun as StepRow
from policies.playbooks.parse import check_input
from policies.playbooks.performing import perform_all
from policies.playbooks.run_context import Conditions, StoredContext
from policies.restrictions import actions as restrictions
from policies.scopes import Scope, ScopeKind, UnknownScope, row_of

__all__ = [
    "BadStart",
    "NotAllowed",
    "NotPossible",
    "abort",
    "advance",
    "answer",
    "confirm",
    "due_runs",
    "pause",
    "put_off",
    "resume",
    "start",
    "undo",
]

#: Steps are kept in rows of the same fields.
_STEP_FIELDS = (
    "state", "entered_at", "deadline", "ended_at", "by", "note", "value", "lease_until",
    "escalated", "since", "seen_at", "restriction",
)  # fmt: skip
#: How long a run is let be that could not be moved because of a fault.
_PUT_OFF = timedelta(seconds=30)
_RUN_FIELDS = (
    "state", "place", "deadline", "paused_at", "ended_at", "why", "attempt", "verifying_since",
    "clear_since", "escalated_at", "ended_by",
)  # fmt: skip


class BadStart(ValueError):
    """A run cannot be started so. Says which field is wrong, and the way out."""

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.hint = hint


class NotAllowed(Exception):
    """This person may not answer this step."""


# --- Starting ------------------------------------------------------------------------------------


def start(
    name: str,
    *,
    scope: Scope,
    values: Mapping[str, Any],
    incident_id: int | None,
    by: str,
    now: datetime,
    inputs: Mapping[str, float] | None = None,
    rule: str = "",
    attempt: int = 1,
) -> PlaybookRun:
    """Start the active version of a playbook. Raises :class:`BadStart`.

    An incident has one run of a playbook on a scope at a time: asked again, that one is returned.
    ``rule``: the one that starts it; empty: a person does.
    """
    version = PlaybookVersion.objects.active().filter(name=name).first()
    if version is None:
        hint = "GET /api/v1/playbooks lists those that have an active version"
        raise BadStart("playbook", f"there is no active playbook {name!r}", hint)
    chosen = chosen_inputs(version.program, inputs or {})
    check_scope(version.program, scope)
    with transaction.atomic():
        found = _live(name, scope, incident_id)
        if found is not None:
            return found
        run = machine.begin(version.program, now, attempt=attempt)
        row = PlaybookRun(
            version=version,
            playbook=name,
            scope_kind=scope.kind.value,
            scope_name=scope.name,
            values=dict(values),
            inputs=chosen,
            incident_id=incident_id,
            state=run.state,
            started_at=now,
            started_by=by[:200],
            deadline=run.deadline,
            due_at=now,
            rule=rule,
            attempt=attempt,
        )
        try:
            with transaction.atomic():
                row.save()
        except IntegrityError:
            # Somebody else has just started it.
            found = _live(name, scope, incident_id)
            if found is None:
                raise
            return found
        told = audit.changes(None, audit.state(row))
        audit.record(by, "playbook.start", str(row), incident=incident_id, inputs=chosen, **told)
        text = f"Playbook {version} started on {scope}"
        text += f", attempt {attempt}" if attempt > 1 else ""
        _tell(row, "playbook_started", text, {"attempt": attempt}, by, now)
    _ask_to_advance(row.pk)
    return row


def _live(name: str, scope: Scope, incident_id: int | None) -> PlaybookRun | None:
    if incident_id is None:
        return None
    same = PlaybookRun.objects.live().filter(playbook=name, incident_id=incident_id)
    same = same.exclude(state=RunState.UNDOING)
    return same.filter(scope_kind=scope.kind.value, scope_name=scope.name).first()


def chosen_inputs(program: Program, given: Mapping[str, float]) -> dict[str, float]:
    """Return all inputs of a run: those given, and the defaults. Raises :class:`BadStart`."""
    known = program.playbook.inputs
    for name, value in given.items():
        if name not in known:
            hint = f"it has {', '.join(known) or 'no inputs'}"
            raise BadStart(f"inputs.{name}", "the playbook has no such input", hint)
        try:
            check_input(name, known[name], value)
        except ValueError as error:
            raise BadStart(f"inputs.{name}", str(error)) from error
    return {name: float(given.get(name, each.default)) for name, each in known.items()}


def check_scope(program: Program, scope: Scope) -> None:
    """Raise :class:`BadStart` where a run cannot be about ``scope``."""
    allowed = program.playbook.scopes
    if scope.kind not in allowed:
        hint = f"it is for: {', '.join(allowed)}"
        raise BadStart("scope_kind", f"this playbook is not for a {scope.kind}", hint)
    if scope.kind in (ScopeKind.CLASS, ScopeKind.JOB, ScopeKind.STORAGE):
        return
    try:
        row_of(snapshot.fresh(), scope)
    except UnknownScope as error:
        raise BadStart("scope_name", str(error), "names are those of the inventory") from error


# --- Moving on -----------------------------------------------------------------------------------


def due_runs(now: datetime, limit: int = 1000) -> list[int]:
    """Return the runs that are to be looked at by now, those that wait longest first."""
    due = PlaybookRun.objects.filter(due_at__lte=now).order_by("due_at", "id")
    return list(due.values_list("pk", flat=True)[:limit])


def put_off(run_id: int, now: datetime) -> None:
    """Put off a run that a fault keeps from moving."""
    PlaybookRun.objects.filter(pk=run_id, due_at__lte=now).update(due_at=now + _PUT_OFF)


def advance(run_id: int, now: datetime, conditions: Conditions | None = None) -> int:
    """Move a run as far as it goes now, and return how many moves that took.

    Where another worker moves it, nothing is done.
    """
    conditions = conditions or Conditions(now)
    moves = 0
    while _advance_once(run_id, conditions):
        moves += 1
    return moves


@transaction.atomic
def _advance_once(run_id: int, conditions: Conditions) -> bool:
    """Make one move. Return False where there is none to make now."""
    row = _locked(run_id, skip_locked=True)
    if row is None or RunState(row.state).is_over:
        return False
    at = _machine(row, conditions)
    run = _load(row)
    move = at.move(run)
    if move is None:
        _save_due(row, at.due(run))
        return False
    _make(at, row, run, move, conditions, by=f"playbook:{row.playbook}")
    return True


def _locked(run_id: int, *, skip_locked: bool = False) -> PlaybookRun | None:
    rows = PlaybookRun.objects.select_for_update(skip_locked=skip_locked, of=("self",))
    return rows.select_related("version").filter(pk=run_id).first()


def _machine(row: PlaybookRun, conditions: Conditions) -> Machine:
    return Machine(row.version.program, StoredContext.of(row, conditions), conditions.now)


def _make(
    at: Machine, row: PlaybookRun, before: Run, move: Move, conditions: Conditions, *, by: str
) -> None:
    """Perform the effects of ``move``, and save the state that it leads to."""
    view = StoredContext.of(row, conditions).view
    performer = Performer(row, view, at.now)
    escalations = []

    def perform(effect: Effect) -> str:
        if isinstance(effect, Escalate):
            escalations.append(effect)
        with transaction.atomic():
            return performer.perform(effect)

    after, said = perform_all(at, before, move, perform)
    for path, note in said.items():
        step = after.find(path)
        if note and step is not None and not step.note:
            after = after.put(dataclasses.replace(step, note=note))
    _save(at.program, row, before, after, at.now)
    _tell_changes(at.program, row, before, after, by, at.now)
    for effect in escalations:
        told = "playbook_given_up" if effect.is_over else "playbook_escalated"
        _tell(row, told, pursuit.escalation(effect, row.rule, row.attempt), {}, by, at.now)


def _load(row: PlaybookRun) -> Run:
    steps = tuple(_step(each) for each in row.steps.order_by("id"))
    values: dict[str, Any] = {name: getattr(row, name) for name in _RUN_FIELDS}
    return Run(started_at=row.started_at, steps=steps, **{**values, "state": RunState(row.state)})


def _step(row: StepRow) -> machine.StepRun:
    values: dict[str, Any] = {name: getattr(row, name) for name in _STEP_FIELDS}
    return machine.StepRun(path=row.path, **{**values, "state": StepState(row.state)})


def _save(program: Program, row: PlaybookRun, before: Run, after: Run, now: datetime) -> None:
    for step in after.steps:
        known = before.find(step.path)
        if step == known:
            continue
        values = {name: getattr(step, name) for name in _STEP_FIELDS}
        if known is not None:
            row.steps.filter(path=step.path).update(**values)
            continue
        planned = program.step(step.path)
        StepRow.objects.create(
            run=row, path=step.path, step=planned.id, kind=planned.kind, **values
        )
    for name in _RUN_FIELDS:
        setattr(row, name, getattr(after, name))
    # Due at once, so that whoever comes after a crash goes on from here.
    row.due_at = None if after.state.is_over else now
    row.save(update_fields=[*_RUN_FIELDS, "due_at"])


def _save_due(row: PlaybookRun, due_at: datetime | None) -> None:
    if row.due_at != due_at:
        row.due_at = due_at
        row.save(update_fields=["due_at"])


# --- Telling the incident ------------------------------------------------------------------------


def _tell(
    row: PlaybookRun, kind: str, text: str, data: dict[str, Any], by: str, now: datetime
) -> None:
    if row.incident_id is None or not Incident.objects.filter(pk=row.incident_id).exists():
        return
    about = {"run": row.pk, "playbook": row.playbook, **data}
    follow.note(row.incident_id, kind, text, about, by, now)


def _tell_changes(
    program: Program, row: PlaybookRun, before: Run, after: Run, by: str, now: datetime
) -> None:
    for step in after.steps:
        known = before.find(step.path)
        if known is not None and (known.state, known.escalated) == (step.state, step.escalated):
            continue
        planned = program.step(step.path)
        words = "escalated" if step.escalated and step.state is StepState.WAITING else step.state
        said = f"Step {planned.id} ({planned.kind}): {str(words).replace('_', ' ')}"
        text = f"{said}. {step.note}" if step.note else said
        data = {"step": planned.id, "state": step.state.value, "value": step.value}
        _tell(row, f"playbook_step_{words}", text, data, step.by or by, now)
    quiet = (RunState.RUNNING, RunState.WAITING)
    if after.state is not before.state and not {after.state, before.state} <= set(quiet):
        said = f"Playbook {row.playbook}: {after.state}"
        text = f"{said}. {after.why}" if after.why else said
        _tell(row, f"playbook_{after.state}", text, {"state": after.state.value}, by, now)


# --- What people do ------------------------------------------------------------------------------


def answer(
    run_id: int, step: str, *, yes: bool, user: User, note: str, now: datetime, version: int = 0
) -> PlaybookRun:
    """Approve or refuse a step. The first answer counts. Raises NotPossible or NotAllowed.

    Of a step whose restriction is held back, the restriction is approved or refused; ``version`` is
    what the person has seen of it, 0: whatever it is.
    """
    held = StepRow.objects.filter(run=run_id, step=step, state=StepState.HELD).first()
    if held is not None and held.restriction is not None:
        return _decide(run_id, held.restriction, yes=yes, user=user, note=note, now=now,
                       version=version)  # fmt: skip

    def move(at: Machine, run: Run) -> Move:
        _check_approver(at, run, step, user)
        return at.answer(run, step, yes=yes, by=user.username, note=note)

    word = "approve" if yes else "refuse"
    return _by_person(run_id, word, user, now, move, step=step, note=note)


def _decide(
    run_id: int, restriction: int, *, yes: bool, user: User, note: str, now: datetime, version: int
) -> PlaybookRun:
    """Decide on the restriction of a step, and have the run look at it at once."""
    if not user.can(Capability.RUN_PLAYBOOKS):
        raise NotAllowed(user.why_not(Capability.RUN_PLAYBOOKS).rstrip("."))
    try:
        with transaction.atomic():
            if yes:
                restrictions.approve(user, restriction, now=now, version=version)
            else:
                restrictions.refuse(user, restriction, why=note, now=now, version=version)
            PlaybookRun.objects.filter(pk=run_id, due_at__isnull=False).update(due_at=now)
    except restrictions.Conflict as error:
        raise NotPossible(f"restriction {restriction}: {error}") from error
    _ask_to_advance(run_id)
    return PlaybookRun.objects.select_related("version").get(pk=run_id)


def _check_approver(at: Machine, run: Run, step: str, user: User) -> None:
    action, roles = at.approvers(run, step)
    if not user.can(action.capability):
        raise NotAllowed(user.why_not(action.capability).rstrip("."))
    if roles and user.role not in roles:
        raise NotAllowed(f"step {step} is to be answered by: {', '.join(sorted(roles))}")


def confirm(run_id: int, step: str, *, user: User, note: str, now: datetime) -> PlaybookRun:
    """Say that a manual step is done. Raises NotPossible."""

    def move(at: Machine, run: Run) -> Move:
        return at.confirm(run, step, by=user.username, note=note)

    return _by_person(run_id, "confirm", user, now, move, step=step, note=note)


def pause(run_id: int, *, user: User, now: datetime) -> PlaybookRun:
    """Begin no further step. Restrictions in force stay, within the run's time limit."""
    return _by_person(run_id, "pause", user, now, lambda at, run: at.pause(run, by=user.username))


def resume(run_id: int, *, user: User, now: datetime) -> PlaybookRun:
    """Go on after a pause."""
    return _by_person(run_id, "resume", user, now, lambda at, run: at.resume(run))


def abort(run_id: int, *, user: User, why: str, now: datetime) -> PlaybookRun:
    """End the run at once. Its restrictions are given back; nothing else is taken back."""
    said = f"aborted by {user.username}: {why}"

    def move(at: Machine, run: Run) -> Move:
        return at.abort(run, why=said, by=user.username)

    return _by_person(run_id, "abort", user, now, move, why=why)


def undo(run_id: int, *, user: User | str, why: str, now: datetime) -> PlaybookRun:
    """Take back the steps done, the last first. ``user``: a person, or the name of a policy."""
    by = _name_of(user)
    said = f"{by}: {why}"

    def move(at: Machine, run: Run) -> Move:
        return at.undo(run, why=said, by=by)

    return _by_person(run_id, "undo", user, now, move, why=why)


def _by_person(
    run_id: int,
    what: str,
    user: User | str,
    now: datetime,
    move: Callable[[Machine, Run], Move],
    **detail: Any,
) -> PlaybookRun:
    """Make a person's move, waiting for whoever has the run. Raises PlaybookRun.DoesNotExist."""
    with transaction.atomic():
        row = _locked(run_id)
        if row is None:
            raise PlaybookRun.DoesNotExist(f"there is no run {run_id}")
        conditions = Conditions(now)
        at = _machine(row, conditions)
        run = _load(row)
        before = _state_of(row)
        _make(at, row, run, move(at, run), conditions, by=_name_of(user))
        told = audit.changes(before, _state_of(row))
        audit.record(user, f"playbook.{what}", str(row), **detail, **told)
    _ask_to_advance(run_id)
    return row


def _name_of(user: User | str) -> str:
    return user if isinstance(user, str) else user.username


def _state_of(row: PlaybookRun) -> audit.State:
    """Return a run with its steps, as they are in the database. One query."""
    steps = {f"step {each.path}": each.state for each in row.steps.order_by("pk")}
    return {**audit.state(row), **steps}


def _ask_to_advance(run_id: int) -> None:
    """Have a worker move the run at once. If that is lost, the next look at due runs finds it."""

    def ask() -> None:
        current_app.send_task("policies.playbooks.tasks.advance", [run_id])

    transaction.on_commit(ask, robust=True)
