"""What is normal of gangs is told apart from what held them back, and how far one is from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.account import Cause, GpuSpans
from admission.core.baselines import (
    LEAST_HOURS,
    NORMAL,
    Baseline,
    Bools,
    Condition,
    Metric,
    Shift,
    Spread,
    Working,
    conditions,
    outside,
    outsides,
    save_s,
    shifts,
    touched,
)
from admission.core.fleet_account import CAUSES, FleetAccount

NAN = np.nan


def of_gangs(*us_by_cause: dict[str, int]) -> FleetAccount:
    """Return an account in which gang n has the n-th sums, and nobody holds a free GPU."""
    us = [[each.get(cause, 0) for cause in CAUSES] for each in (*us_by_cause, {"free": 9})]
    gang = np.array([*range(len(us_by_cause)), -1])
    return FleetAccount(np.zeros(gang.size, np.int64), gang, np.array(us, dtype=np.int64))


def spans(*told: tuple[int, int, int]) -> GpuSpans:
    gpu, start, end = np.array(told, dtype=np.int64).reshape(-1, 3).T
    return GpuSpans(gpu=gpu, start_us=start, end_us=end)


# --- Readings ------------------------------------------------------------------------------------


def test_means_are_those_of_what_was_read_at_each_place() -> None:
    working = Working(2)
    working.add(
        np.array([0, 0, 1, -1]), np.array([500.0, 700.0, NAN, 900.0]),
        np.array([50.0, 60.0, 80.0, 99.0]), np.array([20.0, 20.0, 20.0, 20.0]),
    )  # fmt: skip
    found = working.means()
    assert found[Metric.POWER_W].tolist() == [600.0, pytest.approx(NAN, nan_ok=True)]
    assert found[Metric.TEMP_C].tolist() == [55.0, 80.0]
    assert found[Metric.C_PER_W][0] == pytest.approx((30.0 + 40.0) / 1200.0)
    assert np.isnan(found[Metric.C_PER_W][1])


def test_warmth_per_watt_is_not_known_without_what_the_zone_supplies() -> None:
    working = Working(1)
    working.add(np.array([0]), np.array([500.0]), np.array([50.0]), np.array([NAN]))
    assert np.isnan(working.means()[Metric.C_PER_W][0])


@given(
    st.lists(
        st.tuples(st.integers(-1, 2), st.floats(1.0, 1200.0), st.floats(10.0, 99.0)), min_size=1
    ),
    st.integers(0, 50),
)
def test_readings_may_come_in_any_pieces(told: list[tuple[int, float, float]], cut: int) -> None:
    place, power_w, temp_c = (np.array(each) for each in zip(*told, strict=True))
    supply_c = np.full(place.size, 18.0)
    whole, pieces = Working(3), Working(3)
    whole.add(place, power_w, temp_c, supply_c)
    for part in (slice(None, cut), slice(cut, None)):
        pieces.add(place[part], power_w[part], temp_c[part], supply_c[part])
    for metric, values in whole.means().items():
        np.testing.assert_allclose(pieces.means()[metric], values)


# --- Saves ---------------------------------------------------------------------------------------


def test_a_save_takes_its_share_of_the_time_between_two() -> None:
    us = of_gangs(
        {Cause.PRODUCTIVE: 90, Cause.OUTSIDE_STEPS: 10, Cause.STARTING: 50},
        {Cause.PRODUCTIVE: 100},
        {Cause.PRODUCTIVE: 90, Cause.OUTSIDE_STEPS: 10},
    ).us[:3]
    found = save_s(us, np.array([600.0, 600.0, NAN])).tolist()
    assert found == [60.0, pytest.approx(NAN, nan_ok=True), pytest.approx(NAN, nan_ok=True)]


# --- What held gangs back ------------------------------------------------------------------------


def test_an_hour_is_normal_where_nothing_held_the_gang_back() -> None:
    account = of_gangs(
        {Cause.PRODUCTIVE: 9, Cause.DATA_WAIT: 3},
        {"throttled_sw_thermal_unexpected": 1, "throttled_sw_thermal_expected": 1},
        {Cause.CAPPED: 1, Cause.PAUSED: 2},
    )
    of_incident = np.array([False, True, False])
    capped = np.array([False, True, True])
    others: dict[str, Bools] = {Condition.INCIDENT: of_incident, Condition.CAPPED: capped}
    found = [set(each) for each in conditions(account, 3, others)]
    assert found == [set(), {"throttled_sw_thermal", "capped", "incident"}, {"paused", "capped"}]


def test_what_was_upon_a_part_counts_while_the_gang_held_it() -> None:
    held = spans((0, 0, 10), (1, 0, 10), (0, 10, 20))
    gang = np.array([0, 0, 1])
    assert touched(spans((0, 8, 10)), held, gang, 2).tolist() == [True, False]
    assert touched(spans((0, 12, 30)), held, gang, 2).tolist() == [False, True]
    assert touched(spans((0, 9, 11)), held, gang, 2).tolist() == [True, True]
    assert touched(spans((2, 0, 20)), held, gang, 2).tolist() == [False, False]
    assert touched(spans(), held, gang, 2).tolist() == [False, False]


# --- Outside of what is normal -------------------------------------------------------------------

USUAL = Spread(LEAST_HOURS, 400.0, 500.0, 600.0)


@pytest.mark.parametrize(
    ("value", "is_above"), [(400.0, None), (600.0, None), (399.0, False), (650.0, True)]
)
def test_a_value_is_outside_beyond_the_10th_or_90th_percentile(
    value: float, is_above: bool | None
) -> None:
    found = outside(Metric.POWER_W, value, USUAL)
    assert (None if found is None else found.is_above) is is_above


def test_how_far_it_is_stands_beside_the_usual_value() -> None:
    found = outside(Metric.POWER_W, 650.0, USUAL)
    assert found is not None
    assert found.ratio == pytest.approx(1.3)


def test_of_too_few_normal_hours_nothing_is_said() -> None:
    few = Spread(LEAST_HOURS - 1, 400.0, 500.0, 600.0)
    assert outside(Metric.POWER_W, 900.0, few) is None
    assert outside(Metric.POWER_W, None, USUAL) is None
    assert outside(Metric.POWER_W, 900.0, None) is None


def test_a_usual_value_of_nothing_has_no_ratio() -> None:
    found = outside(Metric.SYNC_S, 0.2, Spread(LEAST_HOURS, 0.0, 0.0, 0.0))
    assert found is not None
    assert found.ratio is None


def test_degraded_hours_are_no_normal() -> None:
    degraded = Baseline("vision", "train", "oslo", "", "capped", {Metric.POWER_W: USUAL})
    assert outsides({Metric.POWER_W: 900.0}, [degraded]) == []
    normal = Baseline("vision", "train", "oslo", "", NORMAL, {Metric.POWER_W: USUAL})
    (found,) = outsides({Metric.POWER_W: 900.0, Metric.TEMP_C: 90.0}, [degraded, normal])
    assert found.metric is Metric.POWER_W


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e3), st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_what_is_within_is_never_outside(p10: float, up: float, more: float, at: float) -> None:
    spread = Spread(LEAST_HOURS, p10, p10 + up, p10 + up + more)
    value = p10 + at
    found = outside(Metric.POWER_W, value, spread)
    assert (found is None) == (spread.p10 <= value <= spread.p90)


# --- What a cause does ---------------------------------------------------------------------------


def of_phase(phase: str, cause: str, p50: float, hours: int) -> Baseline:
    spread = Spread(hours, p50, p50, p50)
    return Baseline("vision", phase, "oslo", "", cause, {Metric.POWER_W: spread})


def test_under_a_cause_each_phase_is_held_against_its_own_normal() -> None:
    found = shifts([
        of_phase("train", NORMAL, 400.0, 50), of_phase("train", "capped", 200.0, 9),
        of_phase("eval", NORMAL, 100.0, 50), of_phase("eval", "capped", 90.0, 2),
    ])  # fmt: skip
    assert found == {"capped": {Metric.POWER_W: Shift(0.5, 11)}}


@pytest.mark.parametrize(
    "normal",
    [
        of_phase("train", NORMAL, 400.0, LEAST_HOURS - 1),
        of_phase("train", NORMAL, 0.0, 50),
        of_phase("eval", NORMAL, 400.0, 50),
    ],
)
def test_without_a_normal_of_its_own_a_phase_says_nothing(normal: Baseline) -> None:
    assert shifts([normal, of_phase("train", "capped", 200.0, 9)]) == {}


def test_of_many_phases_the_median_is_told_by_their_hours() -> None:
    told = [
        each
        for at, hours in enumerate((1, 1, 9, 1, 1))
        for each in (
            of_phase(f"p{at}", NORMAL, 100.0, 50), of_phase(f"p{at}", "capped", 50.0 + at, hours)
        )
    ]  # fmt: skip
    assert shifts(told)["capped"][Metric.POWER_W] == Shift(0.52, 13)
