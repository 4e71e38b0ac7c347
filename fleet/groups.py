"""Sums, counts and extremes of what belongs together, over whole fleets."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays, Floats, Ints

Bools: TypeAlias = NDArray[np.bool_]


def sum_by(values: Any, group: Ints, groups: int) -> Floats:
    """Return the sum of each group; members of group -1 are left out."""
    return _counted(values, group, groups)


def count_by(flags: Bools, group: Ints, groups: int) -> Floats:
    """Return how many of each group have their flag set; group -1 is left out."""
    return _counted(flags, group, groups)


def _counted(values: Any, group: Ints, groups: int) -> Floats:
    # Row 0 takes those of no group: bincount does not know -1.
    return np.bincount(group + 1, weights=values, minlength=groups + 1)[1:].astype(np.float64)


def sum_of_known_by(values: Floats, group: Ints, groups: int) -> Floats:
    """Return the sum of each group's known values; NaN where none is known."""
    known = count_by(~np.isnan(values), group, groups)
    return np.where(known > 0, sum_by(np.nan_to_num(values), group, groups), np.nan)


def least_by(values: Floats, group: Ints, groups: int) -> Floats:
    """Return the least known value of each group, NaN where none is known; -1 is left out."""
    out = np.full(groups, np.nan)
    if not len(values):
        return out
    if (group[1:] < group[:-1]).any():
        order = np.argsort(group, kind="stable")
        values, group = values[order], group[order]
    firsts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    least = np.fmin.reduceat(values, firsts)
    inside = group[firsts] >= 0
    out[group[firsts][inside]] = least[inside]
    return out


def most_by(values: Floats, group: Ints, groups: int) -> Floats:
    """Return the greatest known value of each group, NaN where none is known; -1 is left out."""
    return -least_by(-values, group, groups)


def at(values: Floats, rows: Ints) -> Floats:
    """Return ``values[rows]``, NaN where the row is -1."""
    return np.append(values, np.nan)[rows]


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return part / whole; NaN where there is no whole."""
    out: Floats = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return out


def above(fleet: FleetArrays, feed: Ints) -> Ints:
    """Return the power domains of each of ``feed`` up to the root, -1 beyond: (levels, racks)."""
    parent = np.append(fleet.domains.parent, -1)
    levels = [feed]
    while (levels[-1] >= 0).any() and len(levels) <= len(fleet.domains):
        levels.append(parent[levels[-1]])
    return np.stack(levels)
