"""Worlds scale jobs by the functions of the server, with the controller on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.core.moving import MovingPolicy
from admission.core.request import Locality
from lab.fleet import make_even_fleet
from lab.twin import NO_FAILURES
from lab.world import Arrival, Policy, World
from physics.scaling import usl_speedup
from tests.unit.lab.world.builders import make_arrival


def test_a_job_that_grows_in_a_world_is_done_much_earlier_than_alone() -> None:
    arrivals = [
        make_arrival("short", gpus=7, runs_s=120.0, required=Locality.NODE),
        make_arrival(
            "sweep", at_s=10.0, gpus=8, min_gpus=1, runs_s=300.0, walltime_s=40_000.0,
            preemptible=True, checkpoint_interval_s=60.0, required=Locality.NODE,
        ),
    ]  # fmt: skip
    moving = MovingPolicy(least_since_s=120.0, restart_s=60.0)
    world = World(
        make_even_fleet(gpus=8, sites=1, nodes_per_rack=2), arrivals,
        replace(Policy(), moving=moving), seed=1, failures=NO_FAILURES,
    )  # fmt: skip
    record = world.run(1000.0)
    (sweep,) = [each for each in record.jobs if each.key == "sweep/train"]
    # On one GPU it would take 2,400 s.
    assert sweep.state == "done"
    assert sweep.restarts == 0
    assert sum(record.over_budget_s.values()) == 0.0


def _sweep(contention: float, **values: Any) -> Arrival:
    """Return an elastic job of 1 to 8 GPUs that is saved each minute."""
    return make_arrival(
        "sweep", gpus=8, min_gpus=1, runs_s=9_000.0, walltime_s=80_000.0, preemptible=True,
        checkpoint_interval_s=60.0, required=Locality.NODE, contention=contention, **values,
    )  # fmt: skip


@pytest.mark.parametrize(("contention", "gpus"), [(0.0, 8), (0.6, 1)])
def test_a_world_gives_back_what_did_not_pay_as_it_measured_and_no_more(
    contention: float, gpus: int
) -> None:
    """It begins on one GPU, grows to eight without a curve, and is measured there."""
    arrivals = [
        make_arrival("short", gpus=7, runs_s=400.0, required=Locality.NODE),
        _sweep(contention, at_s=10.0),
    ]
    moving = MovingPolicy(
        least_since_s=400.0, restart_s=30.0, least_yield=0.5, undone_below=0.35
    )  # fmt: skip
    world = World(
        make_even_fleet(gpus=8, sites=1, nodes_per_rack=1, power_share=1.5), arrivals,
        replace(Policy(), moving=moving), seed=1, failures=NO_FAILURES, step_s=5.0,
    )  # fmt: skip
    record = world.run(3000.0)
    (gang,) = world.gangs
    assert len(gang.gpus) == gpus
    assert sorted(gang.job.measured) == [1, 8]
    grew = gang.job.measured[8].per_s / gang.job.measured[1].per_s
    by_law = usl_speedup(gpus=8.0, contention=contention, coherency=0.0)
    assert grew == pytest.approx(float(by_law), rel=0.1)
    moved = [(each.at_s, each.how) for each in record.decisions if each.what == "stop"]
    assert len(moved) == (2 if contention else 1), moved
    assert sum(record.over_budget_s.values()) == 0.0
