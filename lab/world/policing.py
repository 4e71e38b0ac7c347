"""The loop of policies in process: headroom, then rules, then their restrictions and playbooks.

The same as ``policies.loop`` does on the server, round by round, with the same functions: what
fires holds its restrictions as leases, opens an episode, and starts the playbook of its rule; what
has cleared lets go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from admission.core.directives.restricting import CAP_OWNER
from fleet.tables import FleetArrays
from lab.world.operators import Operators
from lab.world.policy import Policy
from policies.firings import MOST_RUNS, Firing
from policies.headroom.evaluate import Headroom
from policies.playbooks import machine, pursuit
from policies.playbooks.document import Approve, Manual, Migrate, PlannedStep, Program
from policies.playbooks.machine import (
    Effect,
    Escalate,
    Hold,
    Issue,
    Machine,
    Move,
    Outcome,
    Progress,
    Release,
    RunState,
    Standing,
    StepState,
)
from policies.playbooks.performing import hold, perform_all, release, scope_of, standing_of
from policies.playbooks.pursuit import Way
from policies.playbooks.view import OneMoment, View
from policies.restrictions.book import Lease, RestrictionBook
from policies.restrictions.kinds import LIMITS, BadRestriction, Wanted
from policies.restrictions.memory import MemoryRestrictions
from policies.rules import effects, engine
from policies.rules.document import OpenIncident
from policies.rules.engine import Evaluated, LiveRule, RuleState
from policies.rules.modes import Mode
from policies.rules.places import scopes_of
from policies.scopes import Scope, ScopeKind

__all__ = ["Directive", "Policing"]


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
    #: when it was found to fire
    fired_at: datetime
    #: the playbook of its rule; empty: none
    playbook: str


@dataclass(frozen=True)
class Directive:
    """A playbook's request to the jobs in a place: ``checkpoint``, ``migrate`` or ``resume``."""

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

    pk: int
    playbook: str
    program: Program
    rule: str
    scope: Scope
    inputs: Mapping[str, float]
    state: machine.Run
    #: by path of a step: what has become of its directive
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def key(self, path: str) -> str:
        return f"playbook:{self.pk}/{path}"


@dataclass(frozen=True)
class _Look:
    """The view of a playbook run on the world."""

    run: _Run
    view: View
    cause_is_there: bool
    lease_of: Callable[[str], Lease | None]

    def cause(self) -> bool:
        return self.cause_is_there

    def closed_by(self) -> str:
        return ""

    def truth(self, step: PlannedStep) -> bool | None:
        return self.view.truth(step)

    def number(self, step: PlannedStep) -> float | None:
        return self.view.number(step)

    def standing(self, path: str) -> Standing | None:
        row = self.lease_of(self.run.key(path))
        return None if row is None else standing_of(row)

    def outcome(self, path: str) -> Outcome:
        return self.run.outcomes.get(path, Outcome(Progress.PENDING))


class _Book(RestrictionBook[Lease]):
    """The book of restrictions of a world, whose approach may have no caps."""

    def __init__(self, policy: Policy, fleet: Callable[[], FleetArrays]) -> None:
        self.leases = MemoryRestrictions()
        super().__init__(self.leases, fleet, max_site_share=policy.max_site_share)
        self._caps = policy.approach.caps

    def check(self, wanted: Wanted, now: datetime) -> None:
        if wanted.kind in LIMITS and not self._caps:
            raise BadRestriction("kind", "nothing is capped")
        super().check(wanted, now)

    def _can_be(self, wanted: Wanted, now: datetime) -> bool:
        is_left_out = wanted.kind in LIMITS and not self._caps
        return not is_left_out and super()._can_be(wanted, now)


class Policing:
    """Rules, episodes, restrictions and playbooks of a world."""

    def __init__(
        self,
        policy: Policy,
        operators: Operators,
        *,
        fleet: Callable[[], FleetArrays],
        issue: Callable[[Directive], Outcome],
        note: Callable[[str, str, str], None],
    ) -> None:
        """``fleet`` returns the inventory; ``issue`` carries out a playbook's request to jobs.

        ``note`` is told what, whom and how.
        """
        self._policy, self._operators = policy, operators
        self._issue, self._note = issue, note
        self._rules = [
            LiveRule(number, 1, rule, Mode.ACTIVE) for number, rule in enumerate(policy.rules)
        ]
        self._kinds = {ScopeKind(rule.scope) for rule in policy.rules}
        self._states: dict[int, RuleState] = {}
        self.book = _Book(policy, fleet)
        self.leases = self.book.leases
        #: by rule and name of the scope
        self.episodes: dict[tuple[int, str], Episode] = {}
        self._begun = 0
        self.runs: list[_Run] = []
        #: by rule, scope and playbook: the last run that is over
        self._last: dict[tuple[str, Scope, str], machine.Run] = {}
        self._started = 0

    @property
    def firing(self) -> int:
        """On how many scopes rules fire."""
        return len(self.episodes)

    @property
    def is_idle(self) -> bool:
        """Whether nothing fires or is about to, and rules and playbooks hold nothing."""
        held = any(row.owner != CAP_OWNER for row in self.leases)
        busy = held or bool(self.episodes or self.runs)
        return not busy and not any(np.any(s.phases.phase) for s in self._states.values())

    def step(self, headroom: Headroom, now: datetime) -> None:
        """Do one round."""
        tables = scopes_of(headroom, self._kinds)
        self._states, changes = engine.step(self._rules, tables, self._states, now.timestamp())
        self._follow_episodes(changes.evaluated, headroom.fleet)
        effects.keep(self.book, self.episodes.values(), now)
        self._start_playbooks(now)
        self._advance_runs(headroom, now)
        self._ask_people(now)
        self.book.expire(now)

    # --- Rules -----------------------------------------------------------------------------------

    def _follow_episodes(self, evaluated: Mapping[int, Evaluated], fleet: FleetArrays) -> None:
        """Begin and end episodes."""
        firing = {(number, name): one for number, one in evaluated.items() for name in one.fires_on}
        for key in [key for key in self.episodes if key not in firing]:
            over = self.episodes.pop(key)
            self._note("clear", over.rule, str(over.scope))
        for key, one in firing.items():
            if key not in self.episodes:
                found = one.firing(key[1])
                self.episodes[key] = self._episode(one, found, fleet)
                self._note("fire", found.rule, str(found.scope))

    def _episode(self, one: Evaluated, firing: Firing, fleet: FleetArrays) -> Episode:
        self._begun += 1
        opens = any(isinstance(each, OpenIncident) for each in one.live.rule.effects)
        return Episode(
            pk=self._begun,
            rule=firing.rule,
            scope=firing.scope,
            since=firing.since,
            summary=firing.summary,
            values=firing.values,
            restricts=effects.restricts(one, firing, fleet),
            fired_at=firing.at,
            playbook=firing.playbook if opens else "",
        )

    # --- Playbooks -------------------------------------------------------------------------------

    def _start_playbooks(self, now: datetime) -> None:
        """Start the playbook of each rule that fires and that no run is under way for."""
        for episode in self.episodes.values():
            program = self._policy.playbooks.get(episode.playbook)
            if program is None or episode.scope.kind not in program.playbook.scopes:
                continue
            decided = pursuit.decide(episode.fired_at, self._runs_of(episode), now)
            live = sum(run.rule == episode.rule for run in self.runs)
            if decided.way is not Way.START or live >= MOST_RUNS:
                continue
            self._started += 1
            inputs = {key: float(each.default) for key, each in program.playbook.inputs.items()}
            state = machine.begin(program, now, attempt=decided.attempt)
            self.runs.append(
                _Run(self._started, episode.playbook, program, episode.rule, episode.scope, inputs,
                     state)
            )  # fmt: skip
            self._note("playbook", episode.playbook, str(episode.scope))

    def _runs_of(self, episode: Episode) -> list[machine.Run]:
        """Return the run that is under way for an episode, and the last one that is over."""
        key = (episode.rule, episode.scope, episode.playbook)
        live = [run.state for run in self.runs if (run.rule, run.scope, run.playbook) == key]
        return [*live, *([self._last[key]] if key in self._last else [])]

    def _advance_runs(self, headroom: Headroom, now: datetime) -> None:
        causes = {(each.rule, each.scope) for each in self.episodes.values()}
        for run in self.runs:
            view = View(run.program, run.scope, run.inputs, _Now(headroom))
            look = _Look(run, view, (run.rule, run.scope) in causes, self._lease_of)
            at = Machine(run.program, look, now)
            while (move := self._next_move(at, run)) is not None:
                perform = partial(self._perform, run, view, now)
                run.state, _ = perform_all(at, run.state, move, perform)
        for run in self.runs:
            if run.state.state.is_over:
                self._last[run.rule, run.scope, run.playbook] = run.state
                self._note("playbook_over", run.playbook, f"{run.scope}: {run.state.state}")
        self.runs = [run for run in self.runs if not run.state.state.is_over]

    def _lease_of(self, owner: str) -> Lease | None:
        return next((row for row in self.leases if row.owner == owner), None)

    def _next_move(self, at: Machine, run: _Run) -> Move | None:
        """Return the next move of a run, by itself or because a person has answered."""
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

    def _perform(self, run: _Run, view: View, now: datetime, effect: Effect) -> str:
        if isinstance(effect, Escalate):
            self._note("escalate", run.playbook, f"{run.scope}: {effect.why}")
            return ""
        step = run.program.step(effect.path)
        if isinstance(effect, Hold):
            return hold(self.book, effect, run, view, now=now)
        if isinstance(effect, Release):
            release(self.book, effect.path, run, why=effect.why, now=now)
        elif isinstance(effect, Issue):
            run.outcomes[effect.path] = self._issue(self._directive(view, run, step))
        return ""

    @staticmethod
    def _directive(view: View, run: _Run, step: PlannedStep) -> Directive:
        to = str(step.action.to) if isinstance(step.action, Migrate) else ""
        return Directive(run.key(step.path), step.kind, scope_of(step, run, view), to)

    # --- People ----------------------------------------------------------------------------------

    def _ask_people(self, now: datetime) -> None:
        """Ask for approval of restrictions that would take too much of a site."""
        for row in self.leases.waiting():
            # Who was asked of one value has not been asked of another.
            value = "" if row.pending_value is None else f" {row.pending_value:g}"
            answer = self._operators.answer(f"restriction:{row.id}{value}", now.timestamp())
            if answer == "approve":
                self.book.approve(row.id, by="operator", now=now)
            elif answer is not None:
                self.book.refuse(row.id, by="operator", why="", now=now)
            if answer is not None:
                self._note(answer, row.kind, str(row.scope))
