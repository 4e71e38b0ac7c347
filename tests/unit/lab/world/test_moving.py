"""Worlds grow jobs by the functions of the server, with the controller on."""

from __future__ import annotations

from dataclasses import replace

from admission.core.moving import MovingPolicy
from admission.core.request import Locality
from lab.fleet import make_even_fleet
from lab.twin import NO_FAILURES
from lab.world import Policy, World
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
