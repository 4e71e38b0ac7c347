"""Sums, counts and extremes by group, over whole fleets.

Values are arrays whose last axis is that of a table, with any axes before it: one moment of a fleet
is ``(things,)``, many moments are ``(times, things)``. Groups are rows of another table, and that
is the last axis of what comes back.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays, Floats, Ints

Bools: TypeAlias = NDArray[np.bool_]


def sum_by(values: Any, group: Ints, groups: int) -> Floats:
    """Return the sum of each group; members of group -1 are left out."""
    return _over_groups(np.add, np.asarray(values, dtype=np.float64), group, groups, empty=0.0)


def count_by(flags: Bools, group: Ints, groups: int) -> Floats:
    """Return how many of each group have their flag set; group -1 is left out."""
    return sum_by(flags, group, groups)


def sum_of_known_by(values: Floats, group: Ints, groups: int) -> Floats:
    """Return the sum of each group's known values; NaN where none is known."""
    known = ~np.isnan(values)
    sums = sum_by(np.where(known, values, 0.0), group, groups)
    return np.where(count_by(known, group, groups) > 0, sums, np.nan)


def least_by(values: Floats, group: Ints, groups: int) -> Floats:
    """Return the least known value of each group, NaN where none is known; -1 is left out."""
    return _over_groups(np.fmin, values, group, groups, empty=np.nan)


def most_by(values: Floats, group: Ints, groups: int) -> Floats:
    """Return the greatest known value of each group, NaN where none is known; -1 is left out."""
    return _over_groups(np.fmax, values, group, groups, empty=np.nan)


def row_of_most_by(values: Floats, group: Ints, groups: int) -> Ints:
    """Return the row of each group's greatest known value, of several the last; -1: none."""
    is_most = values == at(most_by(values, group, groups), group)
    rows = np.where(is_most, np.arange(len(group)), np.nan)
    row: Ints = np.nan_to_num(most_by(rows, group, groups), nan=-1.0).astype(np.int64)
    return row


def _over_groups(
    join: np.ufunc, values: NDArray[Any], group: Ints, groups: int, *, empty: float
) -> Floats:
    """Join the values of each group; ``empty`` where a group has no member."""
    out = np.empty((*values.shape[:-1], groups))
    out.fill(empty)
    if not len(group):
        return out
    if (group[1:] < group[:-1]).any():
        order = group.argsort(kind="stable")
        values, group = values[..., order], group[order]
    is_first = np.empty(len(group), dtype=bool)
    is_first[0] = True
    np.not_equal(group[1:], group[:-1], out=is_first[1:])
    firsts = is_first.nonzero()[0]
    joined, found = join.reduceat(values, firsts, axis=-1), group[firsts]
    if found[0] < 0:
        joined, found = joined[..., 1:], found[1:]
    out[..., found] = joined
    return out


def at(values: NDArray[Any], rows: Ints, empty: float = np.nan) -> NDArray[Any]:
    """Return ``values`` of ``rows``, and ``empty`` where the row is -1."""
    beyond = np.full((*values.shape[:-1], 1), empty, dtype=values.dtype)
    return np.concatenate([values, beyond], axis=-1)[..., rows]


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return part / whole; NaN where there is no whole."""
    shape = np.broadcast_shapes(np.shape(part), np.shape(whole))
    out: Floats = np.divide(part, whole, out=np.full(shape, np.nan), where=whole > 0)
    return out


def above(fleet: FleetArrays, feed: Ints) -> Ints:
    """Return the power domains of each of ``feed`` up to the root, -1 beyond: (levels, racks)."""
    parent = np.append(fleet.domains.parent, -1)
    levels = [feed]
    while (levels[-1] >= 0).any() and len(levels) <= len(fleet.domains):
        levels.append(parent[levels[-1]])
    return np.stack(levels)
