"""The scale from a margin to a color, which all pages share.

A level is 0 (nothing left) to 10 (much left), or one of three states that are no margin. Levels are
CSS classes of static/css/headroom.css; as numbers they are places in ``CLASSES``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

TOP = 10
OVER, STALE, UNKNOWN = TOP + 1, TOP + 2, TOP + 3

CLASSES = (*(f"m{level}" for level in range(TOP + 1)), "over", "stale", "unknown")


def levels(margin: Array, *, stale: Array | bool = False, seen: Array | bool = True) -> Array:
    """Return the level of each margin (1 is all left, 0 none, less is over; NaN is unknown).

    Over wins against stale: what is over its budget by the assumptions made for what is not heard
    of needs somebody to look. Never seen wins against both.
    """
    known = ~np.isnan(margin)
    share = np.where(known, margin, 0.0)
    level = np.clip(np.floor(share * TOP + 1e-9), 0, TOP).astype(np.int64)
    level = np.where(known, level, UNKNOWN)
    level = np.where(stale, STALE, level)
    level = np.where(known & (share < 0), OVER, level)
    return np.where(seen, level, UNKNOWN)


def level(margin: float | None, *, stale: bool = False, seen: bool = True) -> int:
    """Return the level of one margin; None is unknown."""
    value = np.array([np.nan if margin is None else margin], dtype=np.float64)
    return int(levels(value, stale=stale, seen=seen)[0])


def css(code: int) -> str:
    """Return the CSS class of a level."""
    return CLASSES[code]
