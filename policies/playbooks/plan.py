"""The dry run: a playbook planned on today's state, step by step. Nothing is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from accounts.models import User
from accounts.roles import CAPABILITIES
from policies.playbooks.document import (
    Approve,
    Branch,
    Checkpoint,
    Duration,
    Manual,
    Migrate,
    Notify,
    PlannedStep,
    Program,
    Restrict,
    Resume,
    WaitUntil,
    Webhook,
)
from policies.playbooks.run_context import Conditions
from policies.playbooks.view import View, related
from policies.restrictions.kinds import (
    KINDS,
    BadRestriction,
    RestrictionKind,
    Wanted,
    check,
    gpus_in,
)
from policies.rules.words import spoken
from policies.scopes import Scope, ScopeKind, UnknownScope


@dataclass(frozen=True)
class Planned:
    """One step of a plan."""

    path: str
    id: str
    kind: str
    does: str
    #: why it would fail as things stand; empty: nothing is known against it
    problem: str = ""
    undo: str = "nothing to take back"
    #: on_timeout and on_error, or what silence means
    otherwise: str = ""
    #: figures by name, such as gpus and load_w
    numbers: dict[str, float] = field(default_factory=dict)
    #: of a branch: the way that it would take now; null: unknown, so the other one
    holds: bool | None = None
    #: whether the way on which it stands would be taken now
    is_on_the_way: bool = True


@dataclass(frozen=True)
class Plan:
    """All steps of a playbook on one scope."""

    playbook: str
    scope: Scope
    inputs: Mapping[str, float]
    steps: list[Planned]


def plan(program: Program, scope: Scope, inputs: Mapping[str, float], now: datetime) -> Plan:
    """Plan a run as if started now, as far as today's readings tell."""
    planner = _Planner(View(program, scope, inputs, Conditions(now)), now)
    return Plan(program.playbook.name, scope, inputs, planner.steps())


class _Planner:
    def __init__(self, view: View, now: datetime) -> None:
        self._view = view
        self._now = now

    def steps(self) -> list[Planned]:
        ways: dict[str, bool | None] = {}
        found = []
        for step in self._view.program.steps:
            if isinstance(step.action, Branch):
                ways[step.path] = self._view.truth(step)
            found.append(self._planned(step, ways))
        return found

    def _planned(self, step: PlannedStep, ways: Mapping[str, bool | None]) -> Planned:
        numbers, problem = self._effect(step)
        return Planned(
            path=step.path,
            id=step.id,
            kind=step.kind,
            does=self._does(step, numbers),
            problem=problem,
            undo=self._undo(step),
            otherwise=_otherwise(step),
            numbers=numbers,
            holds=ways.get(step.path),
            is_on_the_way=_on_the_way(step.path, ways),
        )

    def _undo(self, step: PlannedStep) -> str:
        if step.undo is not None:
            return self._does(step.undo, {})
        return "the restriction is released" if step.kind == "restrict" else "nothing to take back"

    # --- Words -----------------------------------------------------------------------------------

    def _does(self, step: PlannedStep, numbers: Mapping[str, float]) -> str:
        action = step.action
        if isinstance(action, Restrict):
            return self._restricts(action, numbers)
        if isinstance(action, WaitUntil):
            return _waits(step, action)
        if isinstance(action, Branch):
            return f"goes one way if {action.when}, else the other"
        if isinstance(action, Approve):
            return self._asks(step, action)
        if isinstance(action, Manual):
            instruction = self._view.filled(action.instruction)
            return f"has a person do this within {_time(step.timeout_s)}: {instruction}"
        if isinstance(action, Notify):
            to = ", ".join(action.channels) or "all who hear of the incident"
            return f"tells {to}: {self._view.filled(action.subject)}"
        if isinstance(action, Webhook):
            return f"calls {action.channel}: {self._view.filled(action.subject)}"
        return self._directs(step)

    def _restricts(self, action: Restrict, numbers: Mapping[str, float]) -> str:
        unit = KINDS[action.kind].unit
        value = f" at {spoken(numbers.get('value'), unit)}" if unit else ""
        said = f"{action.kind}{value} on {self._scope_word(action)}"
        if "gpus" in numbers:
            said += f", which has {numbers['gpus']:.0f} GPUs"
        if "load_w" in numbers:
            said += f" and draws {spoken(numbers['load_w'], 'W')}"
        if "saves_w" in numbers:
            said += f"; takes at most {spoken(numbers['saves_w'], 'W')} off"
        until = {"run": "the run ends", "cause": "the incident is over"}
        return f"{said}; until {until.get(action.until, f'step {action.until} is over')}"

    def _asks(self, step: PlannedStep, action: Approve) -> str:
        roles = [role for role, can in CAPABILITIES.items() if action.capability in can]
        if action.roles:
            roles = [role for role in roles if role in action.roles]
        count = User.objects.filter(is_active=True, role__in=roles).count()
        who = f"{', '.join(roles)} ({count} people)"
        return f"asks {who} within {_time(step.timeout_s)}: {self._view.filled(action.question)}"

    def _directs(self, step: PlannedStep) -> str:
        action = step.action
        assert isinstance(action, Checkpoint | Migrate | Resume)  # noqa: S101
        verb = {"checkpoint": "save their state", "resume": "go on"}.get(step.kind)
        if isinstance(action, Migrate):
            verb = f"go on as {action.to}"
        within = _time(step.timeout_s)
        return f"has jobs of {self._scope_word(action)} {verb}, within {within}"

    def _scope_word(self, action: Restrict | Checkpoint | Migrate | Resume) -> str:
        try:
            return str(related(self._view.conditions.fleet, self._view.scope, action.scope))
        except UnknownScope as error:
            return f"({error})"

    # --- Numbers ---------------------------------------------------------------------------------

    def _effect(self, step: PlannedStep) -> tuple[dict[str, float], str]:
        """Return figures of the scope that a restriction would touch, and any objection to it."""
        action = step.action
        if not isinstance(action, Restrict):
            return {}, ""
        value = self._view.number(step)
        if action.value is not None and value is None:
            return {}, "its value is unknown: a field has no reading"
        try:
            scope = related(self._view.conditions.fleet, self._view.scope, action.scope)
            self._check(action, scope, value)
        except UnknownScope as error:
            return {}, str(error)
        except BadRestriction as error:
            return {}, f"{error}. {error.hint}".rstrip(". ")
        numbers = self._touched(scope, action.kind, value)
        return numbers if value is None else {"value": value, **numbers}, ""

    def _check(self, action: Restrict, scope: Scope, value: float | None) -> None:
        until = self._now + timedelta(seconds=action.lease)
        wanted = Wanted(action.kind, scope, value, "dry run", "playbook:plan", "dry run", until)
        check(wanted, self._view.conditions.fleet, now=self._now)

    def _touched(
        self, scope: Scope, kind: RestrictionKind, value: float | None
    ) -> dict[str, float]:
        """Return the number of GPUs in ``scope``, its load, W, and how much a cap takes off, W."""
        if scope.kind in (ScopeKind.CLASS, ScopeKind.JOB, ScopeKind.STORAGE, ScopeKind.LINK):
            return {}
        fleet = self._view.conditions.fleet
        gpus = float(np.count_nonzero(gpus_in(fleet, scope)))
        found = {"gpus": gpus}
        table = self._view.conditions.of(scope, {})
        load = None if table is None else table.columns.get("power_drawn_w")
        if load is None or not math.isfinite(load[0]):
            return found
        found["load_w"] = float(load[0])
        if kind is RestrictionKind.POWER_CAP_W and value is not None:
            found["saves_w"] = max(0.0, found["load_w"] - gpus * value)
        return found


def _on_the_way(path: str, ways: Mapping[str, bool | None]) -> bool:
    """Say whether all branches around a step would take its way."""
    parts = path.split(".")
    for depth in range(1, len(parts), 2):
        around, way = ".".join(parts[:depth]), parts[depth]
        if bool(ways.get(around)) != (way == "then"):
            return False
    return True


def _waits(step: PlannedStep, action: WaitUntil) -> str:
    if not action.condition:
        return f"waits for {action.for_}"
    held = f" has held for {action.for_}" if action.for_ else " holds"
    return f"waits until {action.condition}{held}, for {_time(step.timeout_s)} at most"


def _otherwise(step: PlannedStep) -> str:
    if isinstance(step.action, Approve):
        return f"no answer: {step.action.on_silence}; a no: {step.action.on_refusal}"
    said = [] if step.timeout_s is None else [f"not in time: {step.on_timeout}"]
    if step.kind not in ("approve", "manual", "wait_until", "branch"):
        said.append(f"an error: {step.on_error}")
    return "; ".join(said)


def _time(seconds: float | None) -> str:
    return str(Duration(seconds or 0.0))
