"""From counters that only grow to rates."""

from __future__ import annotations

import math

__all__ = ["WRAP_32", "WRAP_64", "CounterRate"]

#: Where counters of 32 and of 64 bits start anew.
WRAP_32 = 2**32
WRAP_64 = 2**64


class CounterRate:
    """Turns a counter that only grows into a rate per second."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def update(
        self,
        at_s: float,
        count: float,
        *,
        wraps_at: float | tuple[float, ...] = (),
        most_per_s: float = math.inf,
    ) -> float | None:
        """Return the rate since the last call, or None when it is unknown.

        A counter that fell was reset, unless it came to its end: ``wraps_at`` says at which values
        it may start anew. ``most_per_s`` is the highest rate that can be: it tells one from the
        other, and what is above it is a glitch.
        """
        last, self._last = self._last, (at_s, count)
        if last is None or at_s <= last[0]:
            return None
        span_s, grown = at_s - last[0], count - last[1]
        ends = wraps_at if isinstance(wraps_at, tuple) else (wraps_at,)
        for end in (0, *(end for end in ends if last[1] < end)):
            rate = (grown + end) / span_s
            if 0 <= rate <= most_per_s:
                return rate
            if grown >= 0:  # it did not fall, so it did not wrap
                break
        return None
