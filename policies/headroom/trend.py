"""How loads move: slopes that an outlier does not sway, and extrapolation by them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.headroom.columns import Floats

#: A slope holds on for about so long: what rises for three minutes seldom rises for an hour.
LASTING_S = 600.0
#: The newest and the oldest slots of a window are compared by their medians of so many.
MEDIAN_OF = 3


def slope_per_s(times: Floats, values: NDArray[np.float32]) -> Floats:
    """Return the slope of each column of ``values`` (slots, series), by rising ``times`` (s).

    The median of the three newest less that of the three oldest, over the time between them: one
    wrong reading in each has no say. NaN with fewer than four slots, or where a value is unknown.
    """
    slots, series = values.shape
    if slots <= MEDIAN_OF:
        return np.full(series, np.nan)
    span_s = times[-2] - times[1]  # the medians of three that rise
    rise = _median_of_3(values[-MEDIAN_OF:]) - _median_of_3(values[:MEDIAN_OF])
    slope: Floats = rise.astype(np.float64) / span_s
    return slope


def _median_of_3(values: NDArray[np.float32]) -> NDArray[np.float32]:
    a, b, c = values
    low, high = np.minimum(a, b), np.maximum(a, b)
    median: NDArray[np.float32] = np.maximum(low, np.minimum(high, c))
    return median


def still_for_s(times: Floats, values: NDArray[np.float32], band: Floats, now: float) -> Floats:
    """Return for how long each column has stayed within ``band`` of its newest value, s.

    0 for series that the newest slot does not know.
    """
    staying = np.logical_and.accumulate(np.abs(values[::-1] - values[-1]) <= band)
    since = np.append(now, times[::-1])
    still: Floats = now - since[staying.sum(axis=0)]
    return still


def lasting_s(ahead_s: float) -> float:
    """Return for how long a slope of now would have to last for the rise within ``ahead_s``.

    It dies away: ``τ · (1 - exp(-t / τ))``, a damped trend.
    """
    return float(risen(np.ones(1), ahead_s, LASTING_S)[0])


def risen(slope: Floats, ahead: float | Floats, lasting: float) -> Floats:
    """Return the rise within ``ahead`` at a slope that dies away with the time ``lasting``.

    All in one unit of time. 0 where no slope is known.
    """
    rise: Floats = np.nan_to_num(slope) * (lasting * -np.expm1(-ahead / lasting))
    return rise


def exhausted_in_s(left: Floats, slope: Floats) -> Floats:
    """Return the time until nothing is left at ``slope``, s: 0 where nothing is, inf: never.

    NaN where what is left, or the slope, is not known.
    """
    wait_s = np.full(np.broadcast_shapes(left.shape, slope.shape), np.inf)
    with np.errstate(over="ignore"):  # what hardly moves takes for ever
        np.divide(left, slope, out=wait_s, where=slope > 0)
    unknown = np.isnan(slope) | np.isnan(left)
    return np.where(left <= 0, 0.0, np.where(unknown, np.nan, wait_s))


def percentile(values: NDArray[np.floating[Any]], share: float) -> Floats:
    """Return the quantile ``share`` (0 to 1) of the known values of each column.

    Columns are along the first axis. NaN for those without a known value.
    """
    slots, *series = values.shape
    if not slots:
        return np.full(series, np.nan)
    ordered = np.sort(values, axis=0)  # NaN goes last
    known = slots - np.isnan(values).sum(axis=0)
    place = np.maximum(np.ceil(share * known).astype(np.int64) - 1, 0)
    return np.asarray(np.take_along_axis(ordered, place[None], axis=0)[0], dtype=np.float64)
