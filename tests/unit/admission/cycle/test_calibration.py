"""Ranges of starts, and how they are held to what happens."""

from __future__ import annotations

import json

import numpy as np

from admission.core.cycle.calibration import Calibration, Given


def _given(middle_s: float, gpus: int = 1) -> Given:
    return Given(gpus, 0.8 * middle_s, middle_s, 1.25 * middle_s)


def _after(
    calibration: Calibration, middle_s: float, waited_s: float, gpus: int = 1
) -> Calibration:
    """Return what is known after one more start, long after the last one."""
    told = calibration.estimate(_given(middle_s, gpus))
    return calibration.learn([(told, 1e4 * calibration.starts, waited_s)])


def _share_within(factors: np.ndarray, middles_s: np.ndarray, *, from_: int) -> float:
    calibration, within = Calibration(), []
    for factor, middle_s in zip(factors, middles_s, strict=True):
        told = calibration.estimate(_given(middle_s))
        within.append(told.p10_s <= factor * middle_s <= told.p90_s)
        calibration = _after(calibration, middle_s, factor * middle_s)
    assert calibration.starts == len(factors)
    assert calibration.within == sum(within)
    return float(np.mean(within[from_:]))


def test_before_anything_was_seen_ranges_are_a_little_wider_than_drawn() -> None:
    told = Calibration().estimate(_given(3600.0))
    assert 0.6 * 3600.0 < told.p10_s < 0.8 * 3600.0
    assert told.p50_s == 3600.0
    assert 1.25 * 3600.0 < told.p90_s < 1.6 * 3600.0
    assert "starts" not in told.basis


def test_four_of_five_starts_fall_into_ranges_though_draws_are_biased() -> None:
    rng = np.random.default_rng(1)
    factors = np.exp(rng.normal(0.5, 0.4, 1500))
    middles_s = np.exp(rng.uniform(np.log(600), np.log(1e5), 1500))
    assert 0.75 <= _share_within(factors, middles_s, from_=300) <= 0.85


def test_ranges_follow_when_draws_become_worse() -> None:
    rng = np.random.default_rng(2)
    factors = np.exp(rng.normal(0.0, np.repeat([0.1, 0.7], 800)))
    assert 0.74 <= _share_within(factors, np.full(1600, 3600.0), from_=1000) <= 0.86


def test_ranges_are_narrow_where_draws_are_good() -> None:
    rng = np.random.default_rng(3)
    calibration = Calibration()
    for factor in np.exp(rng.normal(0.0, 0.05, 300)):
        calibration = _after(calibration, 7200.0, 7200.0 * factor)
    told = calibration.estimate(_given(7200.0))
    assert 6000.0 < told.p10_s <= told.p50_s <= told.p90_s < 8400.0


def test_small_jobs_say_little_of_large_ones() -> None:
    calibration = Calibration()
    for _ in range(100):
        calibration = _after(calibration, 3600.0, 3600.0)
        calibration = _after(calibration, 3600.0, 3.0 * 3600.0, gpus=16)
    assert calibration.estimate(_given(3600.0)).p50_s < 1.3 * 3600.0
    assert calibration.estimate(_given(3600.0, gpus=16)).p50_s > 2.0 * 3600.0


def test_a_start_at_once_is_no_error_without_bound() -> None:
    calibration = Calibration()
    for _ in range(300):
        calibration = _after(calibration, 3600.0, 0.0)
    told = calibration.estimate(_given(3600.0))
    assert 0.0 <= told.p10_s <= told.p50_s <= told.p90_s
    assert told.p90_s > 60.0


def test_a_calibration_is_kept_as_plain_values() -> None:
    calibration = Calibration()
    for n in range(40):
        calibration = _after(calibration, 100.0 + n, 50.0 * n)
    kept = Calibration.from_json(json.loads(json.dumps(calibration.as_json())))
    assert kept.coverage == calibration.coverage
    one, other = kept.estimate(_given(100.0)), calibration.estimate(_given(100.0))
    assert abs(one.p90_s - other.p90_s) < 0.1


def test_a_burst_counts_as_a_few_starts() -> None:
    calibration = Calibration()
    for n in range(60):
        calibration = _after(calibration, 3600.0, 3600.0 * (0.5 + n / 60))
    told = calibration.estimate(_given(3600.0))
    burst = calibration.learn([(told, 1e9, 36_000.0)] * 1000)
    assert burst.starts == 1060
    assert burst.estimate(_given(3600.0)).p50_s < 1.2 * told.p50_s


def test_old_starts_are_forgotten() -> None:
    calibration = Calibration()
    for factor in (10.0, 1.0):
        for _ in range(250):
            calibration = _after(calibration, 3600.0, factor * 3600.0)
    assert calibration.estimate(_given(3600.0)).p90_s < 2.0 * 3600.0


def test_those_who_still_wait_count_with_what_has_passed() -> None:
    calibration = Calibration()
    for _ in range(60):
        calibration = _after(calibration, 3600.0, 3600.0)
    told = [(_given(3600.0), 1000.0 * n) for n in range(100)]
    before, after = (
        each.estimate(_given(3600.0)) for each in (calibration, calibration.beside(told, 200_000.0))
    )
    assert after.p90_s > 1.5 * before.p90_s
    # Those who were told a moment ago say nothing.
    fresh = calibration.beside([(_given(3600.0), 200_000.0)] * 100, 200_001.0)
    assert fresh.estimate(_given(3600.0)).p90_s == before.p90_s
