"""Distances between samples, and periods of series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.calibration.result import Role, by_difference, by_share
from lab.calibration.stats import (
    autocorrelation,
    ks_to_cdf,
    period_s,
    wasserstein_share,
    wasserstein_to_cdf,
)


@given(shift=st.floats(-50.0, 50.0), seed=st.integers(0, 1000))
def test_a_shifted_sample_is_as_far_away_as_it_was_shifted(shift: float, seed: int) -> None:
    sample = np.random.default_rng(seed).normal(1000.0, 100.0, 500)
    low, high = np.quantile(sample, [0.005, 0.995])
    expected = 100.0 * abs(shift) / (high - low)
    assert wasserstein_share(sample, sample + shift) == pytest.approx(expected, abs=1e-6)


def test_a_sample_is_compared_with_a_distribution() -> None:
    x = np.linspace(0.0, 100.0, 1001)
    cdf = x / 100.0
    even = np.linspace(0.0, 100.0, 5001)
    assert wasserstein_to_cdf(x, cdf, even) == pytest.approx(0.0, abs=0.1)
    assert ks_to_cdf(x, cdf, even) == pytest.approx(0.0, abs=0.1)
    assert wasserstein_to_cdf(x, cdf, even + 10.0) == pytest.approx(10.0, rel=0.02)
    assert ks_to_cdf(x, cdf, even + 10.0) == pytest.approx(10.0, abs=0.2)


@given(period=st.floats(110.0, 190.0), seed=st.integers(0, 1000))
def test_a_period_is_found_between_the_readings(period: float, seed: int) -> None:
    t_s = np.arange(0.0, 2400.0, 2.0)
    rng = np.random.default_rng(seed)
    series = np.sin(2.0 * np.pi * t_s / period) + rng.normal(0.0, 0.05, len(t_s))
    assert period_s(series, 2.0, between_s=(100.0, 200.0)) == pytest.approx(period, abs=2.5)


def test_noise_has_no_autocorrelation_but_its_own() -> None:
    found = autocorrelation(np.random.default_rng(1).normal(0.0, 1.0, 4000))
    assert found[0] == pytest.approx(1.0)
    assert np.abs(found[1:100]).max() < 0.1


def test_a_series_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="take a longer one"):
        period_s(np.zeros(150), 2.0, between_s=(100.0, 200.0))


def test_a_comparison_holds_up_to_its_bar_and_says_so() -> None:
    within = by_share(
        "node", "mean", "W", real=100.0, twin=102.0, bar=2.0, naive=110.0, role=Role.REPEAT
    )
    assert within.holds
    assert within.beats_naive
    assert not by_share("node", "mean", "W", real=100.0, twin=102.0, naive=98.0).beats_naive
    assert not by_share("node", "mean", "W", real=100.0, twin=102.0, was=1.9).is_as_good_as_it_was
    assert str(within) == ("node: mean: real 100, twin 102 W, error 2 % (repeat, bar 2, naive 10)")
    assert not by_difference("node", "mean", "W", real=100.0, twin=103.0, bar=2.0).holds
    assert not by_difference("node", "mean", "W", real=100.0, twin=float("nan"), bar=2.0).holds
