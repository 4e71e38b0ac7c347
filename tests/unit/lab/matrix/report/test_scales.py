"""Axes of plots, and lines with fewer points."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.matrix.report.scales import thinned, ticks, time_ticks, value_axis
from lab.matrix.result import Series

FINITE = st.floats(-1e9, 1e9).map(lambda value: round(value, 3))


@given(st.lists(FINITE, min_size=1, max_size=50), st.sampled_from([0.01, 1.0, 1000.0]))
def test_all_values_are_inside_an_axis_with_a_few_round_ticks(
    values: list[float], size: float
) -> None:
    axis = value_axis(values, [], size)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert axis.low < axis.high
    assert 1 <= len(axis.ticks) <= 5
    assert all(axis.low - 1e-6 <= tick <= axis.high + 1e-6 for tick in axis.ticks)


def test_a_budget_is_on_the_axis_though_nothing_comes_near_it() -> None:
    axis = value_axis([10.0, 12.0], [100.0], 1.0)
    assert axis.low == 0.0
    assert axis.high > 100.0
    assert axis.share(100.0) < 1.0


def test_an_axis_begins_at_zero_unless_nothing_could_be_seen() -> None:
    assert value_axis([30.0, 90.0], [], 1.0).low == 0.0
    assert value_axis([80.0, 90.0], [], 1.0).low > 70.0
    assert value_axis([0.0, 0.0], [], 1.0).low == 0.0


def test_ticks_are_round() -> None:
    assert ticks(0.0, 97.0, 4) == (0.0, 50.0)
    assert ticks(63.0, 92.0, 4) == (70.0, 80.0, 90.0)
    assert ticks(0.0, 240.0, 4) == (0.0, 100.0, 200.0)


@given(st.floats(1.0, 1e7))
def test_moments_are_few_and_in_the_run(end_s: float) -> None:
    found = time_ticks(end_s)
    assert found[0] == 0.0
    assert 1 <= len(found) <= 5
    assert found[-1] <= end_s * (1 + 1e-6)


def test_moments_are_round() -> None:
    assert time_ticks(3600.0) == (0.0, 900.0, 1800.0, 2700.0, 3600.0)
    assert time_ticks(2400.0) == (0.0, 600.0, 1200.0, 1800.0, 2400.0)
    assert time_ticks(40 * 86_400.0)[1] == 10 * 86_400.0


VALUES = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=400)


@given(VALUES, st.integers(4, 60))
def test_no_peak_is_lost_when_a_line_is_thinned(values: list[float | None], most: int) -> None:
    series = Series(name="x", unit="", t_s=[float(i) for i in range(len(values))], values=values)
    points = thinned(series, most)
    assert len(points) <= max(most, 1.5 * most + 3)
    known = [value for value in values if value is not None]
    kept = [value for _, value in points if value is not None]
    assert set(kept) <= set(known)
    if known:
        assert (min(kept), max(kept)) == (min(known), max(known))
    times = [t_s for t_s, _ in points]
    assert all(a <= b for a, b in itertools.pairwise(times))


def test_a_short_line_is_left_as_it_is_and_a_gap_stays() -> None:
    few = Series(name="x", unit="", t_s=[0.0, 1.0, 2.0], values=[1.0, None, 2.0])
    assert thinned(few, 10) == [(0.0, 1.0), (1.0, None), (2.0, 2.0)]
    many = Series(
        name="x",
        unit="",
        t_s=[float(i) for i in range(100)],
        values=[None if 40 <= i < 60 else float(i) for i in range(100)],
    )
    found = thinned(many, 20)
    assert any(value is None and 40 <= t_s < 60 for t_s, value in found)
    assert len(found) < 40


def test_a_value_that_is_the_only_one_has_an_axis() -> None:
    axis = value_axis([5.0], [], 1.0)
    assert axis.low < 5.0 < axis.high
    assert axis.share(5.0) == pytest.approx(0.5)
