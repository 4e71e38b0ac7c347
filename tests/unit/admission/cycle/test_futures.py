"""Futures of a queue, held against a plain scheduler that knows when jobs end."""

from __future__ import annotations

import numpy as np
import pytest

from admission.core.cycle import futures
from admission.core.cycle.futures import PoolState, starts_s
from bench.easy import PoolJob, easy_starts


def _state(rng: np.random.Generator, *, jobs: int, gpus: int) -> tuple[PoolState, list[PoolJob]]:
    """Return a pool on which some run, as draws of one future, and its jobs for ``easy_starts``."""
    walltime_s = rng.choice([600.0, 3600.0, 14_400.0], jobs)
    runs_s = np.ceil(walltime_s * rng.uniform(0.05, 1.0, jobs))
    wanted = rng.choice([1, 2, 4, 8], jobs)
    every = [
        PoolJob(0.0, int(size), float(runs), float(walltime))
        for size, runs, walltime in zip(wanted, runs_s, walltime_s, strict=True)
    ]
    runs = int((np.cumsum(wanted) <= gpus).sum())
    return (
        PoolState(
            free=gpus - int(wanted[:runs].sum()),
            held=wanted[:runs],
            held_by_s=walltime_s[:runs],
            held_to_s=runs_s[None, :runs],
            wanted=wanted[runs:],
            walltime_s=walltime_s[runs:],
            runs_s=runs_s[None, runs:],
        ),
        every,
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_known_future_is_that_of_a_plain_scheduler(seed: int) -> None:
    state, jobs = _state(np.random.default_rng(seed), jobs=60, gpus=16)
    true_s = np.array(easy_starts(jobs, 16, tick_s=1.0))[len(state.held) :]
    np.testing.assert_allclose(starts_s(state)[0], true_s, atol=1.0)


@pytest.mark.parametrize("seed", range(5))
def test_clocks_that_are_coarse_far_ahead_are_off_by_little(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(futures, "_MOST_TOLD_APART", 100)
    state, jobs = _state(np.random.default_rng(seed), jobs=2_500, gpus=1_000)
    true_s = np.array(easy_starts(jobs, 1_000, tick_s=1.0))[len(state.held) :]
    assert starts_s(state).mean() == pytest.approx(true_s.mean(), rel=0.05)


def test_draws_do_not_mix() -> None:
    rng = np.random.default_rng(1)
    one, other = (_state(rng, jobs=40, gpus=16)[0] for _ in range(2))
    other = PoolState(**{**vars(one), "runs_s": 0.5 * one.runs_s})
    both = PoolState(
        **{
            **vars(one),
            "held_to_s": np.concatenate([one.held_to_s, other.held_to_s]),
            "runs_s": np.concatenate([one.runs_s, other.runs_s]),
        }
    )
    np.testing.assert_allclose(starts_s(both), np.concatenate([starts_s(one), starts_s(other)]))


def test_one_that_wants_more_than_there_is_waits_for_all_of_it() -> None:
    state = PoolState(
        free=0, held=np.array([2, 3]), held_by_s=np.array([100.0, 200.0]),
        held_to_s=np.array([[50.0, 60.0]]), wanted=np.array([9, 1]),
        walltime_s=np.array([100.0, 100.0]), runs_s=np.array([[10.0, 10.0]]),
    )  # fmt: skip
    np.testing.assert_allclose(starts_s(state), [[60.0, 50.0]])


def test_where_nobody_gives_anything_back_nothing_starts() -> None:
    nobody = np.zeros((1, 0))
    state = PoolState(
        free=0, held=np.zeros(0, dtype=np.int64), held_by_s=np.zeros(0), held_to_s=nobody,
        wanted=np.array([1]), walltime_s=np.array([100.0]), runs_s=np.array([[10.0]]),
    )  # fmt: skip
    assert np.isinf(starts_s(state)).all()
