"""Futures of a queue: when each job that waits starts, in each of several draws of how jobs end.

What is short is a number of GPUs. Jobs start in order; the first that does not fit has its GPUs
kept from when enough of what runs is over by its walltime, and others go ahead of it where they are
over by then, or fit beside it: what the cycle does, on one pool (``backfill``). All draws go on at
once, as rows of arrays, each by its own clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PoolState", "starts_s"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: With more jobs than these a clock goes on by at least so much of the time since now: far ahead
#: the ends of many need not be told apart.
_MOST_TOLD_APART, _COARSENESS = 2_000, 0.01


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolState:
    """A number of GPUs, who holds them, and who waits for them, in order. Times are s from now."""

    free: int
    #: of those that hold GPUs: how many, when their walltime is up, and drawn ends (draws by jobs)
    held: Ints
    held_by_s: Floats
    held_to_s: Floats
    #: of those that wait: GPUs, walltime, and drawn runs (draws by jobs)
    wanted: Ints
    walltime_s: Floats
    runs_s: Floats


def starts_s(state: PoolState) -> Floats:
    """Return when each job that waits starts, s from now: draws by jobs.

    One that wants more than all of the GPUs waits until it has all. inf: nobody gives any back.
    """
    found = _Futures(state)
    while found.step():
        pass
    return found.starts_s


class _Futures:
    def __init__(self, state: PoolState) -> None:
        draws, jobs = state.runs_s.shape
        most = state.free + int(state.held.sum())
        self._wanted = np.minimum(state.wanted, most).astype(np.float64)
        self._walltime_s, self._runs_s = state.walltime_s, state.runs_s
        self._gpus = np.concatenate([state.held.astype(np.float64), self._wanted])
        self._to_s = np.concatenate([state.held_to_s, np.full((draws, jobs), np.inf)], axis=1)
        by_s = np.broadcast_to(state.held_by_s, state.held_to_s.shape)
        self._by_s = np.concatenate([by_s, np.full((draws, jobs), np.inf)], axis=1)
        is_long = len(self._gpus) > _MOST_TOLD_APART
        self._pace = 1.0 + (_COARSENESS if is_long else 0.0)
        self._free = np.full(draws, float(state.free))
        self._now_s = np.zeros(draws)
        #: how long what is free has been so since the last step, s
        self._idle_s = np.zeros(draws)
        self._held = len(state.held)
        #: those before it have started in all draws
        self._first = 0
        self.starts_s = np.full((draws, jobs), np.inf)
        if most and jobs:
            self._start()

    def step(self) -> bool:
        """Go on to the next end in each draw; say whether there is anything to go on to."""
        if self._first == len(self._wanted):
            return False
        upto = self._held + len(self._wanted)
        ends_s = self._to_s[:, :upto].min(axis=1, initial=np.inf)
        runs = np.isfinite(ends_s) & (self._waiting().any(axis=1))
        if not runs.any():
            return False
        now_s = np.maximum(ends_s, self._pace * self._now_s)
        self._now_s = np.where(runs, now_s, self._now_s)
        over = (self._to_s <= self._now_s[:, None]) & runs[:, None]
        rows, jobs = np.nonzero(over)
        gpus = self._gpus[jobs]
        idle_s = gpus * (self._now_s[rows] - self._to_s[rows, jobs])
        draws = len(self._free)
        freed = np.bincount(rows, weights=gpus, minlength=draws)
        idle_s = np.bincount(rows, weights=idle_s, minlength=draws)
        self._free += freed
        self._idle_s = np.divide(idle_s, freed, out=np.zeros(draws), where=freed > 0.0)
        self._to_s[rows, jobs] = self._by_s[rows, jobs] = np.inf
        self._start()
        return True

    def _waiting(self) -> Bools:
        waits: Bools = np.isinf(self.starts_s[:, self._first :])
        return waits

    def _start(self) -> None:
        """Start who may, in all draws."""
        waits, wanted = self._waiting(), self._wanted[self._first :]
        # In order, up to the first that does not fit.
        upto = np.cumsum(np.where(waits, wanted, 0.0), axis=1)
        begins = waits & (upto <= self._free[:, None])
        rows, jobs = np.nonzero(begins)
        self._begin(rows, jobs + self._first)
        waits &= ~begins
        fits = waits & (wanted <= self._free[:, None])
        rows = np.flatnonzero(fits.any(axis=1))
        if len(rows):
            self._backfill(rows, waits[rows], fits[rows])
        done = np.isfinite(self.starts_s[:, self._first :]).all(axis=0)
        self._first += int(np.argmin(done)) if not done.all() else len(done)

    def _backfill(self, rows: Ints, waits: Bools, fits: Bools) -> None:
        """Start those in some draws, ``rows``, that put off nobody for whom GPUs are kept."""
        wanted, walltime_s = self._wanted[self._first :], self._walltime_s[self._first :]
        kept_s, spare = self._kept(rows, wanted[waits.argmax(axis=1)])
        is_short = self._now_s[rows, None] + walltime_s <= kept_s[:, None]
        fits &= is_short | (wanted <= spare[:, None])
        # The first of each draw, then the first of those that still fit.
        while len(rows := rows[found := fits.any(axis=1)]):
            fits, is_short, spare = fits[found], is_short[found], spare[found]
            first, at = fits.argmax(axis=1), np.arange(len(rows))
            self._begin(rows, first + self._first)
            spare = spare - np.where(is_short[at, first], 0.0, wanted[first])
            fits[at, first] = False
            fits &= (wanted <= self._free[rows, None]) & (is_short | (wanted <= spare[:, None]))

    def _kept(self, rows: Ints, need: Floats) -> tuple[Floats, Floats]:
        """Return when the first of each draw has its GPUs at the latest, and what it leaves."""
        by_s = self._by_s[rows]
        short = need - self._free[rows]
        # Whoever holds any holds one at least.
        most = min(int(short.max()), by_s.shape[1])
        first = np.argpartition(by_s, most - 1, axis=1)[:, :most]
        ends_s = np.take_along_axis(by_s, first, axis=1)
        order = np.argsort(ends_s, axis=1, kind="stable")
        ends_s = np.take_along_axis(ends_s, order, axis=1)
        gpus = np.where(
            np.isfinite(ends_s), self._gpus[np.take_along_axis(first, order, axis=1)], 0.0
        )
        enough = (np.cumsum(gpus, axis=1) >= short[:, None]).argmax(axis=1)
        kept_s = ends_s[np.arange(len(rows)), enough]
        # With all that end at that very moment: what is left over of them others may have.
        free = np.where(by_s <= kept_s[:, None], self._gpus, 0.0).sum(axis=1)
        return kept_s, free - short

    def _begin(self, rows: Ints, jobs: Ints) -> None:
        """Start jobs, each in the draw of the same place in ``rows``."""
        at_s = np.maximum(self._now_s - self._idle_s, 0.0)[rows]
        self.starts_s[rows, jobs] = at_s
        self._to_s[rows, self._held + jobs] = at_s + self._runs_s[rows, jobs]
        self._by_s[rows, self._held + jobs] = at_s + self._walltime_s[jobs]
        self._free -= np.bincount(rows, weights=self._wanted[jobs], minlength=len(self._free))
