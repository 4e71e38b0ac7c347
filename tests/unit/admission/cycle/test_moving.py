"""Running jobs that agree grow into what comes free, and stand elsewhere so that others fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.cycle.decide import Decisions
from admission.core.moving import MoveKind, MovingPolicy
from admission.core.request import Locality, Request
from admission.core.snapshot import ProjectShare, Tuning
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import World, make_request
from tests.unit.admission.placement.fleets import any_fleet

CALM = Tuning(stagger_above=2.0)
BOTH = MovingPolicy(defragments=True)
DAY_S = 86_400.0


def _world(*, racks: int = 1, nodes: int = 1, **values: Any) -> World:
    return World(make_arrays(racks=racks, nodes=nodes), **{"tuning": CALM, **values})


def _elastic(key: str = "sweep/train", **values: Any) -> Request:
    """Return a request for 1 to 8 GPUs that may be stopped and writes checkpoints."""
    given = {
        "gpus": 8, "min_gpus": 1, "walltime_s": DAY_S, "preemptible": True,
        "checkpoint_interval_s": 600.0, **values,
    }  # fmt: skip
    return make_request(key, **given)


def _saved(world: World) -> None:
    """Have all that runs write a checkpoint now."""
    world.running = {
        key: replace(each, last_checkpoint_at=world.now) for key, each in world.running.items()
    }


def _later(world: World, by_s: float) -> Decisions:
    """Let time pass; decide when all have just saved."""
    world.now += by_s
    world.end_due()
    _saved(world)
    return world.cycle()


def _one_of_eight(world: World, **values: Any) -> None:
    """Have seven GPUs taken for ten minutes, and an elastic job start on the eighth."""
    world.submit(make_request("short/train", gpus=7, walltime_s=600.0))
    world.cycle()
    world.submit(_elastic(**values), runs_s=DAY_S / 8)
    world.cycle()
    assert len(world.running["sweep/train"].placement.gpus) == 1


def _gpus(world: World, key: str = "sweep/train") -> int:
    return len(world.running[key].placement.gpus)


# --- Growth ---------------------------------------------------------------------------------------


def _ends_after_s(moving: MovingPolicy) -> float:
    """Return when an elastic job is done beside which seven GPUs come free after ten minutes."""
    world = _world(moving=moving, scales=True)
    _one_of_eight(world)
    begun = world.now
    while "sweep/train" in world.running or world.pending:
        assert world.now < begun + 2 * DAY_S
        _later(world, 60.0)
    return world.now - begun


def test_a_job_that_grows_is_done_much_earlier() -> None:
    alone_s = _ends_after_s(MovingPolicy(grows=False))
    grown_s = _ends_after_s(MovingPolicy())
    assert alone_s >= DAY_S - 60.0
    # A quarter of an hour of an eighth of the pace, then all of it.
    assert grown_s < DAY_S / 8 + 1800.0 + 600.0


def test_it_grows_once_it_has_run_for_long_enough_and_says_why_not_before() -> None:
    world = _world(moving=MovingPolicy(least_since_s=1800.0))
    _one_of_eight(world)
    early = _later(world, 660.0)
    assert not early.moves.chosen
    assert "left alone for another 19 min" in early.moves.stays["sweep/train"]
    (move,) = _later(world, 1200.0).moves.chosen
    assert (move.kind, len(move.placement.gpus), move.for_key) == (MoveKind.GROWTH, 8, "")
    assert "grows from 1 to 8 of 8 GPUs" in move.sentence


def test_what_it_is_to_have_is_kept_for_it_until_it_is_back() -> None:
    world = _world()
    _one_of_eight(world)
    _later(world, 1860.0)
    # An urgent one comes while it saves, and another the moment that it has ended.
    world.submit(make_request("urgent/train", gpus=1, priority=90))
    assert not _later(world, 60.0).admitted
    world.submit(make_request("later/train", gpus=8, priority=99))
    (admitted,) = _later(world, 60.0).admitted
    assert admitted.request.key == "sweep/train"
    assert _gpus(world) == 8
    assert "before all others" in admitted.trace[0].sentence


def test_it_stays_as_it_is_where_that_wins_too_little() -> None:
    world = _world()
    _one_of_eight(world)
    world.running["sweep/train"] = replace(
        world.running["sweep/train"], expected_end_at=world.now + 1860.0 + 900.0
    )
    found = _later(world, 1860.0)
    assert not found.moves.chosen
    assert "less than 5 times that is won" in found.moves.stays["sweep/train"]


def test_unsaved_work_counts_as_cost() -> None:
    world = _world(scales=True)
    _one_of_eight(world)
    world.now += 6 * 3600.0
    world.end_due()
    assert "costs up to" in world.cycle().moves.stays["sweep/train"]
    assert not world.running["sweep/train"].preempting


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"preemptible": False}, "may not be stopped"),
        ({"checkpoint_interval_s": None}, "writes no checkpoints"),
    ],
)
def test_a_job_that_has_not_agreed_is_left_alone(values: dict[str, Any], why: str) -> None:
    world = _world()
    _one_of_eight(world, **values)
    found = _later(world, 4000.0)
    assert not found.moves.chosen
    assert why in found.moves.stays["sweep/train"]


def test_the_policy_may_let_no_job_grow() -> None:
    world = _world(moving=MovingPolicy(grows=False))
    _one_of_eight(world)
    found = _later(world, 4000.0)
    assert not found.moves.chosen
    assert "lets no job grow" in found.moves.stays["sweep/train"]


def test_no_more_grow_within_an_hour_than_may() -> None:
    world = _world(racks=2, nodes=1, moving=MovingPolicy(moves_per_h=1))
    for n in range(2):
        world.submit(make_request(f"short{n}/train", gpus=7, walltime_s=600.0))
    world.cycle()
    for n in range(2):
        world.submit(_elastic(f"sweep{n}/train", required=Locality.NODE))
        world.cycle()
    assert {_gpus(world, f"sweep{n}/train") for n in range(2)} == {1}
    first = _later(world, 1860.0).moves
    assert len(first.chosen) == 1
    assert "within an hour, 1, were moved" in next(iter(first.stays.values()))
    for _ in range(20):
        assert not _later(world, 120.0).moves.chosen
    assert len(_later(world, 1300.0).moves.chosen) == 1


def test_it_grows_no_further_than_the_quota_of_its_project() -> None:
    projects = {"vision": ProjectShare("vision", gpu_quota=12)}
    world = _world(projects=projects)
    world.submit(make_request("short/train", gpus=7, walltime_s=600.0))
    world.cycle()
    world.submit(_elastic())
    world.cycle()
    world.projects = {"vision": ProjectShare("vision", gpu_quota=4)}
    (move,) = _later(world, 1860.0).moves.chosen
    assert len(move.placement.gpus) == 4


def test_it_puts_off_nobody_for_whom_room_is_kept() -> None:
    world = _world()
    world.submit(make_request("short/train", gpus=5, walltime_s=600.0))
    world.submit(make_request("middle/train", gpus=2, walltime_s=3600.0))
    world.cycle()
    world.submit(_elastic())
    world.cycle()
    # Seven are free for it in half an hour.
    world.submit(make_request("large/train", gpus=7))
    found = _later(world, 1860.0)
    assert not found.moves.chosen
    assert "room is kept for" in found.moves.stays["sweep/train"]


def test_a_grown_job_does_not_swing() -> None:
    world = _world(scales=True)
    _one_of_eight(world)
    sizes = []
    for _ in range(120):
        _later(world, 60.0)
        if "sweep/train" in world.running:
            sizes.append(_gpus(world))
    assert sizes == sorted(sizes)
    assert sizes[-1] == 8


# --- Defragmentation ------------------------------------------------------------------------------


def _fragmented(**values: Any) -> World:
    """Return a fleet of two nodes, each with half of its GPUs taken for a day by one that moves."""
    world = _world(racks=1, nodes=2, **values)
    for n, gpus in enumerate((4, 4)):
        world.submit(_elastic(f"small{n}/train", gpus=gpus, min_gpus=gpus, required=Locality.NODE))
        world.submit(make_request(f"stop{n}/train", gpus=4, walltime_s=600.0))
        world.cycle()
    world.submit(make_request("gang/train", gpus=8, required=Locality.NODE, walltime_s=DAY_S))
    nodes = {world.running[f"small{n}/train"].placement.nodes for n in range(2)}
    assert len(nodes) == 2, "each on a node of its own"
    return world


def test_a_gang_that_a_fragmented_fleet_refuses_starts_once_one_stands_elsewhere() -> None:
    world = _fragmented(moving=BOTH)
    found = _later(world, 1860.0)
    assert "gang/train" in found.waiting
    (move,) = found.moves.chosen
    assert (move.kind, move.for_key) == (MoveKind.DEFRAGMENTATION, "gang/train")
    assert "makes room for a job of 8 GPUs" in move.sentence
    assert not _later(world, 60.0).admitted
    begun = {each.request.key for each in _later(world, 61.0).admitted}
    assert begun == {move.key, "gang/train"}
    # What moved is on as many GPUs as before, and nobody else was touched.
    assert sorted(map(len, (each.placement.gpus for each in world.running.values()))) == [4, 4, 8]
    for _ in range(60):
        assert not _later(world, 60.0).moves.chosen


def test_nobody_is_moved_where_the_policy_says_nothing_of_it() -> None:
    world = _fragmented()
    for _ in range(10):
        assert not _later(world, 600.0).moves.chosen
    assert "gang/train" in world.pending


def test_nobody_is_moved_for_one_that_wins_too_little() -> None:
    world = _fragmented(moving=replace(BOTH, least_return=1000.0))
    assert not _later(world, 1860.0).moves.chosen


def test_who_agreed_to_nothing_stays() -> None:
    world = _fragmented(moving=BOTH)
    world.running = {
        key: replace(each, request=replace(each.request, preemptible=False))
        for key, each in world.running.items()
    }
    assert not _later(world, 1860.0).moves.chosen


# --- Budgets --------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_budget_is_exceeded_by_a_growth_or_a_move(seed: int) -> None:
    """``World`` allocates what starts on the fleet as it is, and raises where it does not fit.

    And what moves holds old and new at once: both are put on the fleet here.
    """
    rng = np.random.default_rng(seed)
    world = World(any_fleet(rng), tuning=CALM, moving=replace(BOTH, moves_per_h=100), scales=True)
    for number in range(14):
        gpus = int(rng.choice([1, 2, 4, 4, 8]))
        least = int(rng.integers(1, gpus + 1))
        walltime_s = float(rng.choice([1200.0, 7200.0, DAY_S]))
        peak_w, level = float(rng.uniform(200.0, 700.0)), Locality(int(rng.choice([0, 1, 3, 5, 5])))
        world.submit(
            _elastic(
                f"j{number}/train", gpus=gpus, min_gpus=least, walltime_s=walltime_s,
                gpu_peak_w=peak_w, required=level,
            )
        )  # fmt: skip
    for _ in range(20):
        decisions = _later(world, 700.0)
        cluster = world.cluster.copy()
        for key, moved in decisions.after.moved.items():
            assert cluster.admits(moved.more, moved.request), key
            cluster.allocate(moved.more, moved.request)
        for move in decisions.moves.chosen:
            if move.kind is MoveKind.GROWTH:
                assert len(move.placement.gpus) > _gpus(world, move.key)
