"""Slopes, forecasts, and how forecasts are judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.headroom import scores
from policies.headroom.past import LOAD_TABLES, load_trends
from policies.headroom.scores import Errors
from policies.headroom.trend import (
    LASTING_S,
    exhausted_in_s,
    lasting_s,
    percentile,
    risen,
    slope_per_s,
    still_for_s,
)
from tests.builders.arrays import make_arrays

Values = Any

TIMES: Any = np.arange(9) * 20.0


def series(*columns: object) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.stack([np.asarray(c, dtype=np.float32) for c in columns], axis=1)


def test_a_ramp_has_its_slope_and_a_flat_line_none() -> None:
    assert slope_per_s(TIMES, series(5 + 2 * TIMES, 0 * TIMES)) == pytest.approx([2.0, 0.0])


def test_one_wrong_reading_at_each_end_moves_it_by_a_slot_at_most() -> None:
    values = 100 + 0.5 * TIMES
    values[0], values[7] = 9_000, -4_000
    assert slope_per_s(TIMES, series(values)) == pytest.approx([0.5], rel=0.34)


def test_with_few_slots_or_unknown_values_no_slope_is_known() -> None:
    assert np.isnan(slope_per_s(TIMES[:3], series(TIMES)[:3])).all()
    assert np.isnan(slope_per_s(TIMES[:0], series(TIMES)[:0])).all()
    unknown = TIMES.copy()
    unknown[:3] = np.nan
    assert np.isnan(slope_per_s(TIMES, series(unknown))).all()


def test_power_is_still_since_it_last_left_its_band() -> None:
    moved = np.where(TIMES < 100, 300.0, 500.0)
    values = series(np.full(9, 400.0), moved, np.full(9, np.nan))
    still = still_for_s(TIMES, values, np.array([20.0, 20.0, 20.0]), 170.0)
    assert still.tolist() == [170.0, 70.0, 0.0]


def test_a_slope_dies_away() -> None:
    assert lasting_s(60.0) == pytest.approx(60, abs=3)
    assert lasting_s(1e9) == pytest.approx(LASTING_S)
    assert risen(np.array([np.nan, 2.0]), 1e9, 10.0).tolist() == [0.0, 20.0]


@given(st.floats(-1e6, 1e6), st.floats(-1e3, 1e3))
def test_it_is_used_up_when_the_slope_has_taken_all(left: float, slope: float) -> None:
    wait_s = exhausted_in_s(np.array([left]), np.array([slope]))[0]
    if left <= 0:
        assert wait_s == 0
    elif slope <= 0:
        assert np.isinf(wait_s)
    else:
        assert wait_s == pytest.approx(left / slope)


def test_what_is_not_known_has_no_time() -> None:
    left, slope = np.array([5.0, np.nan, -1.0, np.nan]), np.array([np.nan, 1.0, np.nan, -1.0])
    wait_s = exhausted_in_s(left, slope)
    assert np.isnan(wait_s).tolist() == [True, True, False, True]
    assert wait_s[2] == 0.0


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6, width=32)), max_size=30))
def test_a_percentile_is_a_value_that_was_there(values: list[float | None]) -> None:
    column = np.array(values, dtype=np.float32).reshape(-1, 1)
    found = percentile(column, 0.95)[0]
    known = sorted(value for value in values if value is not None)
    if not known:
        assert np.isnan(found)
    else:
        assert sum(value <= found for value in known) >= 0.95 * len(known)
        assert found in np.array(known, dtype=np.float32)


def errors_of(forecast: Values, came: Values, **given: Values) -> Errors:
    none = np.zeros(len(forecast), dtype=bool)
    values = {
        "as_now_w": forecast, "band_w": (forecast, forecast), "banded": none, "shown": none,
    }  # fmt: skip
    return scores.errors_of(forecast, came, **{**values, **given})


def test_errors_are_counted_with_their_sign_and_size() -> None:
    forecast = np.array([100.0, 110.0, 90.0, np.nan, 5.0])
    came = np.array([100.0, 100.0, 100.0, 100.0, np.nan])
    errors = errors_of(forecast, came)
    assert (errors.count, errors.bias_w, errors.mean_load_w) == (3, 0.0, 100.0)
    assert errors.percentile_w(0.95) == pytest.approx(10, rel=0.16)
    assert errors_of(np.zeros(0), np.zeros(0)).percentile_w(0.5) is None


def test_errors_are_counted_beside_as_now_with_the_band_and_what_was_shown() -> None:
    came = np.array([100.0, 100.0, 100.0, np.nan])
    yes = np.array([True, True, False, True])
    errors = errors_of(
        np.array([90.0, 105.0, 100.0, 100.0]), came, as_now_w=np.full(4, 80.0),
        band_w=(np.full(4, 85.0), np.array([95.0, 110.0, 110.0, 110.0])), banded=yes, shown=yes,
    )  # fmt: skip
    assert errors.of_as_now == pytest.approx(15 / 60)
    assert (errors.coverage, errors.shown, errors.banded) == (0.5, 2, 2)
    twice = errors.plus(errors)
    assert (twice.count, twice.of_as_now, twice.shown_share) == (6, errors.of_as_now, 4 / 6)
    assert Errors.none().of_as_now is None


@given(st.lists(st.floats(1.0, 1e8), min_size=1, max_size=50))
def test_a_percentile_of_errors_is_known_to_a_bin(sizes: list[float]) -> None:
    errors = errors_of(np.array(sizes), np.zeros(len(sizes)))
    for share in (0.5, 0.95):
        true = sorted(sizes)[int(np.ceil(share * len(sizes))) - 1]
        found = errors.percentile_w(share)
        assert found is not None
        assert true * 0.999 <= found <= true * 1.16


def test_a_fleet_without_gpus_has_trends_all_the_same() -> None:
    fleet = make_arrays(racks=1, nodes=1, gpus=0)
    columns = sum(len(getattr(fleet, name)) for name in LOAD_TABLES)
    values = np.zeros((2, columns), dtype=np.float32)
    slopes, still_s = load_trends(fleet, np.array([0.0, 10.0]), values)
    assert len(still_s) == 0
    assert [len(slope) for slope in slopes.values()] == [
        len(getattr(fleet, name)) for name in LOAD_TABLES
    ]
