"""Error budgets and burn rates."""

from __future__ import annotations

import math

import pytest

from admission.slos.budget import SPANS_S, Health, State, Tally, health

WEEK_S = 7 * 86_400.0


def make_health(tally: Tally, recent: dict[str, Tally] | None = None) -> Health:
    """Return the health of a target of 95 % over a week; spans not given have no events."""
    return health(0.95, WEEK_S, tally, {name: Tally() for name in SPANS_S} | (recent or {}))


def test_without_events_nothing_is_said() -> None:
    found = make_health(Tally())
    assert found.state is State.NO_EVENTS
    assert math.isnan(found.good_share)
    assert math.isnan(found.budget_left)
    assert all(math.isnan(rate) for rate in found.burn_rates.values())


def test_the_budget_is_what_the_target_lets_be_bad() -> None:
    # Of 1000 events 50 may be bad.
    found = make_health(Tally(good=980, bad=20))
    assert found.state is State.MET
    assert found.good_share == pytest.approx(0.98)
    assert found.budget_left == pytest.approx(0.6)


def test_a_budget_used_up_to_the_last_event_is_still_met() -> None:
    found = make_health(Tally(good=950, bad=50))
    assert found.state is State.MET
    assert found.budget_left == pytest.approx(0.0)
    assert make_health(Tally(good=949, bad=51)).state is State.MISSED


def test_a_burn_rate_of_one_uses_the_budget_up_in_the_window() -> None:
    found = make_health(Tally(100, 0), {"6h": Tally(95, 5)})
    assert found.burn_rates["6h"] == pytest.approx(1.0)
    assert found.lasts_s == pytest.approx(WEEK_S)
    assert found.state is State.MET


def test_it_burns_fast_where_an_hour_and_its_last_minutes_do() -> None:
    # Over a week, a fiftieth of the budget in an hour is a rate of 3.36.
    bad = {"1h": Tally(80, 20), "5m": Tally(4, 1)}
    assert make_health(Tally(1000, 20), bad).state is State.BURNING_FAST
    over = {**bad, "5m": Tally(5, 0)}
    assert make_health(Tally(1000, 20), over).state is State.MET


def test_it_burns_where_six_hours_and_their_last_half_hour_do() -> None:
    bad = {"6h": Tally(90, 10), "30m": Tally(18, 2)}
    assert make_health(Tally(1000, 20), bad).state is State.BURNING


def test_few_events_raise_no_alarm() -> None:
    bad = {"1h": Tally(4, 2), "5m": Tally(0, 2)}
    assert make_health(Tally(1000, 20), bad).state is State.MET


@pytest.mark.parametrize(("bad", "lasts_s"), [(0, math.inf), (10, WEEK_S / 2)])
def test_how_long_it_lasts_is_told_by_the_last_six_hours(bad: int, lasts_s: float) -> None:
    found = make_health(Tally(100, 0), {"6h": Tally(100 - bad, bad)})
    assert found.lasts_s == pytest.approx(lasts_s)
