"""The state machine of a rule on each scope: pending, firing, clearing. Pure, and as arrays.

::

    idle ──when──► pending ──when for as long as `for`──► firing ──clear──► clearing
      ▲               │                                     ▲                │   │
      └── not when ───┘                                     └── not clear ───┘   │
      └──────────────── clear for as long as `clear_for` ────────────────────────┘

Time in which nobody can say whether a condition holds does not count: it neither fires a rule nor
clears one. Nor does the time in which nobody looked.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.rules.arrays import Bools
from policies.rules.cel import Verdict

#: Times are sums of floats: this much may be missing, s.
_CLOSE_S = 1e-6


class Phase(enum.IntEnum):
    """The phase of a rule on a scope."""

    IDLE = 0
    PENDING = 1
    FIRING = 2
    CLEARING = 3


@dataclass(frozen=True)
class Timing:
    """How long conditions have to hold, s."""

    for_s: float
    clear_for_s: float


@dataclass(frozen=True, eq=False)
class Phases:
    """The phases of one rule on all scopes. Arrays are never changed in place."""

    phase: NDArray[np.int8]
    #: when ``when`` began to hold, less what does not count; Unix s
    since: NDArray[np.float64]
    #: when it had held for long enough
    fired_at: NDArray[np.float64]
    #: when ``clear`` began to hold, likewise
    clear_since: NDArray[np.float64]

    @classmethod
    def idle(cls, count: int) -> Phases:
        """Return the phases of scopes of which nothing is known yet."""
        times = np.full(count, np.nan)
        return cls(np.zeros(count, np.int8), times, times, times)

    def __len__(self) -> int:
        return len(self.phase)

    @property
    def fires(self) -> Bools:
        """Which scopes the rule fires on, also while it clears."""
        return self.phase >= Phase.FIRING

    def taken(self, rows: NDArray[np.intp]) -> Phases:
        """Return the phases of ``rows``, in that order; -1: of a scope that is new."""
        none = rows < 0
        phase = np.where(none, np.int8(Phase.IDLE), self.phase[rows] if len(self) else np.int8(0))
        times = (self.since, self.fired_at, self.clear_since)
        moved = (np.where(none, np.nan, t[rows] if len(self) else np.nan) for t in times)
        return Phases(phase, *moved)


@dataclass(frozen=True, eq=False)
class Moved:
    """Phases after a step, and the scopes on which the rule fired or cleared in it."""

    phases: Phases
    fired: Bools
    cleared: Bools


def step(
    phases: Phases,
    timing: Timing,
    when: Verdict,
    clear: Verdict,
    *,
    now: float,
    passed_s: float,
    most_s: float,
) -> Moved:
    """Move every scope on to ``now``, ``passed_s`` after the last step.

    Where that is longer than ``most_s``, nobody has looked meanwhile, and it does not count. Where
    ``when`` and ``clear`` hold at once, ``when`` counts.
    """
    lost_s = passed_s if passed_s > most_s else 0.0
    clears, stays = clear.holds & ~when.holds, clear.fails | when.holds
    phase = phases.phase.copy()
    since = _later(phases.since, when.holds | when.fails, lost_s, passed_s, now)
    clear_since = _later(phases.clear_since, clears | stays, lost_s, passed_s, now)

    begun = (phase == Phase.IDLE) & when.holds
    since = np.where(begun, now, since)
    phase[begun] = Phase.PENDING
    phase[(phase == Phase.PENDING) & when.fails] = Phase.IDLE
    fired = (phase == Phase.PENDING) & when.holds & (now - since >= timing.for_s - _CLOSE_S)

    phase[(phase == Phase.CLEARING) & stays] = Phase.FIRING
    ending = (phase == Phase.FIRING) & clears
    clear_since = np.where(ending, now, clear_since)
    phase[ending] = Phase.CLEARING
    long_enough = now - clear_since >= timing.clear_for_s - _CLOSE_S
    cleared = (phase == Phase.CLEARING) & clears & long_enough

    phase[fired] = Phase.FIRING
    phase[cleared] = Phase.IDLE
    fired_at = np.where(fired, now, phases.fired_at)
    return Moved(Phases(phase, since, fired_at, clear_since), fired, cleared)


def _later(
    times: NDArray[np.float64], known: Bools, lost_s: float, passed_s: float, now: float
) -> NDArray[np.float64]:
    """Move beginnings up by the time since the last step that does not count, at most to now."""
    if not lost_s and known.all():
        return times
    return np.minimum(times + np.where(known, lost_s, passed_s), now)


def is_idle(phases: Phases) -> bool:
    """Say whether nothing is under way on any scope."""
    return not phases.phase.any()
