"""Jobs that cannot start as they are asked for, and what would make it possible."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.cycle.estimates import ranges
from admission.core.cycle.never import Hopeless, least_speed
from admission.core.cycle.whatif import Explanation, dry_run, explain
from admission.core.reasons import ReasonToken
from admission.core.request import Locality
from admission.core.snapshot import Pending, ProjectShare, Tuning
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, World, make_request


def _world(**values: Any) -> World:
    return World(make_arrays(**{"racks": 1, "nodes": 2, "budget_w": 9_000.0, **values}))


def _explained(world: World) -> Explanation:
    return explain(world.cycle(), "a/train")


def test_a_gang_that_no_empty_fleet_can_power_is_never_told_a_start() -> None:
    world = _world()
    world.submit(make_request("b/train", gpus=2, walltime_s=600.0))
    world.cycle()
    world.submit(make_request("a/train", gpus=16))
    decisions = world.cycle()
    never = Hopeless().look(decisions)
    assert list(never) == ["a/train"]
    assert "short" in never["a/train"]
    assert ranges(decisions, [], never=never) == {}
    found = explain(decisions, "a/train").never
    assert found is not None
    assert found.reason.token is ReasonToken.RACK_POWER


def test_a_gang_larger_than_any_site_is_never_told_a_start() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=512))
    decisions = world.cycle()
    assert decisions.waiting["a/train"].dominant.token is ReasonToken.LOCALITY_UNSATISFIABLE
    assert list(Hopeless().look(decisions)) == ["a/train"]


def test_a_gang_that_waits_for_others_alone_is_not_told_never() -> None:
    world = _world(budget_w=44_000.0)
    world.submit(make_request("b/train", gpus=16))
    world.cycle()
    world.submit(make_request("a/train", gpus=16))
    decisions = world.cycle()
    assert Hopeless().look(decisions) == {}
    assert explain(decisions, "a/train").never is None
    assert 0.0 < ranges(decisions, [])["a/train"].middle_s < 3600.0


def test_fewer_gpus_and_a_lower_cap_are_told_as_ways_out_while_others_run() -> None:
    world = _world(budget_w=12_000.0)
    world.submit(make_request("b/train", gpus=8, gpu_peak_w=350.0))
    world.cycle()
    world.submit(make_request("a/train", gpus=12, checkpoint_interval_s=600.0))
    found = _explained(world).never
    assert found is not None
    ways = [each.change.as_json() for each in found.ways]
    assert {"gpus"} in [set(each) for each in ways]
    assert {"lowest_cap_w", "max_slowdown"} in [set(each) for each in ways]
    assert found.ways[0].sentence.startswith("can start ")
    assert "% slower)" in found.ways[0].sentence
    # What is told is so: on an empty fleet it starts.
    world.end("b/train")
    for way in found.ways:
        world.pending.clear()
        world.submit(way.change.apply(make_request("a/train", gpus=12), {}))
        assert world.cycle().admitted, way.sentence
        world.end("a/train")


def test_another_site_is_a_way_out() -> None:
    world = World(make_arrays(sites=2, racks=1, nodes=1))
    world.submit(make_request("a/train", gpus=16, sites=("s1",)))
    found = _explained(world).never
    assert found is not None
    assert found.reason.token is ReasonToken.LOCALITY_UNSATISFIABLE
    assert {"sites": ["s1", "s2"]} in [each.change.as_json() for each in found.ways]


def test_more_distance_is_a_way_out() -> None:
    world = _world(budget_w=44_000.0)
    world.submit(make_request("a/train", gpus=12, required=Locality.NODE))
    found = _explained(world).never
    assert found is not None
    assert {"locality": "rack"} in [each.change.as_json() for each in found.ways]


def test_a_dry_run_says_never_too() -> None:
    found = dry_run(
        _world(budget_w=12_000.0).cycle(), Pending(make_request("a/train", gpus=16))
    ).never
    assert found is not None
    assert found.ways


def test_a_held_job_is_not_told_never() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=16), held_by="operator ann")
    assert _explained(world).never is None


def test_a_few_are_looked_at_in_one_cycle_and_all_in_the_end() -> None:
    world = _world()
    for n in range(100):
        asked = {"gpus": 16, "gpu_peak_w": 600.0 + n}
        world.submit(make_request(f"j{n:03}/train", **asked))
    hopeless, decisions = Hopeless(), world.cycle()
    first = hopeless.look(decisions)
    assert 0 < len(first) < 100
    assert len(hopeless.look(decisions)) == 100


@pytest.mark.parametrize(
    ("values", "token"),
    [
        ({"depth": 1}, ReasonToken.BEHIND_HIGHER_PRIORITY),
        ({}, ReasonToken.QUOTA_EXCEEDED),
    ],
)
def test_the_queue_says_never_of_whom_an_explanation_does(
    values: dict[str, Any], token: ReasonToken
) -> None:
    projects = {"vision": ProjectShare("vision", gpu_quota=None if values else 8)}
    world = World(
        make_arrays(racks=1, nodes=2, budget_w=9_000.0), tuning=Tuning(**values), projects=projects
    )
    world.submit(make_request("b/train", gpus=9, gpu_peak_w=100.0, submitted_at=NOW - 60.0))
    world.submit(make_request("a/train", gpus=16))
    decisions = world.cycle()
    assert decisions.waiting["a/train"].dominant.token is token
    never = explain(decisions, "a/train").never
    assert never is not None
    assert Hopeless().look(decisions)["a/train"] == never.reason.sentence


def test_a_job_is_looked_at_anew_when_it_asks_for_something_else() -> None:
    world = _world()
    world.submit(make_request("a/train", gpus=16))
    hopeless = Hopeless()
    assert hopeless.look(world.cycle())
    world.submit(make_request("a/train", gpus=8, min_gpus=1))
    assert hopeless.look(world.cycle()) == {}


# --- What is worth offering -----------------------------------------------------------------------


def test_a_change_leaves_enough_speed_for_the_work_to_be_done() -> None:
    with_checkpoints = make_request(checkpoint_interval_s=600.0)
    assert least_speed(with_checkpoints, 0.9) == 0.25
    assert least_speed(make_request(), None) == 0.5
    assert least_speed(make_request(), 0.8) == 0.8
    assert least_speed(make_request(), 0.01) == 0.25


@pytest.mark.parametrize(("free", "offered"), [(1, False), (3, False), (4, True), (7, True)])
def test_so_few_gpus_that_the_work_is_not_done_are_not_offered(free: int, offered: bool) -> None:
    world = World(make_arrays(racks=1, nodes=2))
    world.submit(make_request("b/train", gpus=16 - free))
    world.cycle()
    world.submit(make_request("a/train", gpus=16, checkpoint_interval_s=600.0))
    changes = [each.change.gpus for each in _explained(world).counterfactuals if each.starts_now]
    assert changes == ([free] if offered else [])
