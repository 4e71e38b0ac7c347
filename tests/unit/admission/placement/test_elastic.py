"""With less: fewer GPUs, a cap, or both, whichever does the most work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.placement.cluster import Cluster
from admission.core.placement.elastic import draw_of
from admission.core.placement.place import place
from admission.core.reasons import ReasonToken
from admission.core.request import Locality, Placement
from fleet.power_curves import power_curves_of
from fleet.tables import FleetArrays
from tests.builders.arrays import make_arrays
from tests.unit.admission.placement.scenes import (
    make_cluster,
    make_request,
    make_restriction,
    placed,
    refused,
    with_resistance,
)

FACTOR = 1.0 + 3200.0 / 5600.0


def zone_with(room_w: float) -> Cluster:
    """Return 64 idle GPUs whose cooling zone takes so much more."""
    fleet = make_arrays(racks=4, nodes=2, gpus=8, zone_w=8 * 2_280.0 + room_w)
    return make_cluster(fleet)


def find(cluster: Cluster, **values: Any) -> Placement:
    return placed(place(cluster, make_request(**values)))


def named(model: str) -> FleetArrays:
    """Return a fleet of GPUs of that model, of 700 W each."""
    fleet = make_arrays(racks=1, nodes=1, gpus=8)
    names = np.array([model, "host"], dtype=object)
    return replace(fleet, models=replace(fleet.models, names=names))


def speed(cap_w: float, peak_w: float = 700.0) -> float:
    return float(power_curves_of(["H100"], np.array([700.0])).speed(0, cap_w, peak_w))


def test_nothing_is_taken_of_a_gang_that_fits() -> None:
    found = find(zone_with(1e5), gpus=32, min_gpus=8, lowest_cap_w=300.0, max_slowdown=0.5)
    assert (len(found.gpus), found.power_cap_w, found.slowdown) == (32, None, 0.0)


def test_a_cap_is_as_high_as_it_fits() -> None:
    """16 GPUs at 500 W each are 430 W above idle, hosts besides."""
    room_w = FACTOR * 16 * 430.0 + 20.0
    found = find(zone_with(room_w), gpus=16, lowest_cap_w=300.0, max_slowdown=0.5)
    assert (len(found.gpus), found.power_cap_w) == (16, 500.0)
    assert found.slowdown == pytest.approx(1.0 - speed(500.0))
    assert found.slowdown == pytest.approx(0.1436, abs=1e-3)
    assert found.total_w == pytest.approx(2 * 1400.0 + FACTOR * 16 * 500.0, abs=0.1)


@pytest.mark.parametrize(
    "values",
    [
        {"lowest_cap_w": 510.0, "max_slowdown": 0.5},
        {"lowest_cap_w": 300.0, "max_slowdown": 0.05},
        {"lowest_cap_w": 300.0},
        {"max_slowdown": 0.5},
    ],
)
def test_no_cap_is_set_that_is_not_accepted(values: dict[str, Any]) -> None:
    cluster = zone_with(FACTOR * 16 * 430.0 + 20.0)
    found = refused(place(cluster, make_request(gpus=16, **values)))
    assert list(found) == [ReasonToken.COOLING_CAPACITY]


@pytest.mark.parametrize(("model", "lowest_w"), [("H100", 350.0), ("A40", 235.0)])
def test_no_cap_is_below_those_that_somebody_measured(model: str, lowest_w: float) -> None:
    """Of the A40 down to a third of its rating, of no H100: half of it is the least."""
    draw = draw_of(named(model), 0, 0, make_request(lowest_cap_w=1.0, max_slowdown=0.99))
    assert draw.lowest_w == lowest_w


@pytest.mark.parametrize("model", ["H100", "A40"])
@given(
    max_slowdown=st.floats(0.01, 0.9),
    peak_w=st.floats(100.0, 700.0),
    lowest_w=st.floats(1.0, 700.0),
)
def test_a_job_expects_to_lose_no_more_than_it_agreed_to(
    model: str, max_slowdown: float, peak_w: float, lowest_w: float
) -> None:
    asks: dict[str, Any] = {
        "gpu_peak_w": peak_w,
        "lowest_cap_w": lowest_w,
        "max_slowdown": max_slowdown,
    }
    draw = draw_of(named(model), 0, 0, make_request(**asks))
    assert draw.lowest_w >= min(lowest_w, peak_w)
    assert draw.speed(draw.lowest_w) >= 1.0 - max_slowdown
    assert draw.speed(draw.peak_w) == 1.0


def test_a_tenth_of_its_speed_buys_less_than_idle_power_as_static_power_promised() -> None:
    """With 70 W as what an H100 draws at any speed the cap was 442 W, and jobs lost 16 to 22 %."""
    draw = draw_of(named("H100"), 0, 0, make_request(lowest_cap_w=200.0, max_slowdown=0.1))
    assert draw.lowest_w == 570.0


def test_fewer_gpus_where_it_takes_no_cap() -> None:
    found = find(zone_with(FACTOR * 20 * 630.0 + 20.0), gpus=32, min_gpus=8)
    assert (len(found.gpus), found.power_cap_w) == (20, None)
    assert found.slowdown == pytest.approx(1.0 - 20 / 32)


def test_fewer_gpus_in_whole_nodes() -> None:
    found = find(zone_with(FACTOR * 20 * 630.0 + 20.0), gpus=32, min_gpus=8, gpus_per_node=8)
    assert len(found.gpus) == 16
    assert len(found.nodes) == 2


def test_all_gpus_under_a_cap_do_more_than_fewer_without() -> None:
    """Power falls faster than speed: the watts of 12 GPUs at full speed feed 16 at 96 %."""
    room_w = FACTOR * 12 * 630.0 + 20.0
    both = find(zone_with(room_w), gpus=16, min_gpus=4, lowest_cap_w=300.0, max_slowdown=0.5)
    assert (len(both.gpus), both.power_cap_w) == (16, 540.0)
    assert both.slowdown == pytest.approx(1.0 - speed(540.0))
    assert both.slowdown < 1.0 - 12 / 16


def test_fewer_gpus_and_a_cap_where_neither_alone_does() -> None:
    room_w = FACTOR * 12 * 330.0 + 20.0
    found = find(zone_with(room_w), gpus=16, min_gpus=12, lowest_cap_w=400.0, max_slowdown=0.5)
    assert (len(found.gpus), found.power_cap_w) == (12, 400.0)
    assert found.slowdown == pytest.approx(1.0 - 12 / 16 * speed(400.0))


def test_no_other_way_does_more() -> None:
    """Of all sizes and caps in steps of 5 W none that fits does more, by 2 %."""
    agrees: dict[str, Any] = {"lowest_cap_w": 300.0, "max_slowdown": 0.5}
    lowest_w = draw_of(named("H100"), 0, 0, make_request(**agrees)).lowest_w
    for room_w in (9_000.0, 13_000.0, 17_500.0, 23_000.0):
        cluster = zone_with(room_w)
        best = 0.0
        for cap_w in np.arange(lowest_w, 701.0, 5.0):
            gpus = min(int(room_w / (FACTOR * (cap_w - 70.0))), 32)
            best = max(best, gpus * speed(cap_w))
        found = find(cluster, gpus=32, min_gpus=1, **agrees)
        assert 32 * (1.0 - found.slowdown) >= 0.98 * best


def test_heat_sets_a_cap_too() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=8)
    # 22 °C and 0.1 °C/W: at 650 W just at the slowdown.
    cluster = make_cluster(fleet, past=with_resistance(fleet, 0.1))
    found = find(cluster, lowest_cap_w=300.0, max_slowdown=0.5, thermal_margin_c=5.0)
    assert found.power_cap_w == 600.0


def test_a_cap_in_force_is_the_highest() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=8)
    cluster = make_cluster(
        fleet, restrictions=[make_restriction("power_cap_w", "rack s1/A01", 455.0)]
    )
    found = find(cluster, lowest_cap_w=300.0, max_slowdown=0.5)
    assert found.power_cap_w == 455.0


def test_a_gang_that_shrinks_still_stands_together() -> None:
    fleet = make_arrays(racks=4, nodes=2, gpus=8)
    cluster = make_cluster(fleet, occupied=[gpu for gpu in range(64) if gpu % 8 < 2])
    found = find(cluster, gpus=16, min_gpus=4, required=Locality.RACK)
    assert (len(found.gpus), found.locality) == (12, Locality.RACK)
    found = find(cluster, gpus=8, min_gpus=4, required=Locality.NODE)
    assert (len(found.gpus), found.locality) == (6, Locality.NODE)


def test_the_job_s_own_peak_is_the_top_of_its_curve() -> None:
    room_w = FACTOR * 16 * 380.0 + 20.0
    found = find(zone_with(room_w), gpus=16, gpu_peak_w=500.0, lowest_cap_w=300.0, max_slowdown=0.5)
    assert found.power_cap_w == 450.0
    assert found.slowdown == pytest.approx(1.0 - speed(450.0, peak_w=500.0))
