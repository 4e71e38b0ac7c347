"""A rank is named that holds its gang back nearly all the time, and no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from admission.core.stragglers import WINDOW, Straggler, Usual, stragglers, usual_of

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


# Against what is usual


def earlier(*ranks: float, spread: float = 1.5) -> tuple[Floats, Floats]:
    """Return reports from before, with a little scatter, each naming a rank or nobody."""
    _, slowest, told = reports(*ranks, spread=spread)
    scatter = np.random.default_rng(1).normal(0.0, 0.01, told.size)
    return slowest, told * np.exp(scatter)


QUIET = usual_of(*earlier(*[NOBODY] * 90))


def lately(slow: int, *, spread: float = 1.5, usual: Usual | None = QUIET) -> tuple[Straggler, ...]:
    """Return who is named in a window in which rank 3 was slow for a while."""
    told = reports(*[NOBODY] * 10, *[3.0] * slow, *[NOBODY] * (20 - slow), spread=spread)
    return stragglers(*told, usual=usual)


def test_one_that_falls_behind_for_a_while_as_nobody_did_before_is_named_for_that_time() -> None:
    (found,) = lately(10)
    assert (found.rank, found.slower, found.windows, found.of) == (3, 1.5, 1, 1)
    assert (found.since, found.until) == (1e9 + 10.0, 1e9 + 19.0)
    assert lately(10, usual=None) == ()


def test_who_falls_behind_for_a_moment_is_not_named() -> None:
    assert lately(2) == ()


def test_what_was_usual_before_names_nobody() -> None:
    # A rank that is behind now and then, and a gang whose ranks differ as much all the time.
    assert lately(8, usual=usual_of(*earlier(*[3.0, NOBODY] * 45))) == ()
    assert lately(10, usual=usual_of(*earlier(*[0.0, 1.0, 2.0] * 30))) == ()


def test_another_rank_than_the_one_that_usually_is_behind_is_named() -> None:
    (found,) = lately(10, usual=usual_of(*earlier(*[5.0, *[NOBODY] * 4] * 18)))
    assert found.rank == 3


def test_too_few_reports_tell_nothing_of_what_is_usual() -> None:
    few = earlier(*[NOBODY] * 59)
    assert usual_of(*few) is None
    assert usual_of(*earlier(*[NOBODY] * 60)) is not None
    assert usual_of(*earlier(*[NOBODY] * 60), machines=2) is None


def test_a_rank_is_judged_by_the_reports_of_its_own_machine() -> None:
    told = reports(*[NOBODY] * 20, *[3.0, NOBODY] * 10, *[NOBODY] * 20)
    usual = usual_of(*earlier(*[NOBODY] * 180), machines=2)
    (found,) = stragglers(*told, machines=2, usual=usual)
    assert found.rank == 3


def test_a_gang_whose_ranks_are_in_turn_behind_as_before_is_hardly_ever_accused() -> None:
    random = np.random.default_rng(7)
    accused = 0
    for _ in range(300):
        slowest = random.integers(0, 8, 120).astype(np.float64)
        spread = np.exp(np.abs(random.standard_t(4, 120)) * 0.05) + 0.05
        usual = usual_of(slowest[:90], spread[:90])
        at = np.arange(30, dtype=np.float64)
        accused += bool(stragglers(at, slowest[90:], spread[90:], usual=usual))
    assert accused == 0


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.floats(1.0, 9.0)), max_size=150),
    st.lists(st.tuples(st.integers(-1, 3), st.floats(1.0, 9.0)), min_size=60, max_size=90),
)
def test_what_is_usual_only_adds_ranks_that_were_told(
    now: list[tuple[int, float]], before: list[tuple[int, float]]
) -> None:
    def told(rows: list[tuple[int, float]]) -> tuple[Floats, Floats]:
        ranks = np.array([np.nan if rank < 0 else rank for rank, _ in rows], dtype=np.float64)
        return ranks, np.array([spread for _, spread in rows], dtype=np.float64)

    at = np.arange(len(now), dtype=np.float64)
    alone = {each.rank for each in stragglers(at, *told(now))}
    found = stragglers(at, *told(now), usual=usual_of(*told(before)))
    assert alone <= {each.rank for each in found} <= {rank for rank, _ in now}
    assert all(each.since <= each.until and 0.0 <= each.lost_share < 1.0 for each in found)
