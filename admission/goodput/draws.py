"""What the draw of gangs says of the time of which no loop tells. Pure.

A gang that makes steps draws much the same in each minute. One that loads, saves, evaluates or
waits draws less. So its own level is what it is compared with, not a rating: what three quarters of
its minutes do not exceed. A minute is taken for a mixture of work at that level and of standing
still, at :data:`STANDS`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from admission.core.account import PPM, Cause, GpuSpans, Ints, Shares
from admission.goodput.steps import times_us

__all__ = ["STANDS", "GangDraws", "draw", "holders", "is_at_limit"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: What a GPU draws whose job stands still, as a share of the way from its idle draw to its rating.
#: Fitted, with the quantile, to two fleets of the twin: see ``bench/accounts_twin.py``.
STANDS = 0.3
_LEVEL = 0.75
#: A GPU that draws this share of its power limit is held back by it: it works.
_AT_LIMIT = 0.95


def draw(power_w: Floats, idle_w: Floats, rated_w: Floats) -> Floats:
    """Return the draw of GPUs as a share of the way from idle to rated; NaN: not known."""
    room_w = rated_w - np.nan_to_num(idle_w)
    share = np.full(power_w.shape, np.nan)
    np.divide(power_w - np.nan_to_num(idle_w), room_w, out=share, where=room_w > 0.0)
    return share


def is_at_limit(power_w: Floats, limit_w: Floats) -> Bools:
    """Say which GPUs are held back by their power limit."""
    return np.asarray(power_w >= _AT_LIMIT * limit_w)


def holders(part: Ints, at_us: Ints, held: GpuSpans, gang: Ints) -> Ints:
    """Return the gang that holds each part at a moment, of several the last to begin; -1: none.

    ``gang`` is that of each of the spans in ``held``.
    """
    if not held.gpu.size or not part.size:
        return np.full(part.size, -1, dtype=np.int64)
    # All parts one after the other on one axis of time.
    since = min(int(held.start_us.min()), int(at_us.min()))
    width = max(int(held.start_us.max()), int(at_us.max())) - since + 1
    begins = held.gpu * width + (held.start_us - since)
    order = np.argsort(begins, kind="stable")
    place = np.searchsorted(begins[order], part * width + (at_us - since), side="right") - 1
    found = order[np.maximum(place, 0)]
    holds = (place >= 0) & (held.gpu[found] == part) & (at_us < held.end_us[found])
    return np.where(holds, gang[found], -1)


class GangDraws:
    """The mean draw of gangs in each of ``buckets`` spans of ``step_s`` from ``start`` on, Unix s.

    Readings are added as they come, a part of the fleet at a time.
    """

    def __init__(self, gangs: int, start: float, step_s: float, buckets: int) -> None:
        self._start, self._step_s = start, step_s
        self._shape = gangs, buckets
        #: Of gangs and buckets: readings, their draw, and how many were at their limit.
        self._sums: Floats = np.zeros((3, gangs * buckets))

    def add(self, gang: Ints, at: Floats, draw: Floats, at_limit: Bools) -> None:
        """Add readings of GPUs: of no gang (-1), of other times, or of no known draw do not count.

        ``at`` is when the bucket of each begins, Unix s.
        """
        bucket = np.floor((at - self._start) / self._step_s).astype(np.int64)
        counts = (gang >= 0) & (bucket >= 0) & (bucket < self._shape[1]) & ~np.isnan(draw)
        place = gang[counts] * self._shape[1] + bucket[counts]
        for sums, values in zip(self._sums, (None, draw, at_limit), strict=True):
            weights = None if values is None else values[counts].astype(np.float64)
            sums += np.bincount(place, weights, sums.size)

    def shares(self, which: Bools) -> Shares:
        """Return of those gangs ``which`` what of each bucket they drew less than at work.

        One whose level is no higher than what stands still tells nothing.
        """
        times, total, limited = (each.reshape(self._shape) for each in self._sums)
        read = times > 0.0
        mean = np.divide(total, times, out=np.full(self._shape, np.nan), where=read)
        at_limit = np.divide(limited, times, out=np.zeros(self._shape), where=read)
        level = _levels(mean)[:, None]
        can_tell = read & (level > STANDS) & which[:, None]
        room = np.where(level > STANDS, level - STANDS, 1.0)
        works = np.maximum(np.clip((mean - STANDS) / room, 0.0, 1.0), at_limit)
        ppm = np.where(can_tell, np.rint((1.0 - np.nan_to_num(works)) * PPM), 0.0).astype(np.int64)
        gang, bucket = np.nonzero(ppm)
        start = np.asarray(self._start + bucket * self._step_s, dtype=np.float64)
        return Shares(
            cause=Cause.LOW_DRAW,
            ppm=ppm[gang, bucket],
            **times_us(gang, start, start + self._step_s),
        )


def _levels(mean: Floats) -> Floats:
    """Return the draw at which each gang works; 0 where none is known."""
    known = ~np.isnan(mean)
    ordered = np.sort(np.where(known, mean, np.inf), axis=1)
    # The quantile as one of the values, the higher of two.
    last = np.maximum(known.sum(axis=1) - 1, 0)
    place = np.ceil(_LEVEL * last).astype(np.int64)[:, None]
    level = np.take_along_axis(ordered, place, axis=1)[:, 0] if mean.shape[1] else last * 0.0
    return np.where(known.any(axis=1), level, 0.0)
