"""A rollout as people and programs see it: arms, evidence, drift, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fleet.tables import FleetArrays
from policies.rollouts import document, gathering
from policies.rollouts.document import May, Plan
from policies.rollouts.evidence import METRICS
from policies.rollouts.following import Verb
from policies.rollouts.machine import RolloutState
from policies.rollouts.models import RolloutRun

__all__ = ["Shown", "shown"]

_MAY: dict[RolloutState, tuple[Verb, ...]] = {
    RolloutState.CHANGING: (Verb.HOLD, Verb.ROLL_BACK),
    RolloutState.SOAKING: (Verb.PROMOTE, Verb.HOLD, Verb.ROLL_BACK),
    RolloutState.HELD: (Verb.PROMOTE, Verb.RESUME, Verb.ROLL_BACK),
    RolloutState.DONE: (Verb.ROLL_BACK,),
}


@dataclass(frozen=True)
class Shown:
    """A rollout with what follows from its state."""

    run: RolloutRun
    plan: Plan
    drift: list[dict[str, str]]

    @property
    def may(self) -> tuple[Verb, ...]:
        """What a person may do now."""
        return _MAY.get(RolloutState(self.run.state), ())

    @property
    def next(self) -> str:
        """What comes next, and when."""
        state, run = RolloutState(self.run.state), self.run
        step = self.plan.steps[run.step]
        if state is RolloutState.CHANGING:
            until = run.since + timedelta(seconds=self.plan.changed_within_s)
            return f"step {run.step + 1} soaks once all its racks report; held at {_clock(until)}"
        if state is RolloutState.SOAKING and run.soaking_since is not None:
            first = run.soaking_since + timedelta(seconds=step.soak_s)
            last = run.soaking_since + timedelta(seconds=step.longest_s)
            return (
                f"{self._after} from {_clock(first)} on, where no guard is worse by what "
                f"matters; held at {_clock(last)} where that is not shown"
            )
        if state is RolloutState.HELD:
            return "it waits for a person"
        if state is RolloutState.ROLLING_BACK:
            return "it is over once every rack reports what it had"
        return "" if state.is_over else "the first step begins within seconds"

    @property
    def _after(self) -> str:
        """What a promotion does, and who makes it."""
        is_last = self.run.step + 1 == len(self.plan.steps)
        does = "it is done" if is_last else f"step {self.run.step + 2} begins"
        return (
            does if May.PROMOTE in self.plan.by_itself else f"a person may let it go on, and {does}"
        )

    @property
    def judged(self) -> dict[str, Any] | None:
        """The last judgement, each finding with its guard's figures; None: there is none."""
        if not self.run.judged:
            return None
        findings = [
            {
                **finding,
                "metric": finding["guard"]["metric"],
                "matters": finding["guard"]["matters"],
                "unit": METRICS[finding["guard"]["metric"]].unit,
                "help": METRICS[finding["guard"]["metric"]].help,
            }
            for finding in self.run.judged["findings"]
        ]
        # What was judged before there was such a count has none.
        told = {"other_work": gathering.NO_OTHER_WORK, **self.run.judged}
        return {**told, "findings": findings, "at": self.run.judged_at}


def shown(run: RolloutRun, fleet: FleetArrays) -> Shown:
    """Return a rollout with the nodes that are not where they are to be. One query."""
    plan = document.read(run.version.text)
    racks = [path for step in run.racks for path in step]
    back = run.state in (RolloutState.ROLLING_BACK, RolloutState.ROLLED_BACK)
    return Shown(run, plan, gathering.drift(plan, fleet, racks, back=back))


def _clock(at: datetime) -> str:
    return f"{at:%H:%M} UTC"
