"""When jobs start, as ranges that are drawn from the queue played on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from admission.core.cycle import estimates as module
from admission.core.cycle.calibration import Calibration
from admission.core.cycle.ends import Like, Ran
from admission.core.cycle.estimates import estimates, ranges
from admission.core.reasons import ReasonToken
from admission.core.snapshot import ProjectShare
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import World, make_request

HALF = [Ran(Like("vision", "", gpus, 3600.0), 0.5) for gpus in (1, 2, 8)] * 100


def _world(*, racks: int = 1, **given: object) -> World:
    fleet = make_arrays(racks=racks, nodes=1, gpus=8, budget_w=1e6, zone_w=1e6, pdu_w=1e6)
    return World(fleet, **given)  # type: ignore[arg-type]


def test_a_job_starts_when_what_runs_is_likely_to_end() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=8))
    world.cycle()
    world.submit(make_request("b/train", gpus=8))
    world.submit(make_request("c/train", gpus=8))
    found = ranges(world.cycle(), HALF)
    assert found["b/train"].middle_s == pytest.approx(1800.0, rel=0.02)
    assert found["c/train"].middle_s == pytest.approx(3600.0, rel=0.02)


def test_one_that_runs_for_longer_than_others_did_is_not_expected_at_once() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=8))
    world.cycle()
    world.now += 2700.0
    world.submit(make_request("b/train", gpus=8))
    found = ranges(world.cycle(), HALF)["b/train"]
    assert 0.0 < found.low_s < found.middle_s < found.high_s < 900.0


def test_nobody_is_told_to_start_after_all_walltimes_are_up() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=8))
    world.cycle()
    world.submit(make_request("b/train", gpus=8))
    assert ranges(world.cycle(), [])["b/train"].high_s <= 3600.0


def test_short_jobs_go_ahead_where_they_put_off_nobody() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=4))
    world.submit(make_request("x/train", gpus=4, walltime_s=600.0))
    world.cycle()
    world.submit(make_request("b/train", gpus=8))
    world.submit(make_request("c/train", gpus=2, walltime_s=600.0, submitted_at=world.now))
    world.submit(make_request("d/train", gpus=4, walltime_s=600.0, submitted_at=world.now))
    decisions = world.cycle()
    found = ranges(decisions, [Ran(Like("vision", "", 4, 600.0), 0.9)] * 100 + HALF)
    assert "c/train" not in found or found["c/train"].middle_s < found["b/train"].middle_s
    assert found["d/train"].middle_s < found["b/train"].middle_s


def test_what_a_quota_keeps_back_waits_for_jobs_of_its_project_alone() -> None:
    world = _world(racks=2, projects={"vision": ProjectShare("vision", gpu_quota=8)})
    world.submit(make_request("a/train", gpus=8, walltime_s=7200.0))
    world.submit(make_request("x/train", gpus=1, project="speech"))
    world.cycle()
    world.submit(make_request("b/train", gpus=8))
    found = ranges(world.cycle(), [Ran(Like("vision", "", 8, 7200.0), 0.5)] * 100)
    assert found["b/train"].middle_s == pytest.approx(3600.0, rel=0.1)


def test_who_names_a_site_waits_for_jobs_there_alone() -> None:
    world = World(
        make_arrays(sites=2, racks=1, nodes=1, gpus=8, budget_w=1e6, zone_w=1e6, pdu_w=1e6)
    )
    world.submit(make_request("a/train", gpus=8, sites=("s1",)))
    world.submit(make_request("x/train", gpus=8, walltime_s=600.0))
    world.cycle()
    world.submit(make_request("b/train", gpus=8, sites=("s1",)))
    assert ranges(world.cycle(), HALF)["b/train"].middle_s == pytest.approx(1800.0, rel=0.02)


def test_who_is_of_a_scheduler_waits_for_jobs_on_its_nodes_alone() -> None:
    world = _world(racks=2)
    of_hall = np.array(["hall", ""])
    world.cluster = replace(
        world.cluster, constants=replace(world.cluster.constants, executors=of_hall)
    )
    world.submit(make_request("a/train", gpus=8, executor="hall"))
    world.submit(make_request("x/train", gpus=8, walltime_s=600.0))
    assert len(world.cycle().admitted) == 2
    world.submit(make_request("b/train", gpus=8, executor="hall"))
    world.submit(make_request("c/train", gpus=8))
    found = ranges(world.cycle(), HALF)
    assert found["b/train"].middle_s == pytest.approx(1800.0, rel=0.02)
    assert found["c/train"].high_s <= 600.0


def _halls(*, pdu_w: float) -> World:
    """Return a world of two racks on one feed, of which a scheduler has the first."""
    fleet = make_arrays(racks=2, nodes=1, gpus=8, budget_w=1e6, zone_w=1e6, pdu_w=pdu_w)
    world = World(fleet)
    constants = replace(world.cluster.constants, executors=np.array(["hall", ""]))
    world.cluster = replace(world.cluster, constants=constants)
    return world


def test_who_has_its_own_nodes_and_no_power_waits_for_those_who_draw_it_elsewhere() -> None:
    world = _halls(pdu_w=14_000.0)
    world.submit(make_request("a/train", gpus=8, gpu_peak_w=650.0))
    assert len(world.cycle().admitted) == 1
    world.submit(make_request("b/train", gpus=8, gpu_peak_w=650.0, executor="hall"))
    decisions = world.cycle()
    assert decisions.waiting["b/train"].dominant.token is ReasonToken.FEED_REDUNDANCY
    assert ranges(decisions, HALF)["b/train"].middle_s == pytest.approx(1800.0, rel=0.02)


def test_where_nobody_gives_back_what_is_short_nobody_can_say_when_a_job_starts() -> None:
    world = _halls(pdu_w=10_000.0)
    world.submit(make_request("b/train", gpus=8, gpu_peak_w=650.0, executor="hall"))
    decisions = world.cycle()
    assert decisions.waiting["b/train"].dominant.token is ReasonToken.FEED_REDUNDANCY
    assert ranges(decisions, HALF) == {}


def test_what_is_free_and_short_of_power_is_not_to_be_had() -> None:
    fleet = make_arrays(racks=1, nodes=2, gpus=8, budget_w=14_000.0, zone_w=1e6, pdu_w=1e6)
    world = World(fleet)
    world.submit(make_request("a/train", gpus=8, gpu_peak_w=650.0))
    assert len(world.cycle().admitted) == 1
    world.submit(make_request("b/train", gpus=4, gpu_peak_w=650.0))
    decisions = world.cycle()
    assert decisions.waiting["b/train"].dominant.token is ReasonToken.RACK_POWER
    assert ranges(decisions, HALF)["b/train"].middle_s == pytest.approx(1800.0, rel=0.02)


def test_those_that_somebody_holds_are_told_nothing() -> None:
    world = _world()
    world.submit(make_request("a/train"), held_by="ada")
    world.submit(make_request("b/train"), waits_for=("prepare",))
    assert ranges(world.cycle(), []) == {}


def test_a_pause_that_is_known_is_the_least_of_a_range() -> None:
    world = _world()
    world.submit(make_request("a/train"), not_before=world.now + 500.0)
    found = ranges(world.cycle(), [])["a/train"]
    assert (found.low_s, found.high_s) == (500.0, 500.0)


def test_jobs_too_far_back_are_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REACH", 3)
    world = _world()
    world.submit(make_request("a/train", gpus=8))
    world.cycle()
    for n in range(5):
        world.submit(make_request(f"b{n}/train", gpus=8, submitted_at=world.now + n))
    assert sorted(ranges(world.cycle(), HALF)) == ["b0/train", "b1/train", "b2/train"]


def test_the_same_queue_is_told_the_same() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=8))
    world.cycle()
    world.submit(make_request("b/train", gpus=8))
    decisions = world.cycle()
    assert estimates(decisions, [], Calibration()) == estimates(decisions, [], Calibration())
