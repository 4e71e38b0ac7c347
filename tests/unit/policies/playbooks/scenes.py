"""A playbook on a stage: a machine, a clock, and what the run is to see, without a database."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from policies.playbooks import machine
from policies.playbooks.document import PlannedStep, Program, Restrict
from policies.playbooks.machine import (
    Effect,
    Hold,
    Machine,
    Move,
    Outcome,
    Progress,
    Release,
    Run,
    RunState,
    Standing,
    StepState,
)
from policies.playbooks.parse import parse

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

HEAD = """\
name: on-stage
description: Shows how a run goes
scopes: [rack]
constraint: Heat
failure_mode: GPUs slow down
switching_cost: Minutes
"""


def program(steps: str, head: str = HEAD) -> Program:
    """Return a playbook with these steps."""
    return parse(f"{head}steps:\n{textwrap.indent(textwrap.dedent(steps), '  ')}")


@dataclass
class Seen:
    """What the run is to see."""

    #: whether its rule fires; None: no rule has started it
    there: bool | None = None
    closed: str = ""
    #: by id of the step
    truths: dict[str, bool | None] = field(default_factory=dict)
    numbers: dict[str, float | None] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    #: by path
    standings: dict[str, Standing] = field(default_factory=dict)

    def cause(self) -> bool | None:
        return self.there

    def closed_by(self) -> str:
        return self.closed

    def truth(self, step: PlannedStep) -> bool | None:
        return self.truths.get(step.id)

    def number(self, step: PlannedStep) -> float | None:
        value = step.action.value if isinstance(step.action, Restrict) else None
        return self.numbers.get(step.id, value if isinstance(value, float) else None)

    def standing(self, path: str) -> Standing | None:
        return self.standings.get(path)

    def outcome(self, path: str) -> Outcome:
        return self.outcomes.get(path, Outcome(Progress.PENDING))


class Stage:
    """Plays a run. ``effects`` are all that were asked for, in order."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.now = START
        self.seen = Seen()
        self.run: Run = machine.begin(program, START)
        self.effects: list[Effect] = []

    @property
    def machine(self) -> Machine:
        return Machine(self.program, self.seen, self.now)

    def play(self, seconds: float = 0.0) -> Stage:
        """Let time pass, and move the run as far as it goes."""
        self.now += timedelta(seconds=seconds)
        for _ in range(500):
            move = self.machine.move(self.run)
            if move is None:
                return self
            self.take(move)
        raise AssertionError("it goes on for ever")

    def take(self, move: Move) -> None:
        self.run = move.run
        self.effects += move.effects

    def state(self) -> RunState:
        return self.run.state

    def states(self) -> dict[str, StepState]:
        """Return what became of each step that has begun, by id."""
        return {self.program.step(each.path).id: each.state for each in self.run.steps}

    def held(self) -> set[str]:
        """Return the paths whose restrictions are in force now, by what was asked for."""
        held: dict[str, datetime] = {}
        for effect in self.effects:
            if isinstance(effect, Hold):
                held[effect.path] = effect.until
            elif isinstance(effect, Release):
                held.pop(effect.path, None)
        return {path for path, until in held.items() if until > self.now}

    def asked(self, kind: type) -> list[str]:
        """Return the paths of all effects of a kind, in order."""
        return [effect.path for effect in self.effects if isinstance(effect, kind)]
