from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.skew import ClockSkew


def exchange(
    skew: ClockSkew, at: float, off: float, *, out_s: float = 0.01, back_s: float = 0.01
) -> None:
    """One request at the server's time ``at``, by a clock that is ``off`` seconds ahead."""
    skew.note(at - out_s + off, at + back_s + off, at)


def test_nothing_is_known_before_the_first_exchange() -> None:
    assert ClockSkew().skew_s is None


@pytest.mark.parametrize("off", [0.0, 3.0, -40.0])
def test_half_of_the_round_trip_is_taken_out(off: float) -> None:
    skew = ClockSkew()
    exchange(skew, 100, off, out_s=0.2, back_s=0.2)
    assert skew.skew_s == pytest.approx(off)


def test_slow_exchanges_say_little_and_quick_ones_count() -> None:
    skew = ClockSkew()
    for i in range(8):
        exchange(skew, i, 0.5, out_s=2.0 if i % 2 else 0.01)
    assert skew.skew_s == pytest.approx(0.5, abs=0.01)


def test_a_clock_that_was_set_is_followed_at_once() -> None:
    skew = ClockSkew()
    for i in range(8):
        exchange(skew, i, 30)
    exchange(skew, 9, 0)
    assert skew.skew_s == pytest.approx(0)


def test_a_clock_set_back_during_an_exchange_is_no_measurement() -> None:
    skew = ClockSkew()
    exchange(skew, 1, 0)
    skew.note(1000.0, 500.0, 2)
    assert skew.skew_s == pytest.approx(0)


def test_people_are_told_when_it_goes_wrong_and_when_it_is_right_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    skew = ClockSkew()
    with caplog.at_level(logging.INFO):
        for i, off in enumerate([0, 4.9, 6, 6, 6, 0, 0]):
            exchange(skew, i, off)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "6.0 s ahead of" in caplog.text


@given(
    off=st.floats(-100, 100),
    trips=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30),
)
def test_the_estimate_is_never_off_by_more_than_half_of_a_round_trip(
    off: float, trips: list[tuple[float, float]]
) -> None:
    skew = ClockSkew()
    for i, (out_s, back_s) in enumerate(trips):
        exchange(skew, i, off, out_s=out_s, back_s=back_s)
    assert skew.skew_s is not None
    assert abs(skew.skew_s - off) <= max(out + back for out, back in trips) / 2 + 1e-6
