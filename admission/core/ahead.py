"""What a place is committed to from now on: sums of what is known to begin and to end. Pure.

Amounts are W; of links bit/s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ahead", "Limit", "Spans", "ahead"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spans:
    """Amounts that last from ``begin_at`` up to ``end_at`` (Unix s): arrays of one length."""

    begin_at: Floats
    end_at: Floats
    amount: Floats


@dataclass(frozen=True, slots=True)
class Limit:
    """A budget of ``amount`` from ``begin_at`` up to ``end_at``, Unix s."""

    begin_at: float
    end_at: float
    amount: float


@dataclass(frozen=True, eq=False)
class Ahead:
    """Buckets of ``step_s`` from ``start`` on (Unix s): the most of each that is committed.

    NaN: not known. ``budget`` is the least that may be taken in it; NaN where nothing limits it.
    """

    start: float
    step_s: float
    committed: Floats
    budget: Floats

    @property
    def at(self) -> Floats:
        """The beginning of each bucket, Unix s."""
        return self.start + self.step_s * np.arange(len(self.committed), dtype=np.float64)

    @property
    def tightest(self) -> int | None:
        """The bucket with the least left of its budget, the first of equals; None: no budget."""
        left = self.budget - self.committed
        return None if np.isnan(left).all() else int(np.nanargmin(left))


def ahead(
    base: float,
    budget: float,
    spans: Spans,
    limits: Iterable[Limit],
    *,
    start: float,
    step_s: float,
    buckets: int,
) -> Ahead:
    """Return what is committed on top of ``base``, and the budget: ``budget`` or a limit.

    ``start`` is Unix s. What lasts for a part of a bucket counts in all of it.
    """
    first, last = _buckets(spans.begin_at, spans.end_at, start, step_s, buckets)
    change = np.zeros(buckets + 1)
    np.add.at(change, first, spans.amount)
    np.subtract.at(change, last, spans.amount)
    committed = base + np.cumsum(change)[:buckets]
    found = Ahead(start, step_s, committed, np.full(buckets, budget, dtype=np.float64))
    for each in limits:
        (low,), (high,) = _buckets(
            np.array([each.begin_at]), np.array([each.end_at]), start, step_s, buckets
        )
        found.budget[low:high] = np.fmin(found.budget[low:high], each.amount)
    return found


def _buckets(
    begin_at: Floats, end_at: Floats, start: float, step_s: float, buckets: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first bucket that each span touches, and the first that it touches no more."""
    low = np.clip(np.floor((begin_at - start) / step_s), 0, buckets)
    high = np.clip(np.ceil((end_at - start) / step_s), 0, buckets)
    return low.astype(np.int64), np.maximum(low, high).astype(np.int64)
