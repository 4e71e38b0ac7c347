"""Playbooks and their runs in words: the action of each step, its state, who may answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.utils import timezone

from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from dashboard import restrictions, scopes, units
from headroom.documents import DocumentError
from policies import current
from policies.headroom.columns import FIELDS
from policies.playbooks import visible
from policies.playbooks.document import (
    Approve,
    Branch,
    Duration,
    Manual,
    Migrate,
    Notify,
    PlannedStep,
    Playbook,
    Program,
    Restrict,
    WaitUntil,
    Webhook,
)
from policies.playbooks.machine import OVER, RunState, StepState
from policies.playbooks.models import PlaybookRun, PlaybookVersion, StepRun
from policies.playbooks.run_context import preview
from policies.restrictions.kinds import KINDS, RestrictionKind
from policies.restrictions.models import Restriction, RestrictionEvent
from policies.rules.words import Measured, filled, placeholders, spoken, unfilled
from policies.scopes import ScopeKind

State = PlaybookVersion.States

_MARKS = {
    StepState.DONE: "✓",
    StepState.WAITING: "▶",
    StepState.SKIPPED: units.DASH,
    StepState.TIMED_OUT: "✗",
    StepState.FAILED: "✗",
    StepState.REFUSED: "✗",
    StepState.WITHDRAWN: units.DASH,
    StepState.HELD: "▶",
    StepState.INEFFECTIVE: "✗",
}
#: What of a restriction's ledger says most, the last first.
_TOLD = ("verdict", "measured", "applied", "acknowledged")


# --- Steps in words ------------------------------------------------------------------------------


def does(step: PlannedStep) -> str:
    """Return a step's action in words, before its scope is known."""
    action = step.action
    if isinstance(action, Restrict):
        return _restricts(action, action.value)
    if isinstance(action, Approve):
        return action.question
    if isinstance(action, Manual):
        return action.instruction
    if isinstance(action, WaitUntil):
        return _waits(step, action)
    if isinstance(action, Branch):
        return f"if {action.when}"
    if isinstance(action, Notify):
        to = ", ".join(action.channels) or "whoever hears of the incident"
        return f"tell {to}: {action.subject}"
    if isinstance(action, Webhook):
        return f"call {action.channel}: {action.subject}"
    if isinstance(action, Migrate):
        return f"have jobs go on as {action.to}"
    return {"checkpoint": "have jobs save their state", "resume": "have jobs go on"}[step.kind]


def _does(step: PlannedStep, row: StepRun | None) -> str:
    """Return a step's action in words; of a restriction with the value that it was given."""
    if isinstance(step.action, Restrict) and row is not None and row.value is not None:
        return _restricts(step.action, row.value)
    return does(step)


def _restricts(action: Restrict, value: float | str | None) -> str:
    unit = KINDS[action.kind].unit
    said = "" if value is None else f" {value if isinstance(value, str) else spoken(value, unit)}"
    where = "" if action.scope == "self" else f" on its {action.scope}"
    until = {"run": "the run ends", "cause": "the incident is over"}
    return f"{action.kind}{said}{where}, until {until.get(action.until, f'step {action.until}')}"


def _waits(step: PlannedStep, action: WaitUntil) -> str:
    if not action.condition:
        return f"wait for {action.for_}"
    held = f" for {action.for_}" if action.for_ else ""
    return f"wait until {action.condition}{held}, {Duration(step.timeout_s or 0)} at most"


def _with_values(text: str, run: PlaybookRun, readings: Mapping[str, Any]) -> str:
    """Return a text filled with ``readings`` and what is known of a run, and "…" for the rest."""
    fields: Mapping[str, Measured] = FIELDS.get(ScopeKind(run.scope_kind), {})
    site = run.scope_name.partition("/")[0] if "/" in run.scope_name else ""
    known: dict[str, Any] = {
        **readings,
        **run.inputs,
        "name": run.scope_name,
        "scope": str(run.scope),
        "playbook": run.playbook,
        "started_by": run.started_by,
        **({"site": site} if site else {}),
    }
    missing = {each.field for each in placeholders(text)} - known.keys()
    return filled(text, known | dict.fromkeys(missing, "…"), fields)


def _readings(run: PlaybookRun) -> Mapping[str, Any]:
    """Return the readings of a run's place now; empty: it is not known."""
    kind = ScopeKind(run.scope_kind)
    table = current.headroom(time.time()).table(kind) if kind in FIELDS else None
    if table is None or run.scope_name not in table.index_by_name:
        return {}
    return table.row(run.scope_name)


# --- A run ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effect:
    """The restriction of a step: its effect in words, and which version of it that is."""

    text: str = ""
    version: int = 0


_NO_EFFECT = Effect()


@dataclass(frozen=True, slots=True)
class Line:
    """A step of a run."""

    path: str
    id: str
    kind: str
    does: str
    #: waiting, done, …; next; empty: not begun
    state: str
    mark: str
    row: StepRun | None
    #: what came of it, as far as it was measured
    effect: str = ""
    #: "approve" or "confirm", where a person is asked
    asks: str = ""
    #: whether whoever looks may answer
    may_answer: bool = False
    #: who may, in words
    who: str = ""
    #: of its restriction, as it was looked at
    version: int = 0

    @property
    def depth(self) -> int:
        """The number of branches around it."""
        return self.path.partition("/")[0].count(".") // 2


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as its panel shows it."""

    run: PlaybookRun
    scope: str
    lines: list[Line]
    may_run: bool
    #: what ending it now would give back, and what that would break; empty: it is over
    gives_back: str = ""

    @property
    def is_over(self) -> bool:
        return self.run.state in OVER

    @property
    def total(self) -> int:
        return sum("/" not in line.path for line in self.lines)

    @property
    def at(self) -> str:
        """Which step is next or waits, in words."""
        if self.run.place >= self.total:
            return "all steps are through"
        return f"step {self.run.place + 1} of {self.total}"

    @property
    def asking(self) -> Line | None:
        """The step that waits for a person."""
        return next((line for line in self.lines if line.asks), None)

    @property
    def can_pause(self) -> bool:
        return self.run.state in (RunState.RUNNING, RunState.WAITING)

    @property
    def can_resume(self) -> bool:
        return self.run.state == RunState.PAUSED

    @property
    def can_undo(self) -> bool:
        return self.run.state not in (RunState.UNDOING, RunState.UNDONE)


def runs_of(incident_id: int, user: User, most: int = 20) -> list[RunView]:
    """Return the runs of an incident, those under way first. Four queries."""
    found = PlaybookRun.objects.seen_by(Visibility(user)).filter(incident_id=incident_id)
    rows = list(found.select_related("version").prefetch_related("steps").order_by("-pk")[:most])
    rows.sort(key=lambda run: run.state in OVER)
    return views(rows, user)


def views(runs: Sequence[PlaybookRun], user: User) -> list[RunView]:
    """Return runs that ``user`` may see as panels show them. Seven queries at most."""
    visibility = Visibility(user)
    effects = _effects(runs, visibility)
    return [_view(run, user, effects) for run in visible.runs(runs, visibility)]


def _view(run: PlaybookRun, user: User, effects: Mapping[str, Effect]) -> RunView:
    program = run.version.program
    known = {row.path: row for row in run.steps.all()}
    lines = [_line(step, known, run, user, effects) for step in program.steps]
    undone = [each.undo for each in program.steps if each.undo and each.undo.path in known]
    lines += [_line(step, known, run, user, effects) for step in reversed(undone)]
    may_run = user.can(Capability.RUN_PLAYBOOKS)
    is_asked = may_run and run.state not in OVER
    back = preview(run, timezone.now()) if is_asked else ""
    return RunView(run, scopes.words(run.scope), lines, may_run, back)


def _line(
    step: PlannedStep,
    known: Mapping[str, StepRun],
    run: PlaybookRun,
    user: User,
    effects: Mapping[str, Effect],
) -> Line:
    row = known.get(step.path)
    state = row.state if row else ""
    if row is None and step.place == run.place and run.state not in (*OVER, RunState.UNDOING):
        state = "next"
    asks, told = "", effects.get(run.key(step.path), _NO_EFFECT)
    if state == StepState.WAITING and run.state != RunState.PAUSED:
        asks = {"approve": "approve", "manual": "confirm"}.get(step.kind, "")
    elif state == StepState.HELD and row is not None and row.lease_until is not None:
        asks = "approve"
    capability, roles = _answerers(step, row)
    return Line(
        path=step.path,
        id=step.id,
        kind=step.kind,
        # What is asked is asked of now; of other moments the readings are not known.
        does=_with_values(_does(step, row), run, _readings(run) if asks else {}),
        state=state,
        mark=_MARKS.get(StepState(state), "") if row else "",
        row=row,
        effect=told.text,
        version=told.version,
        asks=asks,
        may_answer=bool(asks) and user.can(capability) and (not roles or user.role in roles),
        who=", ".join(sorted(roles)) or f"whoever may {capability.phrase}",
    )


def _answerers(step: PlannedStep, row: StepRun | None) -> tuple[Capability, frozenset[str]]:
    """Return the capability needed to answer, and the roles that may; none named: whoever can."""
    action = step.action
    if not isinstance(action, Approve):
        return Capability.RUN_PLAYBOOKS, frozenset()
    roles = frozenset(str(role) for role in action.roles)
    if roles and row is not None and row.escalated and action.escalate is not None:
        roles |= {str(role) for role in action.escalate.roles}
    return action.capability, roles


def _effects(runs: Sequence[PlaybookRun], visibility: Visibility) -> dict[str, Effect]:
    """Return the effects of the restrictions of ``runs`` in words, by owner. Three queries."""
    owners = [run.key(row.path) for run in runs for row in run.steps.all()]
    rows = list(Restriction.objects.of_owners(owners).order_by("pk")[:1000])
    if not rows:
        return {}
    events = RestrictionEvent.objects.filter(restriction__in=rows, kind__in=_TOLD)
    told: dict[int, dict[str, str]] = {}
    for pk, kind, text in events.order_by("pk").values_list("restriction", "kind", "text"):
        told.setdefault(pk, {})[kind] = text
    seen = visibility.data({row.owner: _effect(row, told.get(row.pk, {})) for row in rows})
    for row in rows:
        if row.kind == RestrictionKind.DRAIN and row.state == Restriction.State.IN_FORCE:
            left = restrictions.remaining(row, visibility)
            seen[row.owner] = left.said if left else seen[row.owner]
    return {row.owner: Effect(seen[row.owner], row.version) for row in rows}


def _effect(row: Restriction, told: Mapping[str, str]) -> str:
    if row.state == Restriction.State.PENDING_APPROVAL:
        return f"waits for a person: {row.pending_why}" if row.pending_why else "waits for a person"
    said = next((told[kind] for kind in _TOLD if told.get(kind)), "")
    return said or row.get_state_display().lower()


# --- The list ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listed:
    """A playbook: the version by which runs start, else the newest."""

    version: PlaybookVersion
    playbook: Playbook | None
    steps: int
    live_runs: int
    #: versions that wait for a review
    drafts: int


def listed() -> list[Listed]:
    """Return all playbooks by name. Three queries."""
    newest: dict[str, PlaybookVersion] = {}
    drafts: dict[str, int] = {}
    for row in PlaybookVersion.objects.order_by("name", "-number"):
        known = newest.setdefault(row.name, row)
        if row.state == State.ACTIVE and known.state != State.ACTIVE:
            newest[row.name] = row
        drafts[row.name] = drafts.get(row.name, 0) + (row.state == State.DRAFT)
    live = PlaybookRun.objects.live().order_by().values_list("playbook")
    running = dict(live.annotate(count=Count("pk")))
    return [
        _listed(row, running.get(name, 0), drafts[name]) for name, row in sorted(newest.items())
    ]


def _listed(row: PlaybookVersion, live_runs: int, drafts: int) -> Listed:
    program = program_of(row)
    playbook = program.playbook if program else None
    return Listed(row, playbook, len(program.steps) if program else 0, live_runs, drafts)


def program_of(row: PlaybookVersion) -> Program | None:
    """Return the program of a version; None where a release of ours no longer takes it."""
    try:
        return row.program
    except DocumentError:
        return None


def step_lines(program: Program) -> list[Line]:
    """Return the steps of a playbook that does not run."""
    return [
        Line(step.path, step.id, step.kind, unfilled(does(step)), "", "", None)
        for step in program.steps
    ]


def waiting_for_people(runs: Iterable[RunView]) -> list[tuple[RunView, Line]]:
    """Return the runs that wait for a person, with the step that asks."""
    return [(view, view.asking) for view in runs if view.asking is not None]
