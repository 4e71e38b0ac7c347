"""Claims: sure enough, held still, given up in time, and never where they cannot come true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.headroom.claims import Claims, Crossing, crossing, said
from policies.headroom.outlook import AHEAD, Basis, Forecast, Record

MINUTE = 60.0
#: 10:00 of some day, in steps of five minutes.
TEN = 1_000_200.0


def path(low_w: Any, high_w: Any, *, shown: Any = True) -> Forecast:
    low, high = (np.asarray(each, dtype=np.float64)[:, None] for each in (low_w, high_w))
    ones = np.broadcast_to(np.asarray(shown, dtype=bool), len(AHEAD))[:, None].copy()
    middle, none = (low + high) / 2.0, np.zeros(1)
    basis = Basis(none, none, np.zeros((3, 1)), np.zeros_like(low), none)
    return Forecast(middle, low, high, middle, ones, ones, basis)


def covered(share: float = 0.83) -> Record:
    record = Record.none(1)
    return replace(record, covered=np.full_like(record.covered, share))


RISING = path([90, 94, 105, 120, 150], [92, 102, 120, 150, 200])


def test_it_is_from_when_the_upper_end_passes_the_budget_until_the_lower_end_does() -> None:
    found = crossing(covered(), RISING, np.array([90.0]), np.array([100.0]))
    assert found.from_[0] == pytest.approx(1 + 4 * 8 / 10)
    assert found.upto[0] == pytest.approx(5 + 10 * 6 / 11)
    assert found.sure[0] == 0.83


def test_nothing_is_claimed_where_the_lower_end_stays_below() -> None:
    made = path([90, 90, 90, 90, 99], [200, 200, 200, 200, 200])
    assert np.isnan(crossing(covered(), made, np.array([90.0]), np.array([100.0])).upto)


def test_nothing_is_claimed_by_a_horizon_whose_record_is_no_better_than_as_now() -> None:
    made = replace(RISING, shown=np.array([[True], [True], [False], [True], [True]]))
    assert np.isnan(crossing(covered(), made, np.array([90.0]), np.array([100.0])).upto)


def test_what_is_over_already_is_no_claim() -> None:
    assert np.isnan(crossing(covered(), RISING, np.array([101.0]), np.array([100.0])).upto)


def after(
    before: Claims, minute: float, window: tuple[float, float] | None, **given: Any
) -> Claims:
    from_, upto = window or (np.nan, np.nan)
    found = Crossing(*(np.array([each]) for each in (from_, upto, 0.8)))
    state = {"over": np.array([False]), "possible": np.array([True]), **given}
    return said(before, found, now=TEN + MINUTE * minute, **state)


def claimed() -> Claims:
    """Claimed at 10:01 for 10:20 to 10:50."""
    claims = after(Claims.none(1), 0, (21.0, 47.0))
    assert not claims.standing.any()
    return after(claims, 1, (20.0, 46.0))


def window_of(claims: Claims) -> tuple[float, float]:
    return (claims.from_[0] - TEN) / MINUTE, (claims.upto[0] - TEN) / MINUTE


def test_it_is_said_after_two_updates_in_steps_of_five_minutes() -> None:
    claims = claimed()
    assert window_of(claims) == (20.0, 50.0)
    assert claims.made[0] == 1


def test_what_is_said_holds_still_while_forecasts_agree_with_it() -> None:
    claims = claimed()
    for minute, found in enumerate([(2.0, 30.0), (40.0, 60.0), (9.0, 25.0), (27.0, 50.0)], 2):
        claims = after(claims, minute, found)
        assert window_of(claims) == (20.0, 50.0)
    assert claims.made[0] == 1


def test_it_takes_three_updates_to_move_it_and_five_to_take_it_back() -> None:
    claims = claimed()
    for minute in (2, 3):
        claims = after(claims, minute, (1.0, 4.0))
        assert window_of(claims) == (20.0, 50.0)
    claims = after(claims, 4, (1.0, 4.0))
    assert not claims.standing.any()
    claims = claimed()
    for minute in (2, 3, 4, 5):
        claims = after(claims, minute, None)
        assert claims.standing.all()
    assert not after(claims, 6, None).standing.any()


def test_it_came_true_within_its_time_alone() -> None:
    over = {"over": np.array([True])}
    assert after(claimed(), 30, None, **over).came_true[0] == 1
    assert after(claimed(), 10, None, **over).came_true[0] == 0
    assert after(claimed(), 51, None, **over).came_true[0] == 0


def test_a_claim_that_did_not_come_true_costs_an_hour() -> None:
    claims = after(claimed(), 51, (5.0, 9.0))
    assert not claims.standing.any()
    for minute in range(52, 111):
        claims = after(claims, minute, (5.0, 9.0))
        assert not claims.standing.any()
    assert after(claims, 111, (5.0, 9.0)).standing.all()


def test_what_has_become_impossible_is_taken_back_at_once_and_counts_as_prevented() -> None:
    claims = after(claimed(), 2, (20.0, 46.0), possible=np.array([False]))
    assert not claims.standing.any()
    assert (claims.prevented[0], claims.quiet_until[0]) == (1, 0)


steps = st.lists(
    st.tuples(
        st.one_of(st.none(), st.tuples(st.floats(0, 60), st.floats(0, 60))),
        st.booleans(),
        st.booleans(),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps)
def test_whatever_comes_it_holds_still_and_claims_nothing_impossible(steps: Any) -> None:
    claims = Claims.none(1)
    changed_at = -99
    for minute, (window, over, possible) in enumerate(steps):
        ordered = None if window is None else (min(window), max(window))
        state = {"over": np.array([over]), "possible": np.array([possible])}
        now = after(claims, minute, ordered, **state)
        if not possible or over:
            assert not now.standing.any()
        both = claims.standing.all() and now.standing.all()
        if both:
            assert window_of(now) == window_of(claims)
        if now.standing.all() and not claims.standing.all():
            # A time that was said is said again, or another, after two updates at the earliest.
            assert minute - changed_at >= 2
        if claims.standing.all() and not now.standing.all():
            changed_at = minute
            settled = now.came_true + now.prevented - claims.came_true - claims.prevented
            assert settled[0] == 1 or now.quiet_until[0] > TEN + MINUTE * minute
        assert (now.made >= now.came_true + now.prevented).all()
        claims = now


def test_claims_are_packed_and_unpacked() -> None:
    claims = claimed()
    np.testing.assert_array_equal(Claims.unpacked(claims.packed()).packed(), claims.packed())
    with pytest.raises(ValueError, match="numbers for each budget"):
        Claims.unpacked(claims.packed()[1:])
