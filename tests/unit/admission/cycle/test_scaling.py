"""Elastic jobs grow as far as that pays by their own curve, and give back what did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.moving import MoveKind, MovingPolicy
from admission.core.snapshot import Draws, ProjectShare
from admission.core.throughput import SETTLED_S, Curve, Measured
from physics.scaling import usl_speedup
from policies.headroom.evaluate import evaluate
from policies.headroom.reach import Room
from tests.builders.arrays import make_arrays, make_frame
from tests.builders.queue_world import World, make_request
from tests.unit.admission.cycle.test_moving import (
    CALM,
    DAY_S,
    _elastic,
    _gpus,
    _later,
    _one_of_eight,
    _world,
)

KEY = "sweep/train"
#: GPUs that do little are left to nobody in particular, and given back to nobody in particular.
THRIFTY = MovingPolicy(least_yield=0.5, undone_below=0.35)


def _curve(*points: tuple[int, float]) -> Curve:
    return Curve.of([Measured(gpus, per_s, SETTLED_S) for gpus, per_s in points])


def _on_eight(**values: Any) -> World:
    """Have an elastic job of 1 to 8 GPUs run on all of them."""
    world = _world()
    world.submit(_elastic(**values), runs_s=DAY_S)
    world.cycle()
    assert _gpus(world) == 8
    return world


# --- How far --------------------------------------------------------------------------------------


def test_a_job_grows_by_its_own_curve_and_says_so() -> None:
    world = _world()
    _one_of_eight(world)
    world.curves = {KEY: _curve((1, 100.0), (2, 195.0))}
    (move,) = _later(world, 1860.0).moves.chosen
    assert len(move.placement.gpus) == 8
    assert "Amdahl's law through 2 measured sizes" in move.sentence


def test_it_grows_no_further_than_each_added_gpu_does_enough() -> None:
    world = _world(moving=THRIFTY)
    _one_of_eight(world)
    # By Amdahl's law with 30 % in line: 2 GPUs 1.54, 4 GPUs 2.1, 8 GPUs 2.6 times the work.
    world.curves = {KEY: _curve((1, 100.0), (2, 100.0 * 2.0 / 1.3))}
    (move,) = _later(world, 1860.0).moves.chosen
    assert 1 < len(move.placement.gpus) < 4
    assert "would do" not in move.sentence


def test_what_was_measured_not_to_pay_is_not_tried_again() -> None:
    world = _world(moving=THRIFTY)
    _one_of_eight(world)
    world.curves = {KEY: _curve((1, 100.0), (8, 110.0))}
    found = _later(world, 1860.0).moves
    assert not found.chosen
    assert "1.10 times the work (measured on 1 and on 8)" in found.stays[KEY]
    assert "less than 0.5" in found.stays[KEY]


def test_it_grows_beyond_what_it_asks_for_where_it_may() -> None:
    world = _world(nodes=2)
    world.submit(make_request("short/train", gpus=8, walltime_s=600.0))
    world.cycle()
    world.submit(_elastic(max_gpus=16), runs_s=DAY_S)
    world.cycle()
    assert _gpus(world) == 8
    (move,) = _later(world, 1860.0).moves.chosen
    assert "grows from 8 to 16 of 16 GPUs" in move.sentence
    _later(world, 60.0)
    (admitted,) = _later(world, 61.0).admitted
    assert len(admitted.placement.gpus) == 16


def test_what_is_won_beyond_the_horizon_does_not_count() -> None:
    world = _world(moving=MovingPolicy(horizon_s=600.0))
    _one_of_eight(world)
    found = _later(world, 1860.0).moves
    assert not found.chosen
    assert "what is left, up to 10 min" in found.stays[KEY]


@pytest.mark.parametrize(
    ("talks", "packs", "grows"), [(True, True, False), (False, True, True), (True, False, True)]
)
def test_a_gang_that_synchronizes_grows_onto_no_more_nodes_than_hold_it(
    talks: bool, packs: bool, grows: bool
) -> None:
    """Four GPUs come free on the node beside its own: others take them, wherever they are."""
    world = _world(nodes=2, moving=MovingPolicy(packs=packs))
    names = world.cluster.fleet.nodes.names.tolist()
    for at, name in enumerate(names):
        world.submit(make_request(f"other{at}/train", gpus=4, walltime_s=DAY_S, nodes=(name,)))
    world.submit(make_request("short/train", gpus=4, walltime_s=600.0, nodes=(names[1],)))
    world.cycle()
    says: dict[str, Any] = {"collective_bytes_per_step": 1e6, "step_s": 1.0} if talks else {}
    world.submit(_elastic(**says), runs_s=DAY_S)
    world.cycle()
    assert _gpus(world) == 4
    found = _later(world, 1860.0).moves
    assert bool(found.chosen) is grows
    if not grows:
        assert "8 GPUs are free on 2 nodes alone" in found.stays[KEY]


# --- Margins --------------------------------------------------------------------------------------


def _drawing(world: World, gpu_w: float, host_w: float = 800.0) -> Room:
    """Return what budgets have left where each GPU, and each host, draws so much."""
    fleet = world.cluster.fleet
    frame = make_frame(
        fleet, now=world.now,
        gpu={"power_w": gpu_w, "temp_c": 40.0, "temp_mem_c": 40.0, "throttle": 0},
        host={"power_w": host_w},
    )  # fmt: skip
    return Room.of(evaluate(fleet, frame, now=world.now))


@pytest.mark.parametrize(("host_w", "gpus"), [(800.0, 8), (5_000.0, 0), (2_500.0, 2)])
def test_it_grows_only_as_far_as_power_is_left_to_carry_it_uncapped(
    host_w: float, gpus: int
) -> None:
    world = World(make_arrays(racks=1, nodes=1, gpus=8, budget_w=11_500.0), tuning=CALM)
    _one_of_eight(world, gpu_peak_w=600.0)
    world.now += 1800.0
    world.end_due()
    world.room = _drawing(world, 100.0 if gpus == 8 else 700.0, host_w)
    found = _later(world, 60.0).moves
    assert sum(len(each.placement.gpus) for each in found.chosen) == gpus
    if not gpus:
        assert "that keep it clear of throttling" in found.stays[KEY]


@pytest.mark.parametrize(("share", "gpus"), [(1.0, 2), (0.5, 8)])
def test_each_added_gpu_counts_as_what_its_own_are_measured_to_draw(
    share: float, gpus: int
) -> None:
    """Eight at the peak that it states would leave too little; at half of that they would not."""
    world = World(make_arrays(racks=1, nodes=1, gpus=8, budget_w=11_500.0), tuning=CALM)
    _one_of_eight(world, gpu_peak_w=600.0)
    running = world.running[KEY]
    measured_w = tuple(share * each_w for each_w in running.placement.peak_w)
    placement = replace(running.placement, peak_w=measured_w)
    world.running[KEY] = replace(running, placement=placement)
    world.now += 1800.0
    world.end_due()
    world.room = _drawing(world, 700.0, 2_500.0)
    (move,) = _later(world, 60.0).moves.chosen
    assert len(move.placement.gpus) == gpus


@pytest.mark.parametrize(("full", "gpus"), [(0.5, 8), (1.0, 2)])
def test_what_a_job_was_measured_to_draw_under_a_cap_counts_as_without_it(
    full: float, gpus: int
) -> None:
    """Each GPU draws half of the peak that it states: all that it wants, or all that it may."""
    world = World(make_arrays(racks=1, nodes=1, gpus=8, budget_w=11_500.0), tuning=CALM)
    _one_of_eight(world, gpu_peak_w=600.0)
    running = world.running[KEY]
    (peak_w,) = running.placement.peak_w
    placement = replace(running.placement, peak_w=(0.5 * peak_w,))
    world.running[KEY] = replace(running, placement=placement)
    world.draws = {KEY: Draws(0.5 * peak_w, full * peak_w)}
    world.now += 1800.0
    world.end_due()
    world.room = _drawing(world, 700.0, 2_500.0)
    (move,) = _later(world, 60.0).moves.chosen
    assert len(move.placement.gpus) == gpus


@pytest.mark.parametrize("gpus", [3, 7])
def test_it_grows_as_far_as_its_project_has_watts_for(gpus: int) -> None:
    whole = _world()
    whole.submit(_elastic(gpus=gpus, min_gpus=gpus), runs_s=DAY_S)
    whole.cycle()
    watts = whole.running[KEY].placement.total_w
    world = _world()
    _one_of_eight(world)
    world.projects = {"vision": ProjectShare("vision", power_quota_w=watts + 100.0)}
    (move,) = _later(world, 1860.0).moves.chosen
    assert f"grows from 1 to {gpus} of 8 GPUs" in move.sentence


# --- Giving back ----------------------------------------------------------------------------------


def test_what_did_not_pay_as_measured_is_given_back_and_says_why() -> None:
    world = _on_eight()
    world.moving = THRIFTY
    world.curves = {KEY: _curve((2, 100.0), (8, 130.0))}
    (move,) = _later(world, 1860.0).moves.chosen
    assert (move.kind, len(move.placement.gpus)) == (MoveKind.SHRINKING, 2)
    assert "gives back 6 of 8 GPUs" in move.sentence
    assert "1.30 times the work (measured on 2 and on 8)" in move.sentence
    _later(world, 60.0)
    (admitted,) = _later(world, 61.0).admitted
    assert len(admitted.placement.gpus) == 2
    # And it does not grow again.
    for _ in range(60):
        assert not _later(world, 600.0).moves.chosen
    assert "measured on 2 and on 8" in world.cycle().moves.stays[KEY]


@pytest.mark.parametrize(
    ("values", "points", "moving"),
    [
        ({}, ((2, 100.0), (8, 300.0)), THRIFTY),
        ({}, ((2, 100.0),), THRIFTY),
        ({"min_gpus": 4}, ((2, 100.0), (8, 110.0)), THRIFTY),
        ({"preemptible": False}, ((2, 100.0), (8, 110.0)), THRIFTY),
        ({}, ((2, 100.0), (8, 110.0)), replace(THRIFTY, shrinks=False)),
        ({}, ((2, 100.0), (8, 110.0)), replace(THRIFTY, moves_per_h=0)),
    ],
    ids=["it pays", "not measured here", "below its least", "not agreed", "not allowed", "spent"],
)
def test_nothing_is_given_back_without_need_measurement_and_right(
    values: dict[str, Any], points: tuple[tuple[int, float], ...], moving: MovingPolicy
) -> None:
    world = _on_eight(**values)
    world.moving = moving
    world.curves = {KEY: _curve(*points)}
    assert not _later(world, 1860.0).moves.chosen


@settings(max_examples=25, deadline=None)
@given(contention=st.floats(0.0, 1.0), coherency=st.floats(0.0, 0.2), start=st.integers(1, 7))
def test_no_job_swings_whatever_its_curve(contention: float, coherency: float, start: int) -> None:
    """Each size is measured as it is run at: a size that was left is not come back to."""
    world = _world()
    world.submit(make_request("short/train", gpus=8 - start, walltime_s=600.0))
    world.cycle()
    world.submit(_elastic(walltime_s=20 * DAY_S), runs_s=20 * DAY_S)
    world.cycle()
    sizes, points = [_gpus(world)], dict[int, Measured]()
    for _ in range(40):
        _later(world, 900.0)
        if KEY not in world.running:
            continue
        gpus = _gpus(world)
        per_s = float(usl_speedup(gpus=gpus, contention=contention, coherency=coherency))
        points[gpus] = Measured(gpus, per_s, SETTLED_S)
        world.curves = {KEY: Curve.of(points.values())}
        if gpus != sizes[-1]:
            sizes.append(gpus)
    assert len(sizes) <= 5, sizes
    assert len(np.unique(sizes)) >= len(sizes) - 1, sizes
