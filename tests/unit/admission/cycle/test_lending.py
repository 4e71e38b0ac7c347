"""Jobs begin with more than they ask for while nobody waits, and give it back to who does."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.cycle.controlled import starting_low
from admission.core.cycle.decide import decide
from admission.core.moving import MoveKind, MovingPolicy
from admission.core.placement.cluster import Cluster
from admission.core.request import Request
from admission.core.snapshot import ProjectShare
from admission.core.throughput import SETTLED_S, Curve, Measured
from physics.scaling import usl_speedup
from policies.headroom.evaluate import evaluate
from policies.headroom.reach import Room
from tests.builders.arrays import GPU_IDLE_W, HOST_IDLE_W, make_arrays, make_frame
from tests.builders.queue_world import NOW, World, make_request
from tests.unit.admission.cycle.test_moving import CALM, DAY_S, _gpus, _later, _world

KEY = "sweep/train"
#: Long enough after a start for a job to be moved again.
LATER_S = MovingPolicy().least_since_s + 60.0


def _lent(key: str = KEY, **values: Any) -> Request:
    """Return a request for 2 GPUs, of 1 to 8, that may be stopped and writes checkpoints."""
    given = {
        "gpus": 2, "min_gpus": 1, "max_gpus": 8, "walltime_s": DAY_S, "preemptible": True,
        "checkpoint_interval_s": 600.0, **values,
    }  # fmt: skip
    return make_request(key, **given)


def _begun(world: World, *requests: Request) -> None:
    for each in requests:
        world.submit(each, runs_s=DAY_S)
    world.cycle()


# --- Beginning with more --------------------------------------------------------------------------


def test_a_job_begins_on_all_that_it_may_have_while_nobody_waits_and_says_so() -> None:
    world = _world()
    world.submit(_lent())
    (admitted,) = world.cycle().admitted
    assert len(admitted.placement.gpus) == 8
    assert "begins on 8 of up to 8 GPUs in place of 2" in admitted.trace[-1].sentence
    assert not _later(world, LATER_S).moves.chosen


@pytest.mark.parametrize(
    ("values", "moving"),
    [
        ({"preemptible": False}, MovingPolicy()),
        ({"checkpoint_interval_s": None}, MovingPolicy()),
        ({"max_gpus": None}, MovingPolicy()),
        ({}, MovingPolicy(starts_wide=False)),
        ({}, MovingPolicy(grows=False)),
    ],
    ids=["never stopped", "saves nothing", "asks for no more", "not allowed", "none grows"],
)
def test_it_begins_on_what_it_asks_for_where_it_could_not_give_the_rest_back(
    values: dict[str, Any], moving: MovingPolicy
) -> None:
    world = _world(moving=moving)
    _begun(world, _lent(**values))
    assert _gpus(world) == 2


def test_it_begins_on_what_it_asks_for_while_somebody_waits() -> None:
    world = _world()
    _begun(world, make_request("short/train", gpus=4, walltime_s=7200.0))
    world.submit(make_request("large/train", gpus=8))
    world.submit(_lent(walltime_s=3600.0))
    world.cycle()
    assert "large/train" in world.pending
    assert _gpus(world) == 2


def test_it_begins_on_what_it_asks_for_while_the_cycle_has_no_turn_for_others() -> None:
    world = _world(tuning=replace(CALM, depth=1))
    world.submit(_lent())
    world.submit(make_request("untried/train", gpus=4, submitted_at=NOW + 1.0))
    world.cycle()
    assert _gpus(world) == 2
    world.cycle()
    assert _gpus(world, "untried/train") == 4


def test_those_that_begin_at_once_have_as_many_each() -> None:
    world = _world()
    _begun(world, *(_lent(f"sweep{at}/train", gpus=1) for at in range(2)))
    assert [_gpus(world, key) for key in sorted(world.running)] == [4, 4]


def test_it_begins_with_no_more_than_its_quota() -> None:
    world = _world(projects={"vision": ProjectShare("vision", gpu_quota=5)})
    _begun(world, _lent())
    assert _gpus(world) == 5


def test_it_begins_with_no_more_than_its_project_has_watts_for() -> None:
    whole = _world()
    _begun(whole, _lent())
    watts = whole.running[KEY].placement.total_w
    world = _world(projects={"vision": ProjectShare("vision", power_quota_w=0.9 * watts)})
    _begun(world, _lent())
    assert _gpus(world) == 7


def test_it_begins_on_what_it_asks_for_where_power_would_be_left_too_little() -> None:
    world = World(make_arrays(racks=1, nodes=1, gpus=8, budget_w=11_500.0), tuning=CALM)
    fleet = world.cluster.fleet
    frame = make_frame(
        fleet, now=world.now,
        gpu={"power_w": 700.0, "temp_c": 40.0, "temp_mem_c": 40.0, "throttle": 0},
        host={"power_w": 4_500.0},
    )  # fmt: skip
    world.room = Room.of(evaluate(fleet, frame, now=world.now))
    _begun(world, _lent(gpu_peak_w=600.0))
    assert _gpus(world) == 2


def _idle(budget_w: float) -> World:
    """Return a rack of eight GPUs of which it is known that they and their host are at rest."""
    arrays = make_arrays(racks=1, nodes=1, gpus=8, budget_w=budget_w)
    world = World(arrays, tuning=CALM)
    frame = make_frame(
        arrays, now=world.now,
        gpu={"power_w": GPU_IDLE_W, "temp_c": 40.0, "temp_mem_c": 40.0, "throttle": 0},
        host={"power_w": HOST_IDLE_W},
    )  # fmt: skip
    world.room = Room.of(evaluate(arrays, frame, now=world.now))
    return world


@pytest.mark.parametrize(("margin", "gpus"), [(0.06, 8), (0.04, 5)])
def test_what_free_gpus_draw_at_rest_counts_once_against_the_margin(
    margin: float, gpus: int
) -> None:
    """All eight at full draw leave so much of the budget, whatever they and the host draw now."""
    whole = _world()
    _begun(whole, _lent(gpu_peak_w=600.0))
    full_w = whole.running["sweep/train"].placement.total_w
    world = _idle(full_w / (1.0 - margin))
    _begun(world, _lent(gpu_peak_w=600.0))
    assert _gpus(world) == gpus


@pytest.mark.parametrize(("margin", "gpus"), [(0.06, 8), (0.04, 5)])
def test_one_that_starts_under_a_cap_counts_as_without_it_against_the_margin(
    margin: float, gpus: int
) -> None:
    whole = _world()
    _begun(whole, _lent(gpu_peak_w=600.0))
    full_w = whole.running[KEY].placement.total_w
    world = _idle(full_w / (1.0 - margin))
    world.submit(_lent(gpu_peak_w=600.0, lowest_cap_w=350.0, max_slowdown=0.3))
    (admitted,) = decide(starting_low(world.snapshot())).admitted
    assert admitted.request.gpu_peak_w is not None
    assert admitted.request.gpu_peak_w < 500.0
    assert len(admitted.placement.gpus) == gpus


def test_it_begins_again_on_no_more_than_its_own_curve_says() -> None:
    world = _world()
    world.curves = {KEY: _curve(1.0, 2, 8)}
    _begun(world, _lent())
    assert _gpus(world) == 2


# --- What is free goes to whom it serves most -----------------------------------------------------


def _curve(contention: float, *sizes: int) -> Curve:
    return Curve.of(
        Measured(gpus, float(usl_speedup(gpus=gpus, contention=contention, coherency=0.0)),
                 SETTLED_S)
        for gpus in sizes
    )  # fmt: skip


def test_of_two_that_grow_the_one_has_more_whose_added_gpus_do_more() -> None:
    world = _world(nodes=2)
    world.submit(make_request("short/train", gpus=12, walltime_s=LATER_S))
    world.cycle()
    keys = ("good/train", "poor/train")
    _begun(world, *(_lent(key, max_gpus=14) for key in keys))
    assert [_gpus(world, key) for key in keys] == [2, 2]
    world.curves = {key: _curve(c, 1, 2) for key, c in zip(keys, (0.01, 0.3), strict=True)}
    _later(world, LATER_S)
    _later(world, 120.0)
    _later(world, 120.0)
    good, poor = (_gpus(world, key) for key in keys)
    assert good + poor == 16
    assert good >= 12
    assert poor >= 2


# --- Giving back to one that waits ----------------------------------------------------------------


def test_what_is_lent_is_given_back_to_one_that_waits_no_more_than_it_needs() -> None:
    world = _world()
    _begun(world, _lent())
    world.submit(make_request("other/train", gpus=2, walltime_s=DAY_S))
    assert not world.cycle().moves.chosen
    (move,) = _later(world, LATER_S).moves.chosen
    assert (move.kind, move.for_key) == (MoveKind.SHRINKING, "other/train")
    assert "gives back 2 of 8 GPUs, of which it asks for 2, to a job that waits" in move.sentence
    # Nobody else is asked while it saves.
    assert not _later(world, 30.0).moves.chosen
    _later(world, 120.0)
    assert (_gpus(world, "other/train"), _gpus(world)) == (2, 6)


def test_it_is_given_back_to_one_of_the_same_quota() -> None:
    world = _world(nodes=2, projects={"vision": ProjectShare("vision", gpu_quota=8)})
    _begun(world, _lent())
    world.submit(make_request("other/train", gpus=3, walltime_s=DAY_S))
    (move,) = _later(world, LATER_S).moves.chosen
    assert (move.for_key, len(move.placement.gpus)) == ("other/train", 5)
    assert not _later(world, 30.0).moves.chosen
    _later(world, 120.0)
    assert (_gpus(world, "other/train"), _gpus(world)) == (3, 5)


def test_it_is_given_back_to_one_that_its_project_has_watts_for_on_fewer_gpus() -> None:
    """All that the one that waits asks for is more than its project has watts for, for good."""
    world = _world(projects={"search": ProjectShare("search", power_quota_w=4_000.0)})
    _begun(world, _lent())
    other = {"gpus": 6, "min_gpus": 2, "walltime_s": DAY_S, "project": "search"}
    world.submit(make_request("other/train", **other))
    (move,) = _later(world, LATER_S).moves.chosen
    assert move.for_key == "other/train"
    _later(world, 30.0)
    _later(world, 120.0)
    placement = world.running["other/train"].placement
    assert 2 <= len(placement.gpus) < 6
    assert placement.total_w <= 4_000.0


def test_nobody_grows_onto_what_is_free_for_one_that_others_give_back_to() -> None:
    world = _world(nodes=2)
    world.submit(make_request("short/train", gpus=6, walltime_s=LATER_S))
    _begun(world, _lent())
    _begun(world, _lent("other/train", walltime_s=2 * 3600.0))
    assert [_gpus(world, key) for key in (KEY, "other/train")] == [8, 2]
    world.submit(make_request("large/train", gpus=10, walltime_s=DAY_S))
    found = _later(world, LATER_S).moves
    assert [(each.key, each.for_key) for each in found.chosen] == [(KEY, "large/train")]
    assert "a job that waits has next" in found.stays["other/train"]
    assert not _later(world, 30.0).moves.chosen
    _later(world, 120.0)
    assert [_gpus(world, key) for key in (KEY, "large/train", "other/train")] == [4, 10, 2]


def test_what_a_job_asks_for_is_not_taken() -> None:
    world = _world()
    _begun(world, _lent())
    world.submit(make_request("large/train", gpus=7, walltime_s=DAY_S))
    for _ in range(5):
        assert not _later(world, LATER_S).moves.chosen
    assert _gpus(world) == 8


def test_those_give_back_first_whose_added_gpus_do_least() -> None:
    world = _world(nodes=2)
    keys = ("good/train", "poor/train")
    _begun(world, *(_lent(key) for key in keys))
    world.curves = {key: _curve(c, 2, 8) for key, c in zip(keys, (0.01, 0.3), strict=True)}
    world.submit(make_request("other/train", gpus=4, walltime_s=DAY_S))
    (move,) = _later(world, LATER_S).moves.chosen
    assert (move.key, len(move.placement.gpus)) == ("poor/train", 4)


def test_nothing_is_given_back_to_one_that_begins_soon_anyway() -> None:
    world = _world(nodes=2)
    world.submit(make_request("short/train", gpus=8, walltime_s=LATER_S + 300.0))
    _begun(world, _lent())
    world.submit(make_request("other/train", gpus=2, walltime_s=DAY_S))
    assert not _later(world, LATER_S).moves.chosen


def test_gpus_that_do_little_are_kept_while_nobody_waits_and_given_up_where_they_do_harm() -> None:
    world = _world()
    _begun(world, _lent())
    world.curves = {KEY: Curve.of([Measured(2, 100.0, 900.0), Measured(8, 150.0, 900.0)])}
    assert not _later(world, LATER_S).moves.chosen
    world.curves = {KEY: Curve.of([Measured(2, 100.0, 900.0), Measured(8, 99.0, 900.0)])}
    (move,) = _later(world, LATER_S).moves.chosen
    assert (move.kind, move.for_key, len(move.placement.gpus)) == (MoveKind.SHRINKING, "", 2)


# --- What always holds ----------------------------------------------------------------------------


def _both_held(world: World) -> Cluster:
    """Put what jobs that move are to have beside what they have; raises where it does not fit."""
    cluster = world.cluster.copy()
    for each in world.running.values():
        if each.returns_to is not None and not set(each.returns_to.gpus) <= set(
            each.placement.gpus
        ):
            cluster.free(each.placement, each.request)
            cluster.allocate(each.returns_to, each.request)
    return cluster


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_job_leaves_its_bounds_and_none_is_moved_too_often(data: st.DataObject) -> None:
    """Whatever comes, whenever, and however jobs scale: sizes, moves in an hour, time between."""
    moving = MovingPolicy(moves_per_h=data.draw(st.integers(1, 6)))
    world = World(
        make_arrays(racks=1, nodes=2, budget_w=data.draw(st.sampled_from([14_000.0, 30_000.0]))),
        tuning=CALM, moving=moving, scales=True,
    )  # fmt: skip
    contention = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.5]), min_size=4, max_size=4))
    points: dict[str, dict[int, Measured]] = defaultdict(dict)
    moved_at: dict[str, list[float]] = defaultdict(list)
    began: dict[str, float] = {}
    moves: list[float] = []
    for step in range(20):
        for at in range(data.draw(st.integers(0, 2))):
            asked = data.draw(st.integers(1, 4))
            request = _lent(
                f"j{step}-{at}/train", gpus=asked, min_gpus=max(asked // 2, 1),
                max_gpus=data.draw(st.sampled_from([None, 4 * asked])),
                walltime_s=data.draw(st.sampled_from([3600.0, DAY_S])),
            )  # fmt: skip
            world.submit(request, runs_s=data.draw(st.sampled_from([900.0, DAY_S])))
        found = _later(world, 300.0)
        _both_held(world)
        for key, each in world.running.items():
            gpus, request = len(each.placement.gpus), each.request
            assert request.min_gpus <= gpus <= request.most_gpus
            began[key] = each.started_at
            per_s = usl_speedup(gpus=gpus, contention=contention[len(key) % 4], coherency=0.0)
            points[key][gpus] = Measured(gpus, float(per_s), SETTLED_S)
        world.curves = {key: Curve.of(each.values()) for key, each in points.items()}
        for move in found.moves.chosen:
            assert world.now - began[move.key] >= moving.least_since_s
            moved_at[move.key].append(world.now)
            moves.append(world.now)
    for first in moves:
        assert sum(first <= other < first + 3600.0 for other in moves) <= moving.moves_per_h
    assert all(
        second - first >= moving.least_since_s
        for each in moved_at.values()
        for first, second in pairwise(each)
    )


def test_a_world_at_rest_stays_at_rest() -> None:
    """What is given back is not grown into again while somebody waits, nor given twice."""
    world = _world(nodes=2)
    _begun(world, *(_lent(f"sweep{at}/train") for at in range(2)))
    world.submit(make_request("large/train", gpus=8, walltime_s=DAY_S))
    moves = [len(_later(world, 240.0).moves.chosen) for _ in range(60)]
    assert sum(moves) <= 4
    assert not any(moves[20:])
    sizes = {key: _gpus(world, key) for key in world.running}
    assert sizes["large/train"] == 8
