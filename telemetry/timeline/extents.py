"""What a field came to over a whole span: least, mean and greatest, and energy. Pure.

Extremes are those of readings: roll-ups keep them. Means are weighted by time. Failed readings of
power are in neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from telemetry.samples import Array
from telemetry.timeline.fields import COVERED, USED
from telemetry.timeline.points import Field, Points


@dataclass(frozen=True, slots=True)
class Extent:
    """Least, mean and greatest value over a span.

    ``exact``: the extremes are those of readings. If not, they are those of means over rows.
    """

    least: float
    mean: float
    greatest: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy over a span.

    ``used_j`` is what was measured, in ``covered_s`` seconds of the time. ``bridged_j`` has the
    time in between too, as a straight line from the power before to the power after; ``share`` of
    the time is such.
    """

    used_j: float
    covered_s: float
    bridged_j: float
    share: float


def extent(points: Points, each: Field, *, exact: bool) -> Extent | None:
    """Return the extent of a field over rows of one thing; None where it was never read."""
    told = each.told
    known = ~np.isnan(told)
    if not known.any():
        return None
    stood = points.stood_s()[known]
    mean = float(np.average(told[known], weights=stood))
    least, greatest = float(np.nanmin(each.least)), float(np.nanmax(each.greatest))
    return Extent(least, mean, greatest, exact)


def energy(points: Points) -> Energy | None:
    """Return the energy over rows with ``used_j`` and ``covered_s``; None where none is known."""
    used, covered = points.fields[USED].value, np.nan_to_num(points.fields[COVERED].value)
    known = np.flatnonzero((covered > 0) & ~np.isnan(used))
    if not len(known):
        return None
    power_w = used[known] / covered[known]
    ends = (points.t + points.width_s)[known]
    first = min(float(points.t[0]), float(ends[0] - covered[known[0]]))
    lengths = np.diff(ends, prepend=first)
    before = np.append(power_w[0], power_w[:-1])
    silent_s = np.maximum(lengths - covered[known], 0.0)
    after_s = max(points.newest_at - float(ends[-1]), 0.0)
    used_j, covered_s = float(used[known].sum()), float(covered[known].sum())
    between_j = (before + power_w) / 2 * silent_s
    bridged_j = used_j + float(between_j.sum()) + after_s * float(power_w[-1])
    bridged_s = float(silent_s.sum()) + after_s
    return Energy(used_j, covered_s, bridged_j, bridged_s / (covered_s + bridged_s))


def least_and_greatest(values: Array, bucket: Array, count: int) -> tuple[Array, Array]:
    """Return the extremes of ``values`` in each of ``count`` buckets; NaN where none is known."""
    known = ~np.isnan(values)
    least, greatest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, bucket[known], values[known])
    np.maximum.at(greatest, bucket[known], values[known])
    nothing = np.isinf(least)
    return np.where(nothing, np.nan, least), np.where(nothing, np.nan, greatest)
