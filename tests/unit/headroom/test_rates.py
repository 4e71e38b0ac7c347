from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.rates import WRAP_32, WRAP_64, CounterRate

BOTH = (WRAP_32, WRAP_64)


def after(first: int, second: int, **bounds: float | tuple[float, ...]) -> float | None:
    rate = CounterRate()
    rate.update(0, first, **bounds)  # type: ignore[arg-type]
    return rate.update(2, second, **bounds)  # type: ignore[arg-type]


def test_a_rate_needs_two_readings_and_time_between_them() -> None:
    rate = CounterRate()
    assert rate.update(1, 10) is None
    assert rate.update(1, 20) is None
    assert rate.update(3, 40) == 10


def test_a_counter_that_fell_was_reset() -> None:
    assert after(1000, 10) is None
    assert after(1000, 10, wraps_at=BOTH, most_per_s=1e6) is None


@pytest.mark.parametrize("end", BOTH)
def test_a_counter_that_came_to_its_end_goes_on(end: float) -> None:
    assert after(int(end) - 100, 100, wraps_at=BOTH, most_per_s=1000) == 100


def test_a_wrap_that_would_be_faster_than_the_link_is_a_reset() -> None:
    assert after(2**31, 0, wraps_at=BOTH, most_per_s=1000) is None
    assert after(2**31, 0, wraps_at=BOTH, most_per_s=2**30) == 2**30


def test_growth_faster_than_can_be_is_a_glitch() -> None:
    assert after(0, 10_000, most_per_s=1000) is None


def test_a_glitch_costs_its_own_reading_and_the_next() -> None:
    rate = CounterRate()
    rates = [rate.update(t, n, most_per_s=1000) for t, n in enumerate([0, 100, 2**40, 300, 400])]
    assert rates == [None, 100, None, None, 100]


def test_large_counters_lose_no_units() -> None:
    assert after(2**63, 2**63 + 3) == 1.5


@given(
    start=st.integers(0, 2**32 - 1),
    steps=st.lists(st.integers(0, 2**31), min_size=1, max_size=20),
)
def test_whatever_is_counted_in_32_bits_is_found_again(start: int, steps: list[int]) -> None:
    rate, count = CounterRate(), start
    rate.update(0, count)
    for at, step in enumerate(steps, start=1):
        count = (count + step) % 2**32
        # Not more than half of the range in one step: what the link cannot carry is no wrap.
        assert rate.update(at, count, wraps_at=BOTH, most_per_s=2**31) == step
