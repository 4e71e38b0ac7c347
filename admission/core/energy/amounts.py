"""Energy in whole millijoules: what was read of things over a span, and shares of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleet.tables import Floats, Ints

__all__ = [
    "BRIDGED_FROM", "MJ_PER_J", "MS_PER_S", "Bools", "Read", "apportion", "read", "total_by",
    "within",
]  # fmt: skip

Bools = NDArray[np.bool_]

MJ_PER_J, MS_PER_S = 1000, 1000
#: A gap is bridged at the mean power of the rest where at least this share of a span was read.
BRIDGED_FROM = 0.5
#: Readings do not begin and end with a span: so much may be missing at its ends, s.
_EDGE_S = 15.0


@dataclass(frozen=True, eq=False)
class Read:
    """What was read of things over a span. Arrays by row of their table.

    ``mj`` has what was bridged, of which ``bridged_mj`` is the part; 0 where nothing is ``known``.
    ``covered_ms`` of the span were read.
    """

    mj: Ints
    bridged_mj: Ints
    covered_ms: Ints
    known: Bools

    def where(self, chosen: Bools) -> Read:
        """Return the same, with nothing known but of those that are ``chosen``."""
        return Read(
            np.where(chosen, self.mj, 0),
            np.where(chosen, self.bridged_mj, 0),
            np.where(chosen, self.covered_ms, 0),
            self.known & chosen,
        )

    def missing(self, span_s: float) -> Floats:
        """Return of which share of a span of ``span_s`` s neither readings nor bridging tell."""
        covered = self.covered_ms / (span_s * MS_PER_S)
        return np.where(covered >= BRIDGED_FROM, 0.0, 1.0 - covered)


def read(used_j: Floats, covered_s: Floats, span_s: float) -> Read:
    """Return what readings of ``used_j`` J in ``covered_s`` s say of a span of ``span_s`` s.

    NaN: nothing was read. A gap is bridged by the mean of the rest, but not where more than half
    of the span is missing: then nobody knows whether the thing was on.
    """
    known = ~np.isnan(used_j) & (covered_s > 0)
    covered_s = np.where(known, covered_s, 0.0)
    used_mj = _whole(np.where(known, used_j, 0.0) * MJ_PER_J)
    gap_s = span_s - covered_s
    bridged = known & (gap_s > _EDGE_S) & (covered_s >= BRIDGED_FROM * span_s)
    between = np.divide(gap_s, covered_s, out=np.zeros(len(covered_s)), where=bridged)
    bridged_mj = _whole(used_mj * between)
    covered_ms = _whole(np.minimum(covered_s, span_s) * MS_PER_S)
    return Read(used_mj + bridged_mj, bridged_mj, covered_ms, known)


def within(whole: Read, whole_s: float, used_j: Floats, covered_s: Floats, span_s: float) -> Read:
    """Return what readings of ``used_j`` J in ``covered_s`` s say of a span within a ``whole`` one.

    A span has the mean of what was read in it: what lies between two readings is told with the
    later one, so that ``covered_s`` may be a little more than the span. Where less than half of it
    was read, it has the mean of the whole, if at least half of that was: a thing that falls silent
    for some minutes does not draw less. What is known, and for which share of the time, is as of
    the whole, so that the same meters tell in each of its parts.
    """
    used_mj = np.where(covered_s > 0, used_j, 0.0) * MJ_PER_J
    is_read = covered_s >= BRIDGED_FROM * span_s
    filled = ~is_read & (whole.covered_ms >= BRIDGED_FROM * whole_s * MS_PER_S)
    scale = np.divide(span_s, covered_s, out=np.ones(len(covered_s)), where=is_read)
    part = span_s / whole_s
    mean_mj = _whole(whole.mj.astype(np.float64) * part)
    return Read(
        np.where(filled, mean_mj, _whole(used_mj * scale)),
        np.where(filled, mean_mj, _whole(used_mj * np.maximum(scale - 1.0, 0.0))),
        _whole(whole.covered_ms.astype(np.float64) * part),
        whole.known,
    )


def apportion(totals: Ints, weights: Floats, group: Ints) -> Ints:
    """Return whole parts of ``totals`` for members of groups, as their ``weights`` are.

    ``weights`` (at least 0) and ``group`` are by member, members of a group beside each other;
    ``totals`` are by group, of either sign. Parts of a group add up to its total exactly, and each
    is within 1 of its share. Where all weights of a group are 0, its members have equal parts.
    """
    if not len(group):
        return np.zeros(0, dtype=np.int64)
    first = np.append(True, group[1:] != group[:-1])
    number = np.cumsum(first) - 1
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(weights, starts)
    weights = np.where(sums[number] > 0, weights, 1.0)
    upto = np.cumsum(weights)
    before = np.append(0.0, upto)[starts]
    whole = np.add.reduceat(weights, starts)
    last = np.append(starts[1:], len(group)) - 1
    share = np.clip((upto - before[number]) / whole[number], 0.0, 1.0)
    # Rounding must neither lose nor make a millijoule: the last member ends at the total.
    share[last] = 1.0
    of_group = totals[group]
    ends = np.where(share < 1.0, _whole(np.abs(of_group) * share), np.abs(of_group))
    starts_at = np.where(first, 0, np.append(0, ends[:-1]))
    return np.asarray(np.sign(of_group) * (ends - starts_at), dtype=np.int64)


def total_by(values: Ints, group: Ints, groups: int) -> Ints:
    """Return the exact sum of whole ``values`` by group; members of group -1 are left out."""
    found = np.zeros(groups, dtype=np.int64)
    member = group >= 0
    np.add.at(found, group[member], values[member])
    return found


def _whole(values: Floats | Ints) -> Ints:
    return np.rint(values).astype(np.int64)
