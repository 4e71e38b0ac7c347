"""Margins of GPUs, and where heat settles, against the laws on one part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from physics.thermal import steady_state_c, time_to_throttle_s
from policies.headroom.conditions import conditions
from policies.headroom.inputs import Past
from policies.scopes import ScopeKind
from tests.builders.arrays import SHUTDOWN_C, SLOWDOWN_C, SLOWDOWN_MEM_C, make_arrays, make_frame
from tests.unit.policies.headroom.scenes import (
    AMBIENT_C,
    CAPACITANCE,
    NOW,
    all_read,
    column,
    fitted,
    headroom_of,
)

GPU, NODE, RACK, ZONE, SITE = (
    ScopeKind.GPU, ScopeKind.NODE, ScopeKind.RACK, ScopeKind.ZONE, ScopeKind.SITE,
)  # fmt: skip


def test_margins_are_to_the_gpus_own_limit_or_its_models() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=2)
    limit_c = np.array([np.nan, 80.0])
    headroom = headroom_of(fleet, all_read(fleet, temp_c=60.0, temp_limit_c=limit_c))
    assert column(headroom, GPU, "thermal_margin_c") == [SLOWDOWN_C - 60, 20.0]
    assert column(headroom, GPU, "shutdown_margin_c") == [SHUTDOWN_C - 60] * 2
    assert column(headroom, GPU, "thermal_mem_margin_c") == [SLOWDOWN_MEM_C - 55] * 2
    assert column(headroom, RACK, "thermal_margin_c") == [20.0]


def test_it_says_where_heat_settles_and_when_a_gpu_throttles() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=2)
    power_w = np.array([400.0, 690.0])
    headroom = headroom_of(fleet, all_read(fleet, power_w=power_w), past=fitted(fleet, 0.1))
    law: dict[str, Any] = {"power_w": power_w, "ambient_c": AMBIENT_C, "resistance_c_per_w": 0.1}
    settled_c = steady_state_c(**law)
    assert column(headroom, GPU, "thermal_steady_margin_c") == pytest.approx(SLOWDOWN_C - settled_c)
    wait_s = time_to_throttle_s(
        temp_c=50.0, limit_c=SLOWDOWN_C, capacitance_j_per_c=CAPACITANCE, **law
    )
    assert column(headroom, GPU, "throttle_in_s") == pytest.approx(wait_s.tolist())
    assert np.isinf(wait_s[0])
    assert column(headroom, SITE, "throttle_in_s") == pytest.approx([wait_s[1]])


def test_a_gpu_without_a_fit_is_taken_for_one_as_its_maker_allows() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=1)
    headroom = headroom_of(fleet, all_read(fleet, power_w=700.0))
    # It may draw its rated power in air of 40 °C, and here it is of 22 °C.
    assert column(headroom, GPU, "thermal_steady_margin_c") == pytest.approx([18.0])
    assert column(headroom, GPU, "thermal_confidence") == [0.3]


def test_where_power_was_still_for_long_the_reading_is_where_it_settles() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=2)
    past = fitted(fleet, 0.1)  # time constant 48 s
    past = replace(past, gpu_still_s=np.array([200.0, 20.0]))
    headroom = headroom_of(fleet, all_read(fleet, power_w=690.0, temp_c=70.0), past=past)
    settled = column(headroom, GPU, "thermal_steady_margin_c")
    assert settled == pytest.approx([SLOWDOWN_C - 70.0, SLOWDOWN_C - (AMBIENT_C + 69.0)])
    assert np.isinf(column(headroom, GPU, "throttle_in_s")[0])


def test_a_silent_gpu_is_taken_at_its_rated_power_and_no_cooler_than_it_was() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=2)
    frame = all_read(fleet, ts=NOW - 99, power_w=100.0, temp_c=np.array([40.0, 80.0]))
    headroom = headroom_of(fleet, frame, past=fitted(fleet))
    rated_c = AMBIENT_C + 0.052 * 700
    assert column(headroom, GPU, "thermal_margin_c") == pytest.approx([SLOWDOWN_C - rated_c, 7.0])
    assert np.isnan(column(headroom, RACK, "hottest_c")).all()
    assert column(headroom, RACK, "thermal_confidence") == [0.0]


def test_a_gpu_that_was_never_heard_is_taken_to_be_at_its_slowdown() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=1)
    headroom = headroom_of(fleet, make_frame(fleet, now=NOW))
    assert column(headroom, GPU, "thermal_margin_c") == [0.0]
    assert column(headroom, GPU, "thermal_mem_margin_c") == [0.0]


def test_a_sensor_that_a_gpu_does_not_have_is_not_missing() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=2)
    frame = all_read(fleet, temp_mem_c=np.array([np.nan, 80.0]))
    headroom = headroom_of(fleet, frame)
    assert column(headroom, NODE, "thermal_mem_margin_c") == [15.0]


def test_throttling_gpus_are_counted() -> None:
    fleet = make_arrays(racks=2, nodes=2, gpus=2)
    throttle = np.array([0x20, 0, 1, 0, 0, 0, 0, 0])
    headroom = headroom_of(fleet, all_read(fleet, throttle=throttle))
    assert column(headroom, RACK, "throttling") == [1.0, 0.0]
    assert column(headroom, SITE, "throttling_share") == [1 / 8]
    assert column(headroom, SITE, "gpus") == [8.0]


def test_the_warmest_meter_is_the_inlet_of_rack_zone_and_site() -> None:
    fleet = make_arrays(racks=5)
    meters = replace(fleet.meters, kind=np.ones(5, dtype=np.int64))  # temperature
    fleet = replace(fleet, meters=meters)
    warm_c = np.array([21.0, 24.0, 22.0, 23.0, 30.0])
    frame = make_frame(
        fleet, now=NOW, gpu={"power_w": 400.0, "temp_c": 50.0}, meter={"temp_c": warm_c}
    )
    headroom = headroom_of(fleet, frame)
    assert column(headroom, RACK, "inlet_c") == [21.0, 24.0, 22.0, 23.0, 30.0]
    assert column(headroom, ZONE, "inlet_c") == [24.0, 30.0]
    assert column(headroom, SITE, "inlet_c") == [30.0]
    # Without a fit, warmer air leaves less.
    steady = column(headroom, RACK, "thermal_steady_margin_c")
    assert steady[4] < steady[1] < steady[0]


@pytest.mark.parametrize("rated_w", [0.0, 1e-3, np.nan])
def test_a_rating_that_cannot_be_does_no_harm(rated_w: float) -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=1)
    gpus = replace(fleet.gpus, rated_w=np.array([rated_w]), slowdown_c=np.array([np.nan]))
    fleet = replace(fleet, gpus=gpus)
    past = replace(fitted(fleet, np.nan), gpu_still_s=np.array([1e9]))
    assert len(headroom_of(fleet, all_read(fleet, power_w=650.0), past=past).table(GPU)) == 1


@pytest.mark.parametrize("value", [-1e6, 0.0, 1e6])
def test_an_inventory_of_nonsense_does_not_stop_the_evaluation(value: float) -> None:
    fleet = make_arrays(racks=2, nodes=1, gpus=2)
    fleet = replace(
        fleet,
        gpus=replace(fleet.gpus, slowdown_c=np.full(4, value), shutdown_c=np.full(4, value)),
        zones=replace(fleet.zones, supply_c=np.full(1, value), capacity_w=np.full(1, abs(value))),
        racks=replace(fleet.racks, budget_w=np.full(2, abs(value))),
        domains=replace(fleet.domains, capacity_w=np.full(len(fleet.domains), abs(value))),
        links=replace(fleet.links, capacity_bits_per_s=np.full(3, abs(value))),
    )
    past = replace(Past.none(fleet), gpu_still_s=np.full(4, 1e6))
    for temp_c in (-1e4, 1e4):
        headroom = headroom_of(fleet, all_read(fleet, temp_c=temp_c), past=past)
        assert len(headroom.table(GPU)) == 4
        assert conditions(headroom, "s1").answer
