"""The protection of power: brakes that slow GPUs within seconds, and breakers behind them.

A brake is pulled when a rack or a power domain has drawn more than its budget for some seconds. It
halves the clocks of all GPUs below it; when it lets go, their caps stay lowered for a while, or it
would be pulled again at once. A breaker knows the capacity only, and is slow: it trips where the
brakes were out of order, or where what they cannot slow down is too much already.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: A brake is pulled above this share of its budget for so long, let go below that share.
BRAKE_PULL_SHARE = 1.03
BRAKE_PULL_S = 8.0
BRAKE_RELEASE_SHARE = 0.9
BRAKE_HOLD_S = 10.0
#: After a brake the caps of its GPUs are lowered to this, and by as much again each time that it is
#: pulled while they are; each of these steps is given back after so long.
BRAKE_CAP_SHARE = 0.92
BRAKE_CAP_S = 1200.0
MOST_CAP_STEPS = 6

#: A breaker warms as the square of its load, with this time constant, and trips where it is as warm
#: as this load would make it in the end. IEC 60947-2 has breakers carry 1.05 times their rating for
#: good, and trip at 1.3 times within two hours.
BREAKER_SETTLES_S = 600.0
BREAKER_TRIP_SHARE = 1.2
#: How long it takes until somebody has found out why, and closes it again.
BREAKER_CLOSED_AFTER_S = 1800.0


class Brakes:
    """The power brakes of some racks, or of some power domains."""

    def __init__(self, count: int) -> None:
        self.braked: Bools = np.zeros(count, dtype=np.bool_)
        self._over_s: Array = np.zeros(count)
        self._braked_s: Array = np.zeros(count)
        self._cap_steps = np.zeros(count, dtype=np.int64)
        self._next_given_back_s: Array = np.full(count, np.inf)
        #: Whether a brake is pulled, whether that or a load is too high, and when the next cap is
        #: given back.
        self._is_braking = self._is_timing = False
        self._gives_back_s = np.inf

    @property
    def cap_share(self) -> Array:
        """The share to which the power caps of the GPUs below are lowered."""
        share: Array = np.power(BRAKE_CAP_SHARE, self._cap_steps, dtype=np.float64)
        return share

    def step(self, share: Array, *, now_s: float, dt_s: float) -> bool:
        """Take in the load over the budget for ``dt_s`` more; say whether anything changed."""
        gives_back = now_s >= self._gives_back_s
        over = share > BRAKE_PULL_SHARE
        if not (self._is_timing or gives_back or over.any()):
            return False
        self._over_s += dt_s
        self._over_s *= over
        most_over_s = self._over_s.max()
        if not (self._is_braking or gives_back or most_over_s >= BRAKE_PULL_S):
            # All that there is to do is to wait on.
            self._is_timing = bool(most_over_s > 0.0)
            return False
        return self._act(share, now_s=now_s, dt_s=dt_s)

    def _act(self, share: Array, *, now_s: float, dt_s: float) -> bool:
        """Pull brakes, let them go, and give caps back; say whether there was any to do that to."""
        given_back = self._next_given_back_s <= now_s
        pulled = self._over_s >= BRAKE_PULL_S
        self._give_back(given_back, now_s)
        self._braked_s = np.where(self.braked, self._braked_s + dt_s, 0.0)
        let_go = (share < BRAKE_RELEASE_SHARE) & (self._braked_s >= BRAKE_HOLD_S)
        fresh = pulled & ~self.braked
        self._cap_steps[fresh] = np.minimum(self._cap_steps[fresh] + 1, MOST_CAP_STEPS)
        self._next_given_back_s[pulled] = now_s + BRAKE_CAP_S
        self.braked = (self.braked & ~let_go) | pulled
        self._is_braking = bool(self.braked.any())
        self._is_timing = self._is_braking or bool(self._over_s.any())
        self._gives_back_s = float(self._next_given_back_s.min(initial=np.inf))
        return bool(let_go.any() or pulled.any() or given_back.any())

    def _give_back(self, given_back: Bools, now_s: float) -> None:
        self._cap_steps[given_back] -= 1
        more = self._cap_steps[given_back] > 0
        self._next_given_back_s[given_back] = np.where(more, now_s + BRAKE_CAP_S, np.inf)


class Breakers:
    """The breakers of the power domains."""

    def __init__(self, count: int) -> None:
        self._warmth: Array = np.zeros(count)
        self._closed_at_s: Array = np.full(count, -np.inf)
        #: How often each has tripped.
        self.trips = np.zeros(count, dtype=np.int64)

    def step(self, share: Array, *, now_s: float, dt_s: float) -> None:
        """Take in the load over the capacity for ``dt_s`` more."""
        keep = np.exp(-dt_s / BREAKER_SETTLES_S)
        self._warmth *= keep
        self._warmth += (1.0 - keep) * share**2
        tripped = self._warmth >= BREAKER_TRIP_SHARE**2
        if tripped.any():
            self.trips += tripped
            self._warmth[tripped] = 0.0
            self._closed_at_s[tripped] = now_s + BREAKER_CLOSED_AFTER_S

    def is_open(self, now_s: float) -> Bools:
        """Say of each whether it is open."""
        return self._closed_at_s > now_s
