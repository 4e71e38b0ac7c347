"""Levels: how far running load gives way, as one scale for all of it.

On the lowest stretch of the scale what agreed to nothing is slowed, and everybody else with it; on
the next, load of no known owner; on the next, jobs that agreed to be slower; on the last nobody is,
and caps rise from what each draws at full speed to what its GPUs are rated for. So what agreed to
slowdown gives way first and gets it back last, and what agreed to nothing the other way round. On
each stretch all are slowed alike, each as far as it agreed. Pure.
"""

from __future__ import annotations

import enum

import numpy as np

from physics.power import gpu_power_w
from policies.headroom.columns import Floats, Ints

__all__ = [
    "FREE",
    "FULL",
    "LEVELS",
    "LOWEST",
    "Kind",
    "caps_at",
    "caps_by_level",
    "last_to_give",
    "speeds_by_level",
]


class Kind(enum.IntEnum):
    """What a unit of running load has agreed to."""

    #: to a slowdown
    AGREED = 0
    #: it has no known owner: a reviewed policy says how far it may be slowed
    UNMANAGED = 1
    #: to nothing
    FIRM = 2


#: The slowest that anything is made, as a share of its full speed.
LEAST_SPEED = 0.3
#: Points of each stretch of the scale, without its first.
_STEPS = (16, 8, 24, 4)
_EDGES = np.cumsum((0, *_STEPS))
#: The number of levels; the level at which everybody has given way as far as it agreed, the one at
#: which everybody has what it draws at full speed, and the one at which nobody is capped.
LEVELS = int(_EDGES[-1]) + 1
LOWEST, FULL, FREE = int(_EDGES[1]), int(_EDGES[3]), int(_EDGES[4])


def _rising(stretch: int) -> Floats:
    """Return for each level how far it is along a stretch, from 0 to 1."""
    first, last = _EDGES[stretch], _EDGES[stretch + 1]
    return np.asarray(np.clip((np.arange(LEVELS) - first) / (last - first), 0.0, 1.0))


def speeds_by_level(kind: Ints, lowest_speed: Floats) -> Floats:
    """Return the speed of each unit at each level, as a share of its full speed: (units, levels).

    ``lowest_speed``: how slow it may be made before those that agreed to nothing are slowed, too.
    """
    lowest = np.where(kind == Kind.FIRM, 1.0, lowest_speed)[:, None]
    emergency = LEAST_SPEED + (1.0 - LEAST_SPEED) * _rising(0)
    own = np.where(kind[:, None] == Kind.UNMANAGED, _rising(1), _rising(2))
    own = LEAST_SPEED + (1.0 - LEAST_SPEED) * own
    at_most = np.where(_rising(0) < 1.0, emergency, np.inf)
    return np.asarray(np.minimum(np.maximum(own, lowest), at_most))


def last_to_give(level: float) -> Kind | None:
    """Return the kind of load that gives way last of those that do at a level; None: nobody."""
    for kind, upto in zip((Kind.FIRM, Kind.UNMANAGED, Kind.AGREED), _EDGES[1:4], strict=True):
        if level < upto:
            return kind
    return None


def caps_by_level(
    speeds: Floats,
    *,
    full_w: Floats,
    static_w: Floats,
    exponent: Floats,
    linear_share: Floats,
    most_w: Floats,
) -> Floats:
    """Return the power of one GPU of each unit at each level, W: (units, levels).

    By the law of power over speed (:func:`physics.power.gpu_power_w`): ``full_w`` at full speed, of
    which ``static_w`` at any speed. On the last stretch it rises to ``most_w``, which none exceeds.
    """
    full_w = np.minimum(full_w, most_w)
    standing_w = np.minimum(static_w, full_w)
    slowed_w = gpu_power_w(
        static_w=standing_w[:, None],
        dynamic_w=(full_w - standing_w)[:, None],
        relative_throughput=speeds,
        exponent=exponent[:, None],
        linear_share=linear_share[:, None],
    )
    return np.asarray(slowed_w + (most_w - full_w)[:, None] * _rising(3))


def caps_at(by_level: Floats, level: Floats) -> Floats:
    """Return the value of each row at its level, which may lie between two."""
    low = np.minimum(level.astype(np.int64), LEVELS - 2)
    rows = np.arange(len(by_level))
    first, second = by_level[rows, low], by_level[rows, low + 1]
    found: Floats = first + (level - low) * (second - first)
    return found
