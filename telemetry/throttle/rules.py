"""The thresholds that open, close, class and grade a throttle event, all in one place.

docs/explanation/throttle-truth.md has the same as tables, and says why.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headroom.contracts import ThrottleCause
from telemetry.throttle import THROTTLE_BITS

Array: TypeAlias = NDArray[Any]

#: The causes in the order of the columns of every array "by cause".
CAUSES: tuple[ThrottleCause, ...] = tuple(ThrottleCause)

#: An event opens with an interval in which its cause held for this share of the time, or for so
#: many seconds where the interval is long.
OPEN_SHARE = 0.05
OPEN_S = 5.0
#: It goes on with intervals in which the cause held for this much.
KEEP_SHARE = 0.01
KEEP_S = 1.0
#: It closes when the cause has held for less than that for so long.
CLOSE_AFTER_S = 30.0
#: Over a longer silence a mask says nothing of the time in between; cumulative counters still do.
MAX_GAP_S = 120.0
#: An open event is written down again at least this often, by the clock of its readings.
PROGRESS_S = 60.0

#: A GPU in use for this much of the time, percent, is under load.
LOADED_UTIL = 50.0
#: Over so long the clock that a GPU usually has under load is learned.
USUAL_CLOCK_S = 900.0
#: An energy counter that rises faster than any GPU draws was reset or read wrong, W.
MOST_WATTS = 10_000.0

#: A power limit below this share of the rating was lowered by somebody.
LOWERED_LIMIT = 0.99
#: An event is expected if for this share of its throttled time a limit was lowered.
EXPECTED_SHARE = 0.5


def unexpected(mask: Array, limit_w: Array, rated_w: Array) -> NDArray[np.bool_]:
    """Return which GPUs throttle for more than a power limit that was lowered.

    It judges the last reading, its ``mask`` of throttle causes, as the tracker judges an event. All
    of one shape; a limit that is NaN is not lowered.
    """
    causes = mask & THROTTLE_BITS
    only_capped = causes == int(ThrottleCause.SW_POWER_CAP)
    lowered = limit_w < LOWERED_LIMIT * rated_w
    found: NDArray[np.bool_] = (causes != 0) & ~(only_capped & lowered)
    return found


class Severity(enum.IntEnum):
    """How much an event matters. Higher is worse."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def token(self) -> str:
        """The name used in tables, URLs and pages, such as ``critical``."""
        return self.name.lower()


@dataclass(frozen=True)
class Bar:
    """A threshold for events: a share of their time, and so many throttled seconds."""

    share: float
    seconds: float


_NEVER = Bar(np.inf, np.inf)

#: (warning, critical) by cause, of events that nobody asked for; those are always "info".
BARS: dict[ThrottleCause, tuple[Bar, Bar]] = {
    ThrottleCause.SW_POWER_CAP: (_NEVER, _NEVER),
    ThrottleCause.HW_SLOWDOWN: (Bar(0.05, 5.0), Bar(0.25, 60.0)),
    ThrottleCause.SYNC_BOOST: (Bar(0.5, 300.0), _NEVER),
    ThrottleCause.SW_THERMAL: (Bar(0.1, 30.0), Bar(0.5, 300.0)),
    ThrottleCause.HW_THERMAL: (Bar(0.05, 5.0), Bar(0.1, 30.0)),
    ThrottleCause.HW_POWER_BRAKE: (Bar(0.05, 5.0), Bar(0.2, 60.0)),
    ThrottleCause.DISPLAY_CLOCK: (Bar(0.5, 300.0), _NEVER),
}

_BARS = np.array([[(b.share, b.seconds) for b in BARS[cause]] for cause in CAUSES])


def severity(cause: Array, expected: Array, share: Array, throttled_s: Array) -> Array:
    """Return the :class:`Severity` of events. ``cause`` is a place in :data:`CAUSES`.

    ``share`` may be NaN: nothing was seen for any length of time yet.
    """
    reached = (share[:, None] >= _BARS[cause, :, 0]) & (throttled_s[:, None] >= _BARS[cause, :, 1])
    grade = np.where(reached[:, 1], Severity.CRITICAL, np.where(reached[:, 0], 2, 1))
    return np.where(expected, int(Severity.INFO), grade).astype("i1")
