"""Gangs that stage data quietly for minutes and then draw their peaks at once, on the server.

Readings come in, draws are learned, cycles decide and agents are told limits, by the clock of the
test: what takes thirteen minutes takes seconds here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.core.allocation import joint
from admission.executors import sync
from admission.jobs.models import Phase
from admission.learned import draws
from headroom.work.contract import DesiredState, WorkReport, WorkReports, WorkState
from telemetry.directory import scope_of
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.memory import forget_all
from tests.integration.admission.cycle.scenes import phase_of, queued
from tests.integration.admission.cycle.test_holding import Machines, ask, budget

pytestmark = pytest.mark.django_db

STATED_W, QUIET_W = 650.0, 130.0
#: A node at its stated peak, and quiet: four GPUs, and its host between idle and rated.
NODE_W = 4 * STATED_W + 600.0 + 4 * STATED_W / 2800.0 * 1400.0
QUIET_S, LATER_AT_S, STEP_S = 780.0, 400.0, 20.0
RACK = "oslo/A01"
#: The peaks of four, two nodes at rest, and not a whole peak more.
BUDGET_W = 4 * NODE_W + 2 * 1020.0 + 3_300.0
FIRST = [f"first-{number}" for number in range(4)]


@pytest.fixture
def rack() -> SmallFleet:
    """One rack of six nodes, with power for the peaks of four and for a part of another."""
    made = small_fleet(
        sites=("oslo",), racks_per_row=1, rows=("A",), nodes_per_rack=6, budget_w=60_000.0
    )
    forget_all()
    budget(RACK, BUDGET_W)
    return made


@dataclass
class Plant(Machines):
    """Machines that run what they are told; gangs stage, and then draw their peaks all at once."""

    #: what each node has of which attempt, and when it began, Unix s
    runs: dict[tuple[str, str], float | None] = field(default_factory=dict)

    def run(self, seconds: float) -> float:
        """Go on for so long; return the most that the rack drew, W."""
        until, most_w = self.now + seconds, 0.0
        while self.now < until:
            self._obey()
            self.step(STEP_S)
            draws.observe(self.now)
            most_w = max(most_w, self.rack_w(RACK))
        return most_w

    def _obey(self) -> None:
        """Tell the server what runs, and do what it wants."""
        scope = scope_of(self.fleet.token)
        assert scope is not None
        for order in sync.sync(scope, self._reports(), self.now).orders:
            key = order.attempt, order.node
            if order.wanted == DesiredState.CLAIM:
                self.runs.setdefault(key, None)
            elif order.wanted == DesiredState.RUN and self.runs[key] is None:
                self.runs[key] = self.now
                self.wants_w[order.node] = QUIET_W

    def _reports(self) -> WorkReports:
        reports = [
            WorkReport(
                attempt=attempt, node=node, started_at=began,
                state=WorkState.CLAIMED if began is None else WorkState.RUNNING,
            )
            for (attempt, node), began in self.runs.items()
        ]  # fmt: skip
        return WorkReports(store="machines", nodes=list(self.fleet.nodes), reports=reports)

    def peak(self) -> None:
        """Have all gangs draw what they stated, at once."""
        self.wants_w = dict.fromkeys(self.wants_w, STATED_W)


def come(*names: str) -> None:
    """Queue gangs of a node, of projects of their own, of which nothing has ended."""
    for name in names:
        queued(name, gpus=4, project=name, asks={"gpu_peak_w": STATED_W})


def play(rack: SmallFleet, *, acts: bool) -> float:
    """Have four gangs stage, one more come meanwhile, and all that run peak; return the most, W."""
    ask(rack)
    plant = Plant(rack, {}, asks=acts, acts=acts)
    come(*FIRST)
    plant.run(LATER_AT_S)
    assert {phase_of(name).state for name in FIRST} == {Phase.State.RUNNING}
    assert plant.rack_w(RACK) < 0.6 * BUDGET_W
    come("later")
    quiet_w = plant.run(QUIET_S - LATER_AT_S)
    plant.peak()
    return max(quiet_w, plant.run(120.0))


@pytest.mark.parametrize("acts", [False, True], ids=["limits that nobody sets", "limits"])
@pytest.mark.slow(
    beside="tests/unit/lab/world/test_quiet_start.py::"
    "test_what_starts_quietly_keeps_the_room_for_its_peak"
)
def test_what_starts_quietly_keeps_the_room_for_its_peak(rack: SmallFleet, acts: bool) -> None:
    assert 0.8 * BUDGET_W < play(rack, acts=acts) <= BUDGET_W
    assert phase_of("later").state == Phase.State.QUEUED


@pytest.mark.slow(
    beside="tests/unit/lab/world/test_quiet_start.py::"
    "test_reservations_that_follow_what_is_read_of_a_quiet_start_exceed_the_budget"
)
def test_reservations_that_follow_what_is_read_of_a_quiet_start_exceed_the_budget(
    rack: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scene can fail: this is what happened before peaks were kept until they were seen."""
    learned = joint.learned

    def at_once(*args: Any, **given: Any) -> joint.Learned:
        return learned(*args, **given | {"at_work_w": 0.0 * given["at_work_w"]})

    monkeypatch.setattr(joint, "learned", at_once)
    assert play(rack, acts=False) > BUDGET_W
