"""Ranges of starts, and how they are held to what happens."""

from __future__ import annotations

import json

import numpy as np

from admission.core.cycle.estimates import Calibration


def _after(calibration: Calibration, forecast_s: float, waited_s: float) -> Calibration:
    """Return what is known after one more start, long after the last one."""
    given = calibration.estimate(forecast_s)
    return calibration.learn([(given, waited_s)], 1e4 * calibration.starts)


def _share_within(factors: np.ndarray, forecasts_s: np.ndarray, *, from_: int) -> float:
    calibration, within = Calibration(), []
    for factor, forecast_s in zip(factors, forecasts_s, strict=True):
        given = calibration.estimate(forecast_s)
        waited_s = factor * forecast_s
        within.append(given.p10_s <= waited_s <= given.p90_s)
        calibration = _after(calibration, forecast_s, waited_s)
    assert calibration.starts == len(factors)
    assert calibration.within == sum(within)
    return float(np.mean(within[from_:]))


def test_before_anything_was_seen_ranges_are_wide_and_say_so() -> None:
    given = Calibration().estimate(600.0)
    assert given.p10_s < 0.3 * given.p50_s
    assert given.p90_s > 3.0 * given.p50_s
    assert "too few" in given.basis


def test_four_of_five_starts_fall_into_ranges_though_forecasts_are_biased() -> None:
    rng = np.random.default_rng(1)
    factors = np.exp(rng.normal(1.0, 0.8, 2000))
    forecasts_s = np.exp(rng.uniform(np.log(60), np.log(1e5), 2000))
    assert 0.75 <= _share_within(factors, forecasts_s, from_=200) <= 0.85


def test_ranges_follow_when_forecasts_become_worse() -> None:
    rng = np.random.default_rng(2)
    factors = np.exp(rng.normal(0.0, np.repeat([0.2, 1.5], 1500)))
    forecasts_s = np.full(3000, 3600.0)
    assert 0.74 <= _share_within(factors, forecasts_s, from_=1600) <= 0.86


def test_ranges_are_narrow_where_forecasts_are_good() -> None:
    rng = np.random.default_rng(3)
    calibration = Calibration()
    for factor in np.exp(rng.normal(0.0, 0.05, 300)):
        calibration = _after(calibration, 7200.0, 7200.0 * factor)
    given = calibration.estimate(7200.0)
    assert 6000.0 < given.p10_s <= given.p50_s <= given.p90_s < 8400.0


def test_errors_of_near_starts_say_nothing_of_far_ones() -> None:
    calibration = Calibration()
    for _ in range(100):
        calibration = _after(calibration, 60.0, 600.0)
        calibration = _after(calibration, 86400.0, 86400.0)
    assert calibration.estimate(60.0).p50_s > 300.0
    assert calibration.estimate(86400.0).p50_s < 2 * 86400.0


def test_a_start_at_once_is_no_error_without_bound() -> None:
    calibration = _after(Calibration(), 3600.0, 0.0)
    given = calibration.estimate(3600.0)
    assert np.isfinite([given.p10_s, given.p50_s, given.p90_s]).all()


def test_a_calibration_is_kept_as_plain_values() -> None:
    calibration = Calibration()
    for n in range(40):
        calibration = _after(calibration, 100.0 + n, 50.0 * n)
    kept = Calibration.from_json(json.loads(json.dumps(calibration.as_json())))
    assert kept.coverage == calibration.coverage
    one, other = kept.estimate(100.0), calibration.estimate(100.0)
    assert abs(one.p90_s - other.p90_s) < 0.1


def test_a_burst_counts_as_a_few_starts() -> None:
    calibration = Calibration()
    for n in range(60):
        calibration = _after(calibration, 3600.0, 3600.0 * (0.5 + n / 60))
    given = calibration.estimate(3600.0)
    burst = calibration.learn([(given, 36_000.0)] * 1000, 1e9)
    assert burst.starts == 1060
    assert burst.estimate(3600.0).p50_s < 1.2 * given.p50_s


def test_those_who_still_wait_count_with_what_has_passed() -> None:
    calibration = Calibration()
    for _ in range(60):
        calibration = _after(calibration, 3600.0, 3600.0)
    told = [(1000.0 * n, 3600.0) for n in range(100)]
    before, after = (each.estimate(3600.0) for each in (
        calibration, calibration.beside(told, 200_000.0)
    ))  # fmt: skip
    assert after.p90_s > 3.0 * before.p90_s
    # Those who were told a moment ago say nothing.
    fresh = calibration.beside([(200_000.0, 3600.0)] * 100, 200_001.0).estimate(3600.0)
    assert fresh.p90_s == before.p90_s
