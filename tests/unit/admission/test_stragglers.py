"""A rank is named that holds its gang back nearly all the time, and no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from admission.core.stragglers import WINDOW, stragglers

Floats = NDArray[np.float64]
NOBODY = np.nan


def reports(*ranks: float, spread: float = 1.5) -> tuple[Floats, Floats, Floats]:
    """Return reports, one a second, each of which names a rank, or nobody."""
    slowest = np.array(ranks, dtype=np.float64)
    at = np.arange(slowest.size, dtype=np.float64) + 1e9
    return at, slowest, np.array([1.02 if np.isnan(each) else spread for each in ranks])


def test_a_rank_that_is_slow_all_the_time_is_named_with_what_it_costs() -> None:
    (found,) = stragglers(*reports(*[3.0] * 60))
    assert (found.rank, found.slower, found.windows, found.of) == (3, 1.5, 2, 2)
    assert found.lost_share == pytest.approx(1.0 / 3.0)
    assert (found.since, found.until, found.is_last) == (1e9, 1e9 + 59.0, True)


def test_ranks_that_are_slow_in_turn_are_not_named() -> None:
    assert stragglers(*reports(*[0.0, 1.0, 2.0] * 40)) == ()


def test_four_fifths_of_the_reports_are_enough_and_fewer_are_not() -> None:
    assert stragglers(*reports(*[3.0] * 24, *[NOBODY] * 6))
    assert not stragglers(*reports(*[3.0] * 23, *[NOBODY] * 7))


def test_who_is_slow_by_less_than_a_tenth_is_not_named() -> None:
    assert not stragglers(*reports(*[3.0] * 60, spread=1.09))


def test_one_that_has_recovered_is_told_as_over() -> None:
    (found,) = stragglers(*reports(*[3.0] * 60, *[NOBODY] * 60))
    assert (found.windows, found.of, found.is_last) == (2, 4, False)


def test_of_two_the_one_that_costs_more_comes_first() -> None:
    at, slowest, spread = reports(*[1.0] * 30, *[2.0] * 90)
    assert [each.rank for each in stragglers(at, slowest, spread)] == [2, 1]


def test_machines_that_report_in_turn_are_judged_by_their_own_reports() -> None:
    told = reports(*[3.0, NOBODY] * WINDOW)
    assert stragglers(*told) == ()
    (found,) = stragglers(*told, machines=2)
    assert (found.rank, found.of) == (3, 1)


def test_few_reports_say_nothing() -> None:
    assert stragglers(*reports(*[3.0] * 14)) == ()
    assert stragglers(*reports()) == ()


@given(st.lists(st.integers(0, 3), max_size=200), st.floats(1.1, 5.0))
def test_at_most_one_rank_is_named_in_a_window_and_only_who_was_told(
    ranks: list[int], spread: float
) -> None:
    found = stragglers(*reports(*map(float, ranks), spread=spread))
    assert {each.rank for each in found} <= set(ranks)
    assert sum(each.windows for each in found) <= max((each.of for each in found), default=0)
    assert all(0.0 <= each.lost_share < 1.0 for each in found)
