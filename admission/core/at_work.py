"""Whether readings of a GPU show work, for whomever. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["at_work", "least_at_work_w"]

Floats = NDArray[np.float64]

#: A GPU at or above this share of its time, in percent, is at work.
_BUSY_UTIL = 5.0
#: So is one that draws more than idle by this share of the way to its rating.
_BUSY_DRAW = 0.1


def least_at_work_w(idle_w: Floats, rated_w: Floats) -> Floats:
    """Return what GPUs draw at least that are at work, W."""
    idle_w = np.nan_to_num(idle_w)
    return np.asarray(idle_w + _BUSY_DRAW * (np.nan_to_num(rated_w, nan=np.inf) - idle_w))


def at_work(util: NDArray[Any], power_w: NDArray[Any], least_w: Floats) -> NDArray[np.bool_]:
    """Say of readings (NaN: none) whether they show work; ``least_w``: what it draws at least."""
    return np.asarray((util >= _BUSY_UTIL) | (power_w >= least_w))
