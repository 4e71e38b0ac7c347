"""What failure rates mean for a job."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.outlook import GpuRate, advise, forecast

HOUR, DAY = 3600.0, 86_400.0
#: One GPU in 50,000 h, known to a factor of two.
RATE = GpuRate(1 / (50_000 * HOUR), 0.5 / (50_000 * HOUR), 2 / (50_000 * HOUR), 20, "H100")
NONE = GpuRate(0.0, 0.0, 3 / (100_000 * HOUR), 0, "H100")


def test_a_day_of_8192_gpus_meets_four_failures_as_the_textbook_has_it() -> None:
    found = forecast(RATE, 8192, DAY)
    assert found.expected == pytest.approx(3.932, abs=5e-4)
    assert found.probability == pytest.approx(0.9804, abs=5e-5)
    assert (found.expected_lower, found.expected_upper) == pytest.approx((1.966, 7.864), abs=1e-3)
    assert found.probability < found.probability_upper < 1.0


def test_without_a_failure_so_far_the_forecast_is_bounded_from_above_alone() -> None:
    found = forecast(NONE, 100, 100 * HOUR)
    assert (found.expected, found.expected_lower, found.probability) == (0.0, 0.0, 0.0)
    assert found.expected_upper == pytest.approx(0.3)
    assert found.probability_upper == pytest.approx(1 - math.exp(-0.3))


def test_saving_every_minute_is_too_often_and_the_gain_is_what_saves_take() -> None:
    # 24.5 s a save, a failure every 6.1 h: best every 17 minutes.
    found = advise(RATE, 8192, save_s=24.5, interval_s=60.0, restart_s=600.0)
    assert found.change == "longer"
    assert found.best_s is not None
    assert found.best_s / 60 == pytest.approx(17.02, abs=0.01)
    assert found.best_lower_s < found.best_s < (found.best_upper_s or 0.0)
    assert found.ettr_best - found.ettr == pytest.approx(found.gain)
    assert found.gain > 0.2


def test_saving_twice_a_day_is_too_seldom() -> None:
    found = advise(RATE, 8192, save_s=24.5, interval_s=12 * HOUR, restart_s=600.0)
    assert (found.change, found.gain > 0.3) == ("shorter", True)


def test_an_interval_within_what_the_rate_allows_is_left_alone() -> None:
    for interval_s in (800.0, 1021.0, 1300.0):
        found = advise(RATE, 8192, save_s=24.5, interval_s=interval_s, restart_s=600.0)
        assert found.change == ""


def test_without_a_failure_only_longer_can_be_advised_and_only_where_it_is_sure() -> None:
    often = advise(NONE, 1000, save_s=30.0, interval_s=120.0, restart_s=60.0)
    assert (often.best_s, often.mtbf_s, often.change) == (None, None, "longer")
    assert often.mtbf_lower_s == pytest.approx(100_000 * HOUR / 3 / 1000)
    seldom = advise(NONE, 1000, save_s=30.0, interval_s=30 * DAY, restart_s=60.0)
    assert seldom.change == ""


@given(
    save_s=st.floats(0.1, 600.0),
    interval_s=st.floats(1.0, 30 * DAY),
    gpus=st.integers(1, 100_000),
    restart_s=st.floats(0.0, HOUR),
)
def test_no_interval_is_better_than_the_best(
    save_s: float, interval_s: float, gpus: int, restart_s: float
) -> None:
    found = advise(RATE, gpus, save_s=save_s, interval_s=interval_s, restart_s=restart_s)
    assert 0.0 <= found.ettr <= found.ettr_best * (1.0 + 1e-9) <= 1.0 + 1e-9
    assert found.gain >= 0.0
