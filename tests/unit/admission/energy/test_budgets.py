"""A budget stands by what is closed, and says what is missing and what is ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.energy.budgets import Spent, Standing, period_of, standing

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
#: Ten days into a month of thirty.
NOW = datetime(2026, 11, 11, 0, 40, tzinfo=UTC)


def stands(
    used: float, *, closed_hours: int = 240, known: float | None = 1.0, lump: float = 0.0,
    recent: float = 168.0, recent_hours: int = 168, unread: float | None = 0.0,
) -> Standing:  # fmt: skip
    spent = Spent(
        used=used, known=known, unread=unread, lump=lump, closed_hours=closed_hours, recent=recent,
        recent_hours=recent_hours,
    )  # fmt: skip
    return standing(1000.0, [0.8, 1.0], NOVEMBER, spent, NOW)


def test_a_monthly_budget_is_of_the_calendar_month_and_others_of_their_range() -> None:
    begun = datetime(2026, 3, 1, tzinfo=UTC)
    assert period_of(begun, None, NOW) == NOVEMBER
    assert period_of(begun, NOVEMBER[0], NOW) == (begun, NOVEMBER[0])
    # It has not begun: its first month.
    assert period_of(NOVEMBER[1], None, NOW)[0] == NOVEMBER[1]


def test_the_forecast_goes_on_at_the_mean_of_the_last_days() -> None:
    found = stands(240.0)
    assert (found.share, found.open_hours, found.hours) == (0.24, 0, 720)
    assert found.forecast == pytest.approx(240.0 + 480.0)
    assert not found.is_least


def test_hours_that_are_not_closed_are_said_and_count_in_the_forecast_alone() -> None:
    found = stands(237.0, closed_hours=237)
    assert (found.used, found.open_hours) == (237.0, 3)
    assert found.forecast == pytest.approx(237.0 + 483.0)
    assert found.is_least


def test_a_share_without_rates_makes_it_the_least_that_was_used() -> None:
    assert stands(240.0, known=0.9).is_least
    assert not stands(0.0, known=None).is_least


def test_time_of_which_no_reading_tells_makes_it_the_least_that_was_used() -> None:
    found = stands(240.0, unread=0.01)
    assert (found.unread, found.is_least) == (0.01, True)
    assert not stands(240.0, unread=None).is_least


def test_without_closed_hours_nothing_is_forecast() -> None:
    found = stands(0.0, closed_hours=0, recent=0.0, recent_hours=0)
    assert (found.forecast, found.forecast_share) == (None, None)
    assert found.open_hours == 240


@pytest.mark.parametrize(("used", "warned"), [(799.0, None), (800.0, 0.8), (1200.0, 1.0)])
def test_the_largest_share_that_is_passed_is_warned_of(used: float, warned: float | None) -> None:
    assert stands(used).warned == warned


@given(
    used=st.floats(0.0, 1e9), closed=st.integers(0, 240), recent=st.floats(0.0, 1e6),
    after_h=st.integers(0, 800),
)  # fmt: skip
def test_a_forecast_is_never_less_than_what_is_used(
    used: float, closed: int, recent: float, after_h: int
) -> None:
    spent = Spent(
        used=used,
        known=1.0,
        unread=0.0,
        lump=0.0,
        closed_hours=closed,
        recent=recent,
        recent_hours=168,
    )
    at = NOVEMBER[0] + timedelta(hours=after_h)
    found = standing(1.0, [], NOVEMBER, spent, at)
    assert found.forecast is not None
    assert found.forecast >= found.used
    assert 0 <= found.open_hours <= found.hours
