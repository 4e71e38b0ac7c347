"""The loop of policies in process: headroom, then rules, then what they restrict and start.

The same as ``policies.loop`` does on the server, round by round, with the same functions: what
fires holds its restrictions as leases, opens an episode, and starts the playbook of its rule; what
has cleared lets go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np

from fleet.tables import FleetArrays
from policies.firings import Firing
from policies.headroom.evaluate import Headroom
from policies.playbooks import machine
from policies.playbooks.document import (
    Approve,
    Checkpoint,
    Manual,
    Migrate,
    PlannedStep,
    Program,
    Restrict,
    Resume,
)
from policies.playbooks.machine import (
    Effect,
    Hold,
    Issue,
    Machine,
    Move,
    Outcome,
    Progress,
    Release,
    RunState,
    StepState,
)
from policies.playbooks.view import OneMoment, View, related
from policies.restrictions.kinds import BadRestriction, RestrictionKind, Wanted
from policies.rules import effects, engine
from policies.rules.document import OpenIncident
from policies.rules.engine import Evaluated, LiveRule, RuleState
from policies.rules.modes import Mode
from policies.rules.places import scopes_of
from policies.scopes import Scope, ScopeKind, UnknownScope
from sim.world.operators import Operators
from sim.world.policy import Policy
from sim.world.restrictions import Restrictions, is_good

__all__ = ["Directive", "Policing"]

#: A lease is renewed when this share of it is left.
_RENEW_AT = 0.5
#: Playbooks that one rule has under way at once: what fires everywhere is for a person.
_MOST_RUNS = 20
_CAPS = frozenset({RestrictionKind.POWER_CAP_W, RestrictionKind.CLOCK_CAP_MHZ})


@dataclass(frozen=True)
class Episode:
    """One time that a rule fires on one scope."""

    pk: int
    rule: str
    scope: Scope
    since: datetime
    summary: str
    values: Mapping[str, Any]
    restricts: Sequence[effects.Restricted]


@dataclass(frozen=True)
class Directive:
    """What a playbook asks of the jobs in a place: ``checkpoint``, ``migrate`` or ``resume``."""

    key: str
    kind: str
    scope: Scope
    #: the state that jobs are to go to
    to: str = ""


@dataclass(frozen=True)
class _Now(OneMoment):
    seen: Headroom

    @property
    def fleet(self) -> FleetArrays:
        return self.seen.fleet

    @property
    def headroom(self) -> Headroom:
        return self.seen


@dataclass
class _Run:
    """A playbook that is under way."""

    number: int
    name: str
    program: Program
    rule: str
    scope: Scope
    inputs: Mapping[str, float]
    state: machine.Run
    #: by path of a step: what has become of its directive
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def key(self, path: str) -> str:
        return f"playbook:{self.number}/{path}"


@dataclass(frozen=True)
class _Look:
    """What a run can see."""

    run: _Run
    view: View
    cause_is_there: bool

    def cause(self) -> bool:
        return self.cause_is_there

    def truth(self, step: PlannedStep) -> bool | None:
        return self.view.truth(step)

    def number(self, step: PlannedStep) -> float | None:
        return self.view.number(step)

    def outcome(self, path: str) -> Outcome:
        return self.run.outcomes.get(path, Outcome(Progress.PENDING))


class _Refused(Exception):
    """An effect cannot be had. Nothing was changed."""


class Policing:
    """Rules, episodes, restrictions and playbooks of a world."""

    def __init__(
        self,
        policy: Policy,
        operators: Operators,
        *,
        issue: Callable[[Directive], Outcome],
        note: Callable[[str, str, str], None],
    ) -> None:
        """``issue`` does what a playbook asks of jobs; ``note`` is told what, whom and how."""
        self._policy, self._operators = policy, operators
        self._issue, self._note = issue, note
        self._rules = [
            LiveRule(number, 1, rule, Mode.ACTIVE) for number, rule in enumerate(policy.rules)
        ]
        self._kinds = {ScopeKind(rule.scope) for rule in policy.rules}
        self._states: dict[int, RuleState] = {}
        self.restrictions = Restrictions(policy.max_site_share)
        #: by rule and name of the scope
        self.episodes: dict[tuple[int, str], Episode] = {}
        self._begun = 0
        self.runs: list[_Run] = []
        self._started = 0

    @property
    def firing(self) -> int:
        """On how many scopes rules fire."""
        return len(self.episodes)

    @property
    def is_idle(self) -> bool:
        """Whether nothing fires or is about to, and nothing is held."""
        busy = self.episodes or self.runs or self.restrictions.held
        return not busy and not any(np.any(s.phases.phase) for s in self._states.values())

    def step(self, headroom: Headroom, now: datetime) -> None:
        """Do one round."""
        tables = scopes_of(headroom, self._kinds)
        self._states, changes = engine.step(self._rules, tables, self._states, now.timestamp())
        begun = self._follow_episodes(changes.evaluated, headroom.fleet)
        self._restrict(headroom.fleet, now)
        self._start_playbooks(begun, now)
        self._advance_runs(headroom, now)
        self._ask_people(now)
        self.restrictions.expire(now)

    # --- Rules -----------------------------------------------------------------------------------

    def _follow_episodes(
        self, evaluated: Mapping[int, Evaluated], fleet: FleetArrays
    ) -> list[tuple[Firing, str]]:
        """Begin and end episodes; return what has begun, with the playbook of its rule."""
        firing = {(number, name): one for number, one in evaluated.items() for name in one.fires_on}
        for key in [key for key in self.episodes if key not in firing]:
            over = self.episodes.pop(key)
            self._note("clear", over.rule, str(over.scope))
        begun = []
        for key, one in firing.items():
            if key not in self.episodes:
                found = one.firing(key[1])
                self.episodes[key] = self._episode(one, found, fleet)
                opens = any(isinstance(each, OpenIncident) for each in one.live.rule.effects)
                begun.append((found, found.playbook if opens else ""))
                self._note("fire", found.rule, str(found.scope))
        return begun

    def _episode(self, one: Evaluated, firing: Firing, fleet: FleetArrays) -> Episode:
        self._begun += 1
        return Episode(
            pk=self._begun,
            rule=firing.rule,
            scope=firing.scope,
            since=firing.since,
            summary=firing.summary,
            values=firing.values,
            restricts=effects.restricts(one, firing, fleet),
        )

    def _restrict(self, fleet: FleetArrays, now: datetime) -> None:
        """Hold what open episodes restrict, renew what runs out, and end the rest."""
        wanted = effects.wanted(self.episodes.values(), now)
        held = self.restrictions.held
        for each in wanted.values():
            known = held.get(each.key)
            lasts = each.expires_at - now
            if known is None or known.expires_at - now < _RENEW_AT * lasts:
                self._hold(each, fleet, now)
        owned = effects.owner_of("")
        for key in [key for key in held if key[0].startswith(owned) and key not in wanted]:
            self.restrictions.release(key[0], key[1])

    def _hold(self, wanted: Wanted, fleet: FleetArrays, now: datetime) -> None:
        if wanted.kind in _CAPS and not self._policy.approach.caps:
            return
        if is_good(wanted, fleet, now):
            self.restrictions.hold(wanted, fleet, now)

    # --- Playbooks -------------------------------------------------------------------------------

    def _start_playbooks(self, begun: Sequence[tuple[Firing, str]], now: datetime) -> None:
        for firing, name in begun:
            program = self._policy.playbooks.get(name)
            live = [run for run in self.runs if run.rule == firing.rule]
            is_known = any((run.name, run.scope) == (name, firing.scope) for run in live)
            is_for = program is not None and firing.scope.kind in program.playbook.scopes
            if program is None or not is_for or is_known or len(live) >= _MOST_RUNS:
                continue
            self._started += 1
            inputs = {key: float(each.default) for key, each in program.playbook.inputs.items()}
            state = machine.begin(program, now)
            self.runs.append(
                _Run(self._started, name, program, firing.rule, firing.scope, inputs, state)
            )
            self._note("playbook", name, str(firing.scope))

    def _advance_runs(self, headroom: Headroom, now: datetime) -> None:
        causes = {(each.rule, each.scope) for each in self.episodes.values()}
        for run in self.runs:
            view = View(run.program, run.scope, run.inputs, _Now(headroom))
            look = _Look(run, view, (run.rule, run.scope) in causes)
            at = Machine(run.program, look, now)
            while (move := self._next_move(at, run)) is not None:
                self._make(at, run, run.state, move)
        self.runs = [run for run in self.runs if not run.state.state.is_over]

    def _next_move(self, at: Machine, run: _Run) -> Move | None:
        """Return what happens next, by itself or because a person has answered."""
        return at.move(run.state) or self._answered(at, run)

    def _answered(self, at: Machine, run: _Run) -> Move | None:
        waiting = next((s for s in run.state.steps if s.state is StepState.WAITING), None)
        if waiting is None or run.state.state is RunState.PAUSED:
            return None
        step = run.program.step(waiting.path)
        if not isinstance(step.action, Approve | Manual):
            return None
        answer = self._operators.answer(run.key(waiting.path), at.now.timestamp())
        if answer is None:
            return None
        yes = answer == "approve"
        if isinstance(step.action, Manual):
            return at.confirm(run.state, step.id, by="operator", note="") if yes else None
        return at.answer(run.state, step.id, yes=yes, by="operator", note="")

    def _make(self, at: Machine, run: _Run, before: machine.Run, move: Move) -> None:
        """Do what ``move`` asks for, and keep the state that it leads to."""
        for effect in move.effects:
            try:
                self._perform(at, run, effect)
            except _Refused as error:
                renews = isinstance(effect, Hold) and effect.renews
                instead = at.lose if renews else at.fail
                self._make(at, run, before, instead(before, effect.path, str(error)))
                return
        run.state = move.run

    def _perform(self, at: Machine, run: _Run, effect: Effect) -> None:
        step = run.program.step(effect.path)
        if isinstance(effect, Hold):
            self._hold_step(at, run, step, effect)
        elif isinstance(effect, Release):
            self.restrictions.release(run.key(effect.path))
        elif isinstance(effect, Issue):
            run.outcomes[effect.path] = self._issue(self._directive(at, run, step))

    def _hold_step(self, at: Machine, run: _Run, step: PlannedStep, effect: Hold) -> None:
        action = step.action
        if not isinstance(action, Restrict):
            raise TypeError(f"step {step.id} restricts nothing")
        if action.kind in _CAPS and not self._policy.approach.caps:
            raise _Refused("nothing is capped")
        view = self._view_of(at)
        wanted = Wanted(
            kind=action.kind,
            scope=self._scope(view, run, action.scope),
            value=effect.value,
            reason=f"step {step.id} (playbook {run.name}, run {run.number})",
            owner=run.key(step.path),
            cause=f"run {run.number}",
            expires_at=effect.until,
            most_of_site=action.most_of_site,
        )
        try:
            self.restrictions.hold(wanted, view.conditions.fleet, at.now)
        except BadRestriction as error:
            raise _Refused(str(error)) from error

    def _directive(self, at: Machine, run: _Run, step: PlannedStep) -> Directive:
        action = step.action
        if not isinstance(action, Checkpoint | Migrate | Resume):
            raise TypeError(f"step {step.id} asks nothing of jobs")
        to = str(action.to) if isinstance(action, Migrate) else ""
        scope = self._scope(self._view_of(at), run, action.scope)
        return Directive(run.key(step.path), step.kind, scope, to)

    @staticmethod
    def _view_of(at: Machine) -> View:
        look = at.look
        if not isinstance(look, _Look):
            raise TypeError("a run is looked at by what this module made")
        return look.view

    @staticmethod
    def _scope(view: View, run: _Run, to: Any) -> Scope:
        try:
            return related(view.conditions.fleet, run.scope, to)
        except UnknownScope as error:
            raise _Refused(str(error)) from error

    # --- People ----------------------------------------------------------------------------------

    def _ask_people(self, now: datetime) -> None:
        """Ask whether what takes too much of a site may be in force."""
        for held in self.restrictions.waiting():
            key = f"restriction:{held.id}"
            if self._operators.answer(key, now.timestamp()) == "approve":
                self.restrictions.approve(held)
                self._note("approve", held.wanted.kind.value, str(held.wanted.scope))

    def release_all(self) -> None:
        """Let go of all that rules and playbooks hold."""
        for run in self.runs:
            run.state = replace(run.state, state=RunState.ABORTED)
        self.runs.clear()
        for key in list(self.restrictions.held):
            self.restrictions.release(key[0])
