"""Rates of failures in words."""

from __future__ import annotations

import pytest

from dashboard.failures import HOURS_PER_YEAR, at_least, every, per_year
from dashboard.units import DASH


@pytest.mark.parametrize(
    ("hours", "text"),
    [(None, DASH), (1e-6, "under 1 min"), (0.5, "30 min"), (12.0, "12 h"), (50_000.0, "5.7 years")],
)
def test_a_time_between_failures_has_the_unit_that_fits(hours: float | None, text: str) -> None:
    assert every(hours) == text


def test_a_least_time_that_tells_nothing_is_not_told() -> None:
    assert [at_least(each) for each in (None, 1e-6, 0.5)] == [DASH, DASH, "over 30 min"]


def test_a_bound_after_a_moment_of_observation_is_no_number() -> None:
    rates = [each / (1000.0 * HOURS_PER_YEAR) for each in (4.2, 420.0, 1.4e9)]
    assert [per_year(each) for each in (None, *rates)] == [DASH, "4.2", "420", "over a million"]
