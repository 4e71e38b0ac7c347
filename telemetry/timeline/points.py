"""Rows of one thing over a time, from whatever tier, each with a width.

A reading is a row of width 0, a roll-up one as wide as its bucket. Values are float64, NaN where
missing. All that is here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from telemetry.rollups.compute import Buckets, percentile, stood_s, weighted_mean
from telemetry.samples import Array
from telemetry.timeline.fields import Over, over_time

_PARTS = ("value", "least", "greatest", "p95", "count")


@dataclass(frozen=True)
class Field:
    """The values of one field, an element for each row."""

    value: Array
    least: Array
    greatest: Array
    p95: Array
    #: Readings in each row that have the field, and did not fail.
    count: Array

    @property
    def told(self) -> Array:
        """The values without those of readings that failed."""
        return np.where(self.count > 0, self.value, np.nan)

    @staticmethod
    def of(fields: Sequence[Field], make: Callable[[list[Array]], Array]) -> Field:
        """Return what ``make`` makes of each part of ``fields``, once where parts are the same.

        Of roll-ups least and greatest values are the values themselves, unless they are asked for.
        """
        made: dict[tuple[int, ...], Array] = {}
        found = []
        for part in _PARTS:
            arrays = [getattr(each, part) for each in fields]
            key = tuple(map(id, arrays))
            if key not in made:
                made[key] = make(arrays)
            found.append(made[key])
        return Field(*found)

    def spread(self, places: Array, length: int) -> Field:
        """Return the values at ``places`` among ``length`` rows; others are missing."""
        found = {part: np.full(length, np.nan) for part in _PARTS}
        found["count"] = np.zeros(length)
        for part in _PARTS:
            found[part][places] = getattr(self, part)
        return Field(**found)


@dataclass(frozen=True)
class Points:
    """Rows in order of time."""

    #: Unix s: of the reading, or the bucket's start.
    t: Array
    width_s: Array
    #: The usual time between two readings, s; 0: unknown, or less than the width.
    cadence_s: Array
    fields: dict[str, Field]

    def __len__(self) -> int:
        return len(self.t)

    @property
    def widest_s(self) -> float:
        return float(self.width_s.max(initial=0.0))

    @property
    def newest_at(self) -> float:
        """Return how far the newest row reaches, Unix s. There has to be one."""
        return float((self.t + self.width_s).max())

    def stood_s(self, ids: Array | None = None) -> Array:
        """Return for how long each row stands, s. ``ids``: of what each is; None: all of one thing.

        A reading stands for half of the way to the readings before and after it; a roll-up for its
        width, but beside a gap only as long as its readings do, which are as far apart as those of
        its neighbor.
        """
        ids = np.zeros(len(self.t)) if ids is None else ids
        rolled = self.width_s > 0
        counts = [each.count for each in self.fields.values()]
        count = np.fmax(np.max(counts, axis=0) if counts else 1.0, 1.0)
        apart_s = np.where(rolled, self.width_s / count, self.cadence_s)
        is_next = (ids[1:] == ids[:-1]) & (np.diff(self.t) <= 1.5 * self.width_s[:-1])
        follows, leads = (
            np.append(False, is_next)[: len(ids)],
            np.append(is_next, False)[: len(ids)],
        )
        near_s = np.where(
            follows, np.roll(apart_s, 1), np.where(leads, np.roll(apart_s, -1), apart_s)
        )
        at_edge = np.fmin(self.width_s, np.fmax(near_s, 1e-3) * count)
        whole = np.where(follows & leads, self.width_s, at_edge)
        # NaN is no neighbor of anything.
        stood = stood_s(self.t, np.where(rolled, np.nan, ids), alone_s=np.fmax(near_s, 1e-3))
        return np.where(rolled, whole, stood)

    def at(self, places: Array | slice) -> Points:
        """Return the rows at ``places``."""
        fields = {
            name: Field.of([each], lambda parts: parts[0][places])
            for name, each in self.fields.items()
        }
        return Points(self.t[places], self.width_s[places], self.cadence_s[places], fields)

    def joined(self, other: Points) -> Points:
        """Return the fields of both at all times of either; rows of the same time are one."""
        t = np.union1d(self.t, other.t)
        width, cadence = np.zeros(len(t)), np.zeros(len(t))
        fields: dict[str, Field] = {}
        for each in (self, other):
            places = np.searchsorted(t, each.t)
            width[places] = np.maximum(width[places], each.width_s)
            cadence[places] = np.maximum(cadence[places], each.cadence_s)
            fields |= {name: each.fields[name].spread(places, len(t)) for name in each.fields}
        return Points(t, width, cadence, fields)

    def gaps(self) -> Array:
        """Return the places of the rows before which readings are missing."""
        width = np.maximum(self.width_s[1:], self.width_s[:-1])
        cadence = np.maximum(self.cadence_s[1:], self.cadence_s[:-1])
        # A reading that comes late, or one that is lost, is no gap.
        longest = np.maximum(1.5 * width, 2.5 * cadence)
        return np.flatnonzero((np.diff(self.t) > longest) & (longest > 0)) + 1


def concatenate(parts: Sequence[Points], names: Iterable[str]) -> Points:
    """Return the rows of ``parts``, which follow each other in time."""
    whole = {
        name: Field.of([each.fields[name] for each in parts], np.concatenate) for name in names
    }
    return Points(
        np.concatenate([part.t for part in parts]),
        np.concatenate([part.width_s for part in parts]),
        np.concatenate([part.cadence_s for part in parts]),
        whole,
    )


def in_buckets(points: Points, step_s: float, stood: Array | None = None) -> Points:
    """Return one row for each bucket of ``step_s`` with rows in it.

    ``stood``: for how long each row stands, s, where they are of several things. The mean is then
    one over things and time, and the extremes are of any of them.
    """
    if not len(points):
        return points
    start = np.floor(points.t / step_s) * step_s
    groups = Buckets.of(np.zeros(len(points)), start)
    at = groups.starts
    width_s = np.maximum.reduceat(points.width_s, at)
    stood = points.stood_s() if stood is None else stood
    return Points(
        start[at],
        np.maximum(width_s, step_s),
        np.maximum.reduceat(points.cadence_s, at),
        {
            name: _combined(each, over_time(name), groups, width_s == 0, stood)
            for name, each in points.fields.items()
        },
    )


def _combined(each: Field, over: Over, groups: Buckets, is_raw: Array, stood: Array) -> Field:
    """Return a field's values combined, one for each group of rows.

    Means are weighted by the time for which each row ``stood``, s. The 95th percentile is exact
    where a group ``is_raw``, or one row; of several roll-ups it is the greatest of theirs, above
    which it cannot be.
    """
    at = groups.starts
    count = np.add.reduceat(each.count, at)
    least, greatest = np.fmin.reduceat(each.least, at), np.fmax.reduceat(each.greatest, at)
    p95 = np.fmax.reduceat(each.p95, at)
    if is_raw.any():
        known = np.where(is_raw, count, 0).astype("i8")
        p95 = np.where(is_raw, percentile(each.told, known, greatest, groups), p95)
    if over is Over.MEAN:
        value = weighted_mean(each.told, stood, groups)
    else:
        value = aggregate(each.value, over, at)
    return Field(value, least, greatest, p95, count)


def aggregate(values: Array, over: Over, starts: Array) -> Array:
    """Return one value for each run of rows from ``starts``; NaN where none of them is known."""
    unknown = np.isnan(values)
    nothing = np.logical_and.reduceat(unknown, starts)
    if over is Over.GREATEST:
        return np.asarray(np.fmax.reduceat(values, starts))
    if over is Over.LEAST:
        return np.asarray(np.fmin.reduceat(values, starts))
    known = np.where(unknown, 0.0, values)
    if over is Over.BITS:
        found = np.bitwise_or.reduceat(known.astype("i8"), starts).astype("f8")
    else:
        found = np.add.reduceat(known, starts)
    if over is Over.MEAN:
        with np.errstate(invalid="ignore"):
            found = found / np.add.reduceat((~unknown).astype("f8"), starts)
    return np.where(nothing, np.nan, found)


def chosen(points: Points, names: Iterable[str]) -> Points:
    """Return the rows with ``names`` alone, in their order."""
    return replace(points, fields={name: points.fields[name] for name in names})
