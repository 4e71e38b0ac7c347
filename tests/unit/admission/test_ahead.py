"""What a site is committed to from now on: sums of what is known to begin and to end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.ahead import Ahead, Limit, Spans, ahead

NOW, STEP_S, BUCKETS = 1_000_000.0, 900.0, 8


def made(*spans: tuple[float, float, float], base_w: float = 0.0, budget_w: float = 1e4,
         limits: tuple[Limit, ...] = ()) -> Ahead:  # fmt: skip
    """Spans are begin and end, in steps from now, and watts."""
    begin, end, watts = np.array(spans, dtype=float).reshape(-1, 3).T
    asked = Spans(NOW + STEP_S * begin, NOW + STEP_S * end, watts)
    return ahead(base_w, budget_w, asked, limits, start=NOW, step_s=STEP_S, buckets=BUCKETS)


def test_what_begins_before_and_ends_within_counts_until_its_end() -> None:
    found = made((-5, 3, 700.0), base_w=100.0)
    assert found.committed.tolist() == [800.0] * 3 + [100.0] * 5
    assert found.at[3] == NOW + 3 * STEP_S


def test_what_lasts_for_a_part_of_a_bucket_counts_in_all_of_it() -> None:
    assert made((1.9, 2.1, 50.0)).committed.tolist() == [0, 50, 50, 0, 0, 0, 0, 0]


def test_what_lies_outside_counts_nowhere() -> None:
    assert not made((-9, -1, 50.0), (8, 12, 70.0)).committed.any()


def test_the_tightest_bucket_is_where_a_limit_lowers_the_budget() -> None:
    limit = Limit(NOW + 4 * STEP_S, NOW + 5.5 * STEP_S, 600.0)
    found = made((0, 2, 900.0), base_w=500.0, budget_w=2000.0, limits=(limit,))
    assert found.budget.tolist() == [2000.0] * 4 + [600.0] * 2 + [2000.0] * 2
    assert found.tightest == 4


def test_a_limit_above_the_budget_raises_nothing() -> None:
    assert made(budget_w=500.0, limits=(Limit(NOW, NOW + 1e6, 900.0),)).budget.max() == 500.0


def test_without_a_budget_nothing_is_tight_but_where_a_limit_holds() -> None:
    assert made(budget_w=math.nan).tightest is None
    assert made(budget_w=math.nan, limits=(Limit(NOW + STEP_S, NOW + 1e6, 9.0),)).tightest == 1


@given(
    st.lists(
        # In quarters of a step, which floats have exactly.
        st.tuples(st.integers(-12, 44), st.integers(1, 36), st.floats(0, 1e6)).map(
            lambda each: (each[0] / 4, (each[0] + each[1]) / 4, each[2])
        ),
        max_size=12,
    ),
    st.integers(0, BUCKETS - 1),
)
def test_each_moment_has_at_least_what_lasts_at_it(
    spans: list[tuple[float, float, float]], bucket: int
) -> None:
    found, moment = made(*spans), bucket + 0.5
    lasting = sum(watts for begin, end, watts in spans if begin <= moment < end)
    touching = sum(watts for begin, end, watts in spans if begin < bucket + 1 and end > bucket)
    assert found.committed[bucket] == pytest.approx(touching, abs=1e-3)
    assert found.committed[bucket] >= lasting - 1e-3
