"""Jobs of the published Philly trace on a fleet that is short of power.

Every job that waits has a dominant reason in every cycle. Every change that is told of starts the
job. Starts fall into the ranges that were told when the job was queued.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from admission.core.cycle.calibration import Calibration, Estimate
from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.estimates import estimates
from admission.core.cycle.whatif import explain
from admission.core.reasons import ReasonToken
from admission.core.snapshot import ClassRules
from tests.builders.queue_world import World, philly, philly_fleet
from tests.data_sets import data_set

#: Both do the same kind of work, so that a job is offered the other one where that helps.
CLASSES = {
    "training": ClassRules("training", priority=10, kind_of_work="training"),
    "experiment": ClassRules("experiment", kind_of_work="training"),
}
POWER = {
    ReasonToken.RACK_POWER,
    ReasonToken.FEED_POWER,
    ReasonToken.FEED_REDUNDANCY,
    ReasonToken.COOLING_CAPACITY,
}


@dataclass
class Played:
    """What was seen of a trace."""

    calibration: Calibration = field(default_factory=Calibration)
    reasons: dict[ReasonToken, int] = field(default_factory=dict)
    changes: int = 0
    false_changes: list[str] = field(default_factory=list)
    told: dict[str, tuple[float, Estimate]] = field(default_factory=dict)

    def look(self, world: World, decisions: Decisions) -> None:
        assert set(decisions.waiting) == set(world.pending)
        for waiting in decisions.waiting.values():
            assert waiting.dominant in waiting.reasons
            token = waiting.dominant.token
            self.reasons[token] = self.reasons.get(token, 0) + 1
        keys = [each.request.key for each in decisions.admitted if each.request.key in self.told]
        started = [(given, at, world.now - at) for at, given in map(self.told.pop, keys)]
        self.calibration = self.calibration.learn(started)
        new = [key for key in decisions.waiting if key not in self.told]
        if new:
            told = [(given.drawn, at) for at, given in self.told.values()]
            calibration = self.calibration.beside(told, world.now)
            found = estimates(decisions, world.ended, calibration)
            self.told |= {key: (world.now, found[key]) for key in new if key in found}

    def try_changes(self, world: World, decisions: Decisions, *, of: int) -> None:
        """Apply every change that is told of ``of`` of the jobs that wait, and decide anew."""
        snapshot = world.snapshot()
        keys = list(decisions.waiting)
        for key in keys[:: max(len(keys) // of, 1)]:
            for each in explain(decisions, key).counterfactuals:
                # A later start is awaited in ``test_promises``.
                if not each.starts_now:
                    continue
                self.changes += 1
                request = each.change.apply(world.pending[key].request, CLASSES)
                queue = {**world.pending, key: replace(world.pending[key], request=request)}
                again = decide(replace(snapshot, pending=tuple(queue.values())))
                started = {one.request.key: one.placement for one in again.admitted}
                if started.get(key) != each.placement:
                    self.false_changes.append(f"{key} at {world.now}: {each.sentence}")


def _play(
    *, first_day: float, days: float, racks: int, cycle_s: float, look_each: int, of: int
) -> Played:
    arrivals = philly(data_set("philly-jobs"), first_day=first_day, days=days)
    world, played = World(philly_fleet(racks=racks), classes=CLASSES), Played()
    for number, decisions in enumerate(world.play(arrivals, cycle_s=cycle_s)):
        played.look(world, decisions)
        if number % look_each == 0:
            played.try_changes(world, decisions, of=of)
    return played


def test_a_burst_of_the_trace_is_told_the_truth() -> None:
    played = _play(first_day=46.27, days=0.05, racks=6, cycle_s=120.0, look_each=2, of=20)
    assert played.changes > 10
    assert played.false_changes == []
    assert played.reasons.keys() & POWER


@pytest.mark.slow
def test_days_of_the_trace_are_told_the_truth_and_when_they_start() -> None:
    # Of the jobs that wait few can be had to start now: so many are looked at.
    played = _play(first_day=44.0, days=6.0, racks=16, cycle_s=300.0, look_each=7, of=6)
    assert played.changes > 100
    assert played.false_changes == []
    assert played.reasons.keys() & POWER
    assert played.calibration.starts > 1000
    assert played.calibration.coverage is not None
    assert 0.7 <= played.calibration.coverage <= 0.9
