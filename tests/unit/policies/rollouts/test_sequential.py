"""Bounds of means and of rates are on the right side at every look, and get narrow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.rollouts.sequential import bounds, log_evidence_of_counts, rate_bounds

#: Sequences that are played to count how often a bound is ever wrong.
_PLAYED = 4000


def _ever_wrong(values: np.ndarray, level: float) -> tuple[float, float]:
    levels, floor = np.full(values.shape[1], level), np.zeros(values.shape[1])
    lower, upper = bounds(values, level=levels, floor=floor)
    return float((lower[-1] > 0.0).mean()), float((upper[-1] < 0.0).mean())


@pytest.mark.parametrize("level", [0.2, 0.05, 0.003])
def test_a_bound_of_a_mean_is_ever_wrong_no_more_often_than_its_level(level: float) -> None:
    values = np.random.default_rng(1).standard_normal((150, _PLAYED))
    assert max(_ever_wrong(values, level)) <= level


def test_a_bound_is_right_also_where_blocks_are_skewed() -> None:
    # As means of nine jobs with an exponential distribution each.
    values = np.random.default_rng(2).gamma(9.0, size=(150, _PLAYED)) - 9.0
    # Not normal, so not exact: the long tail is above, which makes the upper bound err more.
    below, above = _ever_wrong(values, 0.05)
    assert below <= 0.05
    assert above <= 0.05


def test_a_difference_of_one_standard_deviation_is_told_within_some_tens_of_blocks() -> None:
    values = 1.0 + np.random.default_rng(3).standard_normal((60, 500))
    lower, _ = bounds(values, level=np.full(500, 0.003), floor=np.zeros(500))
    told = (lower > 0.0).argmax(axis=0) + 1
    assert (lower[-1] > 0.0).mean() > 0.95
    assert 8 < np.median(told) < 40


@given(
    values=st.lists(st.one_of(st.floats(-1e3, 1e3), st.just(math.nan)), min_size=1, max_size=40),
    at=st.floats(-1e3, 1e3),
    scale=st.floats(0.1, 10.0),
)
def test_bounds_move_with_what_they_are_of_and_never_widen(
    values: list[float], at: float, scale: float
) -> None:
    blocks = np.array(values)[:, None]
    level, floor = np.array([0.05]), np.array([0.01])
    lower, upper = bounds(blocks, level=level, floor=floor)
    assert (np.diff(lower[:, 0][np.isfinite(lower[:, 0])]) >= 0.0).all()
    assert (np.diff(upper[:, 0][np.isfinite(upper[:, 0])]) <= 0.0).all()
    moved = bounds(at + scale * blocks, level=level, floor=scale * floor)
    for before, after in zip((lower, upper), moved, strict=True):
        told = np.isfinite(before)
        assert (told == np.isfinite(after)).all()
        assert np.allclose(at + scale * before[told], after[told], rtol=1e-3, atol=0.1)


def test_what_does_not_move_is_as_certain_as_its_floor_lets_it_be() -> None:
    lower, upper = bounds(np.zeros((20, 1)), level=np.array([0.05]), floor=np.array([1.0]))
    assert lower[1, 0] == -np.inf
    assert lower[-1, 0] < -0.3
    assert upper[-1, 0] > 0.3


def _counts(rate: float, blocks: int = 100) -> np.ndarray:
    rng = np.random.default_rng(4)
    here, there = rng.poisson(rate, (blocks, _PLAYED)), rng.poisson(1.5, (blocks, _PLAYED))
    exposure = np.ones((blocks, _PLAYED))
    return log_evidence_of_counts(
        here.astype(float), there.astype(float),
        changed_exposure=exposure, unchanged_exposure=3.0 * exposure,
    )  # fmt: skip


def test_equal_rates_seldom_look_different_whenever_one_looks() -> None:
    assert (_counts(0.5).max(axis=0) > math.log(20.0)).mean() <= 0.05


def test_a_rate_three_times_as_high_is_told() -> None:
    assert (_counts(1.5).max(axis=0) > math.log(20.0)).mean() > 0.99


def test_blocks_in_which_one_side_was_not_watched_tell_nothing() -> None:
    many = np.full((5, 1), 50.0)
    found = log_evidence_of_counts(
        many, many, changed_exposure=np.ones((5, 1)), unchanged_exposure=np.zeros((5, 1))
    )
    assert np.allclose(found, 0.0)


@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_bounds_of_a_rate_are_ever_wrong_no_more_often_than_their_level(rate: float) -> None:
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(200):
        events = rng.poisson(rate, 60).cumsum()
        found = [
            rate_bounds(float(count), at + 1.0, level=0.05, expected=0.1)
            for at, count in enumerate(events)
        ]
        wrong += any(not low <= rate <= high for low, high in found)
    assert wrong / 200 <= 0.08


def test_without_events_the_upper_bound_of_a_rate_falls_with_the_time_watched() -> None:
    highs = [rate_bounds(0.0, each, level=0.05, expected=0.002)[1] for each in (1e3, 1e4)]
    assert highs[1] < 1e-3 < highs[0]
    assert rate_bounds(0.0, 10.0, level=0.05, expected=1.0)[0] == 0.0
