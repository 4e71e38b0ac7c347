from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.nvml.energy import EnergyLog

MOST_W = 1400.0


def test_a_mean_over_many_readings_is_that_of_the_whole_time() -> None:
    log = EnergyLog(MOST_W)
    counted_mj = 5_000
    for second, watts in enumerate([100, 300, 500, 700, 700]):
        log.add(float(second), counted_mj)
        counted_mj += watts * 1000
    log.add(5.0, counted_mj)
    assert log.mean_w(0.0) == 460
    assert log.mean_w(3.0) == 700
    assert log.mean_w(5.0) is None  # no time has passed
    assert log.mean_w(6.0) is None


def test_only_the_last_half_minute_is_kept() -> None:
    log = EnergyLog(MOST_W)
    for second in range(100):
        log.add(float(second), 100_000 * second if second < 60 else 6_000_000 + 500 * second)
    assert log.mean_w(0.0) == pytest.approx(0.5)


def test_without_a_reading_there_is_no_mean() -> None:
    assert EnergyLog(MOST_W).mean_w(0.0) is None


@given(
    st.lists(
        st.tuples(st.floats(0.01, 20), st.integers(0, 2**33)),
        max_size=20,
    )
)
def test_whatever_a_counter_does_power_is_possible_or_unknown(
    readings: list[tuple[float, int]],
) -> None:
    log, now = EnergyLog(MOST_W), 0.0
    for span_s, counted_mj in readings:
        now += span_s
        watts = log.add(now, counted_mj)
        assert watts is None or 0 < watts <= MOST_W


@given(
    start_mj=st.integers(2**32 - 3_000_000, 2**32 - 1),
    watts=st.lists(st.integers(1, 1300), min_size=2, max_size=20),
)
def test_the_end_of_a_counter_of_32_bits_does_not_show(start_mj: int, watts: list[int]) -> None:
    log, counted_mj = EnergyLog(MOST_W), start_mj
    assert log.add(0.0, counted_mj) is None
    for second, drawn in enumerate(watts, 1):
        counted_mj = (counted_mj + drawn * 1000) % 2**32
        assert log.add(float(second), counted_mj) == pytest.approx(drawn)
