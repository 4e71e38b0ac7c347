"""Scale out, up, shrink or leave it: judged on power, heat and links, with what each would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.core.placement.place import place
from admission.core.request import Locality, Placement
from admission.core.response.advice import Advice, Direction, Growing, Option, advise
from admission.core.snapshot import Running
from admission.core.throughput import SETTLED_S, Curve, Measured
from fleet.snapshot import FleetArrays
from policies.headroom.evaluate import evaluate
from policies.headroom.reach import Reach, Room
from tests.builders.arrays import make_arrays, make_frame
from tests.builders.queue_world import NOW, idle_cluster, make_request

OUT, UP, SHRINK, NOTHING = Direction
GROWING = Growing(max_gpus=32, shrink_below=0.1)


def advice(
    fleet: FleetArrays,
    *,
    growing: Growing = GROWING,
    cap_w: float | None = None,
    tight: dict[int, float] | None = None,
    **asked: Any,
) -> Advice:
    """Have a job run on its own and be advised. ``tight``: what is left of budgets, by place."""
    fields = {"gpus": 8, "gpu_peak_w": 650.0, "required": Locality.SITE, **asked}
    request = make_request(**fields)
    cluster = idle_cluster(fleet)
    placement = place(cluster, request)
    assert isinstance(placement, Placement), placement
    if cap_w is not None:
        peak_w = tuple(watts - 8 * (650.0 - cap_w) for watts in placement.peak_w)
        placement = replace(placement, power_cap_w=cap_w, peak_w=peak_w)
    cluster.allocate(placement, request)
    reach = Reach.of(fleet)
    budget_w = _budgets(fleet, reach)
    places, watts = reach.carried(placement.nodes, placement.peak_w)
    left_w = budget_w.copy()
    left_w[places] -= watts
    for at, left in (tight or {}).items():
        left_w[at] = left
    running = Running(request, placement, NOW - 600, NOW + 3000)
    return advise(cluster, running, growing, Room(budget_w, left_w), reach)


def _budgets(fleet: FleetArrays, reach: Reach) -> Any:
    return Room.of(evaluate(fleet, make_frame(fleet, now=NOW), now=NOW)).budget_w


def option(found: Advice, direction: Direction) -> Option:
    (only,) = (each for each in found.options if each.direction is direction)
    return only


def test_with_room_it_is_advised_to_grow_and_told_by_how_much() -> None:
    found = advice(make_arrays(racks=8, nodes=2))
    out = option(found, OUT)
    assert found.best is OUT
    assert out.gpus == 32
    assert out.throughput == pytest.approx(4.0)
    assert out.added_w == pytest.approx(3 * (8 * 650 + 4600 * (650 / 700)), rel=0.2)
    assert out.margin is not None
    assert out.margin > GROWING.keeps
    assert found.sentence == out.sentence
    assert "Out to 32 GPUs: 4.00 times the work" in out.sentence
    assert not option(found, UP).is_possible


def test_what_was_measured_counts_in_place_of_the_law() -> None:
    curve = Curve.of([Measured(gpus, per_s, SETTLED_S) for gpus, per_s in ((8, 1e3), (32, 1.02e3))])
    found = advice(make_arrays(racks=8, nodes=2), growing=replace(GROWING, curve=curve))
    out = option(found, OUT)
    assert found.best is NOTHING
    assert out.throughput == pytest.approx(1.02, abs=0.01)
    assert "not worth it" in out.sentence


def test_a_job_at_its_most_stays() -> None:
    found = advice(make_arrays(racks=8), growing=replace(GROWING, max_gpus=8))
    assert found.best is NOTHING
    assert "it takes no more than 8 GPUs" in found.sentence


def test_where_no_more_fit_it_says_why_with_the_numbers() -> None:
    fleet = make_arrays(racks=1, nodes=1)
    out = option(advice(fleet), OUT)
    assert not out.is_possible
    assert out.reasons
    assert str(out.reasons[0].need).split(".")[0] in out.sentence


def test_a_ratio_over_one_takes_the_gain_away() -> None:
    """Within a rack a node is as good as another; across racks each GPU waits for the uplink."""
    fleet = make_arrays(racks=8, nodes=1)
    found = advice(
        fleet, collective_bytes_per_step=4e11, step_s=0.5, growing=replace(GROWING, max_gpus=16)
    )
    out = option(found, OUT)
    assert out.comm_ratio is not None
    assert out.comm_ratio > 1.0
    assert out.throughput < 2.0 / out.comm_ratio * 1.01
    assert "times computing (ring through" in out.sentence


def test_growing_under_a_cap_that_the_job_accepts_is_judged_by_the_work_that_is_left() -> None:
    # A site that has watts for two nodes under caps, and for one and a half without.
    fleet = make_arrays(racks=4, nodes=1, pdu_w=26_000.0, zone_w=13_500.0)
    found = advice(
        fleet, lowest_cap_w=250.0, max_slowdown=0.6,
        growing=Growing(max_gpus=16, shrink_below=None, band=0.0),
    )  # fmt: skip
    out = option(found, OUT)
    assert out.power_cap_w is not None
    assert 1.0 < out.throughput < 2.0


def test_into_the_last_watts_it_is_not_let_grow() -> None:
    """What would be told to shrink at once is no gain: at 85 % of a budget more is less."""
    fleet = make_arrays(racks=8, nodes=2)
    site = Reach.of(fleet).count - 1
    budget_w = float(_budgets(fleet, Reach.of(fleet))[site])
    found = advice(fleet, gpus_per_node=8, tight={site: 0.16 * budget_w})
    out = option(found, OUT)
    assert found.best is NOTHING
    assert not out.is_possible
    assert "under the 15.0 % that it has to keep" in out.sentence


def test_under_its_own_margin_it_is_advised_to_shrink() -> None:
    fleet = make_arrays(racks=8, nodes=2)
    site = Reach.of(fleet).count - 1
    budget_w = float(_budgets(fleet, Reach.of(fleet))[site])
    growing = replace(GROWING, min_batch_scale=0.5)
    found = advice(fleet, growing=growing, tight={site: 0.05 * budget_w})
    shrink = option(found, SHRINK)
    assert found.best is SHRINK
    assert (shrink.throughput, shrink.batch_scale) == (0.5, 0.5)
    assert shrink.added_w < -2000
    assert shrink.margin is not None
    assert shrink.margin > 0.05
    assert "5.0 % of its tightest budget is left, and it wants 10.0 %" in shrink.sentence
    # With room there is no need to.
    calm = advice(fleet, growing=growing)
    assert calm.best is OUT
    assert "there is no need" in option(calm, SHRINK).sentence


def test_a_capped_job_is_advised_a_higher_cap_where_watts_and_heat_let_it() -> None:
    found = advice(
        make_arrays(racks=8), cap_w=400.0, growing=replace(GROWING, max_gpus=8), lowest_cap_w=400.0,
        max_slowdown=0.5,
    )  # fmt: skip
    up = option(found, UP)
    assert found.best is UP
    assert up.power_cap_w is None
    assert up.gpus == 8
    # GPUs, and what the hosts draw along with them.
    assert 8 * 250.0 < up.added_w < 1.6 * 8 * 250.0
    assert 1.03 < up.throughput < 650 / 400
    assert "Up from 400 W to no cap" in up.sentence


def test_heat_keeps_a_cap_where_it_is() -> None:
    """A job that insists on a margin that its GPUs would not keep at full power."""
    found = advice(
        make_arrays(racks=8), cap_w=300.0, growing=replace(GROWING, max_gpus=8), lowest_cap_w=300.0,
        max_slowdown=0.9, thermal_margin_c=40.0, gpu_peak_w=650.0,
    )  # fmt: skip
    up = option(found, UP)
    assert up.power_cap_w is None or up.power_cap_w < 650


def test_it_changes_nothing_of_the_fleet() -> None:
    fleet = make_arrays(racks=8, nodes=2)
    request = make_request(gpus=8, gpu_peak_w=650.0)
    cluster = idle_cluster(fleet)
    placement = place(cluster, request)
    assert isinstance(placement, Placement)
    cluster.allocate(placement, request)
    before = cluster.gpu_free.copy(), cluster.room_w.copy()
    budget_w = _budgets(fleet, Reach.of(fleet))
    room = Room(budget_w, budget_w.copy())
    advise(cluster, Running(request, placement, NOW, NOW + 1), GROWING, room, Reach.of(fleet))
    assert (cluster.gpu_free == before[0]).all()
    assert (cluster.room_w == before[1]).all()
