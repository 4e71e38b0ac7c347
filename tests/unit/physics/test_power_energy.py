"""Energy of series, and what it costs on a grid that changes."""

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from physics.errors import ImpossibleArgumentError
from physics.power import (
    carbon_kg,
    cheapest_window,
    cleanest_window,
    cost_usd,
    grid_bill,
    measured_energy,
)

Array = NDArray[np.float64]

HOUR_S = 3600.0
lengths = arrays(np.float64, 12, elements=st.floats(0.1, 1e4))
rates = arrays(np.float64, 12, elements=st.floats(0.0, 1000.0))


def series(*values: float) -> Array:
    return np.array(values, dtype=np.float64)


def test_a_kilowatt_for_an_hour() -> None:
    energy_j = measured_energy(time_s=series(0.0, HOUR_S), power_w=series(1000.0, 1000.0)).energy_j
    assert energy_j == 3.6e6
    assert cost_usd(energy_j=energy_j, price_usd_per_kwh=0.12) == pytest.approx(0.12)
    assert carbon_kg(energy_j=energy_j, intensity_g_per_kwh=400.0) == pytest.approx(0.4)


def test_samples_may_lie_at_any_distance() -> None:
    time_s = np.array([0.0, 1.0, 5.0, 5.0, 30.0, 100.0])
    found = measured_energy(time_s=time_s, power_w=200.0 + 3.0 * time_s)
    assert found.energy_j == pytest.approx(200.0 * 100.0 + 1.5 * 100.0**2)
    assert found.mean_w == pytest.approx(350.0)
    assert (found.covered_s, found.missing_s, found.gaps) == (100.0, 0.0, 0)


def test_a_gap_is_told_and_not_filled() -> None:
    found = measured_energy(
        time_s=series(0.0, 2.0, 4.0, 64.0, 66.0), power_w=np.full(5, 500.0), max_gap_s=10.0
    )
    assert found.energy_j == 3000.0
    assert (found.covered_s, found.missing_s, found.gaps) == (6.0, 60.0, 1)
    assert found.mean_w == 500.0


def test_zero_and_negative_readings_are_counted_and_kept() -> None:
    found = measured_energy(time_s=series(0.0, 1.0, 2.0, 3.0), power_w=series(0.0, -4.0, 10.0, 0.0))
    assert (found.zero_readings, found.negative_readings) == (2, 1)
    assert found.energy_j == 6.0


def test_one_reading_has_power_but_no_energy() -> None:
    found = measured_energy(time_s=series(5.0), power_w=series(70.0))
    assert (found.energy_j, found.mean_w, found.covered_s) == (0.0, 70.0, 0.0)


@given(lengths, rates, st.integers(1, 10))
def test_the_energy_of_two_parts_is_that_of_the_whole(
    length_s: Array, power_w: Array, cut: int
) -> None:
    time_s = np.cumsum(length_s)
    whole = measured_energy(time_s=time_s, power_w=power_w).energy_j
    first = measured_energy(time_s=time_s[: cut + 1], power_w=power_w[: cut + 1]).energy_j
    rest = measured_energy(time_s=time_s[cut:], power_w=power_w[cut:]).energy_j
    assert first + rest == pytest.approx(whole, abs=1e-6)


def test_times_that_go_back_are_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="time_s must be in rising order"):
        measured_energy(time_s=series(0.0, 2.0, 1.0), power_w=series(1.0, 1.0, 1.0))


def test_a_step_holds_until_the_next() -> None:
    bill = grid_bill(
        time_s=series(0.0, HOUR_S, 2 * HOUR_S),
        power_w=series(1e6, 1e6, 1e6),
        intensity_g_per_kwh=series(100.0, 300.0, 9999.0),
        price_usd_per_kwh=series(0.2, -0.1, 99.0),
        pue=1.5,
    )
    assert bill.energy_j == pytest.approx(2 * 1.5 * 3.6e9)
    assert bill.carbon_kg == pytest.approx(1500.0 * 0.1 + 1500.0 * 0.3)
    assert bill.cost_usd == pytest.approx(1500.0 * 0.2 - 1500.0 * 0.1)
    assert bill.mean_intensity_g_per_kwh == pytest.approx(200.0)
    assert bill.mean_price_usd_per_kwh == pytest.approx(0.05)


def test_straight_lines_are_integrated_exactly() -> None:
    fine_s = np.linspace(0.0, HOUR_S, 100_001)
    coarse = grid_bill(
        time_s=series(0.0, HOUR_S),
        power_w=series(1e6, 3e6),
        intensity_g_per_kwh=series(400.0, 100.0),
        price_usd_per_kwh=series(0.1, 0.5),
        between="linear",
    )
    share = fine_s / HOUR_S
    fine = grid_bill(
        time_s=fine_s,
        power_w=1e6 + 2e6 * share,
        intensity_g_per_kwh=400.0 - 300.0 * share,
        price_usd_per_kwh=0.1 + 0.4 * share,
    )
    assert coarse.carbon_kg == pytest.approx(fine.carbon_kg, rel=1e-5)
    assert coarse.cost_usd == pytest.approx(fine.cost_usd, rel=1e-5)


@given(lengths, rates, st.sampled_from(["step", "linear"]))
def test_at_one_intensity_and_price_the_bill_is_that_of_the_energy(
    length_s: Array, power_w: Array, between: Literal["step", "linear"]
) -> None:
    time_s = np.cumsum(length_s)
    energy_j = measured_energy(time_s=time_s, power_w=power_w).energy_j
    bill = grid_bill(
        time_s=time_s,
        power_w=power_w,
        intensity_g_per_kwh=np.full(12, 250.0),
        price_usd_per_kwh=np.full(12, 0.08),
        between=between,
    )
    assert bill.carbon_kg == pytest.approx(
        carbon_kg(energy_j=energy_j, intensity_g_per_kwh=250.0), abs=1e-9
    )
    assert bill.cost_usd == pytest.approx(
        cost_usd(energy_j=energy_j, price_usd_per_kwh=0.08), abs=1e-9
    )


def test_a_gap_is_not_billed() -> None:
    bill = grid_bill(
        time_s=series(0.0, 60.0, HOUR_S),
        power_w=np.full(3, 1000.0),
        intensity_g_per_kwh=np.full(3, 100.0),
        price_usd_per_kwh=np.full(3, 0.1),
        max_gap_s=120.0,
    )
    assert bill.energy_j == 60e3
    assert bill.missing_s == HOUR_S - 60.0


def test_without_energy_the_means_are_those_of_time() -> None:
    bill = grid_bill(
        time_s=series(0.0, 1.0),
        power_w=series(0.0, 0.0),
        intensity_g_per_kwh=series(100.0, 200.0),
        price_usd_per_kwh=series(0.1, 0.3),
    )
    assert (bill.energy_j, bill.carbon_kg, bill.cost_usd) == (0.0, 0.0, 0.0)
    assert bill.mean_intensity_g_per_kwh == 150.0


def test_another_way_between_readings_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="between must be one of step, linear"):
        grid_bill(
            time_s=series(0.0),
            power_w=series(1.0),
            intensity_g_per_kwh=series(1.0),
            price_usd_per_kwh=series(1.0),
            between="cubic",  # type: ignore[arg-type]
        )


DAY: dict[str, Any] = {"time_s": np.arange(24) * HOUR_S, "power_w": 1e6}
PRICES = np.array([0.10] * 6 + [0.25] * 4 + [0.05] * 5 + [0.30] * 5 + [0.12] * 4)


def test_the_cheapest_window_lies_in_the_cheap_hours() -> None:
    found = cheapest_window(price_usd_per_kwh=PRICES, duration_s=4 * HOUR_S, **DAY)
    assert (found.start_s, found.end_s) == (10 * HOUR_S, 14 * HOUR_S)
    assert found.cost_usd == pytest.approx(4 * 1000 * 0.05)
    assert found.saved_usd == pytest.approx(4 * 1000 * 0.05)


def test_a_window_need_not_begin_on_a_step() -> None:
    found = cheapest_window(price_usd_per_kwh=PRICES, duration_s=6.5 * HOUR_S, **DAY)
    # It ends with the cheap hours: what went before them is cheaper than what comes after.
    assert found.end_s == pytest.approx(15 * HOUR_S)


def test_a_window_keeps_its_limits() -> None:
    found = cheapest_window(
        price_usd_per_kwh=PRICES,
        duration_s=4 * HOUR_S,
        earliest_s=12.5 * HOUR_S,
        latest_end_s=20 * HOUR_S,
        **DAY,
    )
    assert found.start_s == 12.5 * HOUR_S
    assert found.saved_usd == 0.0


def test_the_cleanest_window_counts_carbon() -> None:
    found = cleanest_window(
        intensity_g_per_kwh=1000.0 * PRICES, duration_s=2 * HOUR_S, earliest_s=6 * HOUR_S, **DAY
    )
    assert found.start_s == 10 * HOUR_S
    assert found.carbon_kg == pytest.approx(2 * 1000 * 0.05)
    assert found.saved_kg == pytest.approx(2 * 1000 * 0.20)


def test_of_equal_windows_the_earliest_is_taken() -> None:
    found = cheapest_window(price_usd_per_kwh=np.full(24, 0.1), duration_s=3 * HOUR_S, **DAY)
    assert found.start_s == 0.0


def test_many_loads_are_placed_at_once() -> None:
    hours = np.array([1.0, 4.0, 6.5, 24.0])
    together = cheapest_window(price_usd_per_kwh=PRICES, duration_s=hours * HOUR_S, **DAY)
    alone = [
        cheapest_window(price_usd_per_kwh=PRICES, duration_s=hour * HOUR_S, **DAY) for hour in hours
    ]
    assert together.start_s.tolist() == [each.start_s for each in alone]
    assert together.cost_usd == pytest.approx([each.cost_usd for each in alone])


@given(lengths, rates, st.floats(0.05, 1.0), st.floats(0.0, 1.0))
def test_no_start_is_cheaper_than_the_one_found(
    length_s: Array, price: Array, share: float, place: float
) -> None:
    time_s = np.cumsum(length_s)
    duration_s = share * (time_s[-1] - time_s[0])
    load: dict[str, Any] = {"time_s": time_s, "price_usd_per_kwh": price, "power_w": 3.6e6}
    found = cheapest_window(duration_s=duration_s, **load)
    latest_s = time_s[-1] + length_s[-1] - duration_s
    other_s = time_s[0] + place * (latest_s - time_s[0])
    there = cheapest_window(duration_s=duration_s, earliest_s=other_s, **load)
    assert found.cost_usd <= (there.cost_usd + there.saved_usd) * (1 + 1e-9) + 1e-6


def test_a_load_that_fits_exactly_is_not_refused_for_rounding() -> None:
    # The series ends at 0.39999999999999997, and the load at 0.4.
    found = cheapest_window(
        time_s=np.array([0.0, 0.1, 0.2, 0.3]),
        price_usd_per_kwh=np.ones(4),
        power_w=1.0,
        duration_s=0.3,
        earliest_s=0.1,
    )
    assert found.start_s == 0.1


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("duration_s", {"duration_s": 25 * HOUR_S}),
        ("duration_s", {"duration_s": 4 * HOUR_S, "earliest_s": 22 * HOUR_S}),
        ("earliest_s", {"earliest_s": -1.0}),
        ("latest_end_s", {"latest_end_s": 25 * HOUR_S}),
        ("time_s", {"time_s": np.zeros(24)}),
    ],
)
def test_a_window_that_cannot_be_is_refused(argument: str, changes: dict[str, Any]) -> None:
    load: dict[str, Any] = {"price_usd_per_kwh": PRICES, "duration_s": HOUR_S, **DAY}
    with pytest.raises(ImpossibleArgumentError, match=f"^{argument} must be"):
        cheapest_window(**load | changes)
