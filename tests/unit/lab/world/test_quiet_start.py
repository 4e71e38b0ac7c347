"""Gangs that stage data quietly for minutes, and then draw all that they can at once."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.allocation import joint
from admission.core.response.respond import Throttling
from lab.fleet import make_even_fleet
from lab.training import TrainingSpec
from lab.twin import NO_FAILURES
from lab.world import Arrival, Headroom, Policy, Record, World
from lab.world.record import drawn_w
from tests.unit.lab.world.builders import make_arrival

#: What each of its GPUs draws at most, as a gang says; the twin has it there for seconds at a time.
STATED_W = 630.0
#: Those that come first stage for 13 minutes, and those that come then for 11.
FIRST_S, LATER_S = 780.0, 660.0
#: By then what is read of the first would have brought their reservations down.
LATER_AT_S = 450.0
UNTIL_S = 1500.0
#: What agreed to be slowed as a cap on it requires.
GIVES: dict[str, Any] = {
    "throttling": Throttling(0.05, 0.02, 0.5), "lowest_cap_w": 350.0, "max_slowdown": 0.2,
}  # fmt: skip


def quiet(name: str, at_s: float, stages_s: float, **given: Any) -> Arrival:
    """Return a gang of a node that stages at 130 W per GPU, and then trains at its stated peak."""
    training = TrainingSpec(
        base_step_s=1.0, total_steps=3000, warmup_s=stages_s, warmup_activity=0.05,
        activity=0.85, comm_activity=0.85,
    )  # fmt: skip
    fields = {"runs_s": 3000.0 + stages_s, "walltime_s": 9000.0, "gpu_peak_w": STATED_W, **given}
    return make_arrival(name, at_s=at_s, training=training, gpus=8, **fields)


def world(arrivals: list[Arrival], *, nodes: int, power_share: float, **given: Any) -> World:
    """Return a world of one rack, whose budget alone is short."""
    fleet = make_even_fleet(
        gpus=8 * nodes, nodes_per_rack=nodes, power_share=power_share,
        feed_share=4.0, cooling_share=4.0,
    )  # fmt: skip
    controls = given.pop("controls", True)
    approach = Headroom(controls=controls, responds=False, sheds=False)
    policy = Policy(rules=(), approach=approach)
    return World(fleet, arrivals, policy, seed=1, failures=NO_FAILURES, **given)


def started(record: Record) -> dict[str, float | None]:
    return {each.key.split("/")[0]: each.started_s for each in record.jobs}


def two(**given: Any) -> list[Arrival]:
    """Return two gangs that draw their peaks at the same time, and fit so only beside a quiet one.

    They are of projects of their own, of which nothing has ended.
    """
    return [
        quiet("first", 0.0, FIRST_S, project="vision", **given),
        quiet("later", LATER_AT_S, LATER_S, project="speech", **given),
    ]


def eight(**given: Any) -> list[Arrival]:
    """Return six gangs that start at once, and two that come while these are quiet."""
    first = [quiet(f"first-{n}", 0.0, FIRST_S, project=f"p{n}", **given) for n in range(6)]
    later = [quiet(f"later-{n}", LATER_AT_S, LATER_S, project=f"q{n}", **given) for n in range(2)]
    return [*first, *later]


NOBODY: dict[str, Any] = {"controls": False}
CAPS: dict[str, Any] = {}
CAPS_THAT_NOBODY_SETS: dict[str, Any] = {"acting_share": 0.0}


@pytest.mark.parametrize(
    ("arrivals", "nodes", "power_share", "gives", "held"),
    [
        pytest.param(two(), 2, 0.72, False, NOBODY, id="two"),
        pytest.param(eight(), 8, 0.70, False, NOBODY, id="eight"),
        pytest.param(two(), 2, 0.72, False, CAPS, id="two, held by caps"),
        pytest.param(eight(**GIVES), 8, 0.70, True, CAPS, id="eight that agreed to caps"),
        pytest.param(two(**GIVES), 2, 0.72, True, CAPS_THAT_NOBODY_SETS, id="two, without caps"),
    ],
)
def test_what_starts_quietly_keeps_the_room_for_its_peak(
    arrivals: list[Arrival], nodes: int, power_share: float, gives: bool, held: dict[str, Any]
) -> None:
    closed = world(arrivals, nodes=nodes, power_share=power_share, **held)

    closed.run(LATER_AT_S + 100.0)
    assert drawn_w(closed.twin)["rack"].max() < 0.65 * closed.fleet.racks[0].kind.budgets_w[0]
    record = closed.run(UNTIL_S)

    assert record.over_budget_s["any"] == 0.0
    began = started(record)
    assert began[arrivals[0].request.job] is not None
    if not gives:
        # What agreed to nothing is let in once all of its peak is free, and here that is never.
        assert began[arrivals[-1].request.job] is None


def test_reservations_that_follow_what_is_read_of_a_quiet_start_exceed_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scene can fail: this is what happened before peaks were kept until they were seen."""
    learned = joint.learned

    def at_once(*args: Any, **given: Any) -> joint.Learned:
        given["at_work_w"] = 0.0 * given["at_work_w"]
        return learned(*args, **given)

    monkeypatch.setattr(joint, "learned", at_once)
    closed = world(eight(), nodes=8, power_share=0.70, controls=False)
    assert closed.run(UNTIL_S).over_budget_s["rack"] > 300.0
