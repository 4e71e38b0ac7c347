"""Pace: how fast bytes go over a link, as whoever owns it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Pace", "Tokens"]

#: How long nothing goes, s, until it is asked again where the rate is nothing.
_ASK_AGAIN_S = 0.5


class Tokens:
    """A bucket of tokens, one for each byte, that holds those of ``burst_s`` seconds."""

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._full_at = float("-inf")

    def take(self, count: int, rate_bytes_per_s: float, now_s: float) -> float:
        """Take ``count`` tokens at ``now_s``, and return after how many seconds they are there."""
        spent_until = max(self._full_at, now_s - self._burst_s)
        self._full_at = spent_until + count / rate_bytes_per_s
        return max(0.0, self._full_at - now_s)


class Pace:
    """Has threads wait so that they keep to a rate together. It may change at any time.

    ``rate`` returns bytes per second: None is without bound, 0 has everybody wait. A chunk goes at
    once when its turn has come, so that the rate holds on the average of some chunks.
    """

    def __init__(
        self,
        rate: Callable[[], float | None],
        *,
        burst_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._tokens = Tokens(burst_s)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, bytes_per_s: float | None) -> Pace:
        """Return a pace that stays as it is."""
        return cls(lambda: bytes_per_s)

    def wait(self, count: int) -> None:
        """Return when ``count`` bytes may go."""
        while (rate := self._rate()) is not None and rate <= 0:
            self._sleep(_ASK_AGAIN_S)
        if rate is None:
            return
        with self._lock:
            wait_s = self._tokens.take(count, rate, self._clock())
        if wait_s > 0:
            self._sleep(wait_s)
