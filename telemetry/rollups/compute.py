"""From readings to roll-ups: the pure part, over arrays.

What is integrated (energy, seconds of throttling) is made of pieces, each between two readings of
one thing that follow each other. A piece counts to the bucket of its later reading. So a bucket
needs no reading beyond itself but the one before its first, hours are the sums of their minutes,
and nothing is counted twice or left out between two buckets.

The 95th percentile is the nearest rank: a value that was read, at or below which 95 % are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headroom.contracts import ThrottleCause
from telemetry.rollups.spec import MAX_COUNTED_GAP_S, MAX_GAP_S, Rollup, seconds_of
from telemetry.samples import Table
from telemetry.store.columns import US, Array, Columns, empty, is_null, null_of, take
from telemetry.throttle import EXPLAINS_SLOWDOWN

_P95 = 0.95


@dataclass(frozen=True)
class Buckets:
    """The buckets of rows that are in order of thing and time."""

    #: Place of each bucket's first row.
    starts: Array
    #: How many rows each bucket has.
    sizes: Array

    @staticmethod
    def of(ids: Array, buckets: Array) -> Buckets:
        """Make a bucket of each run of rows with the same id and the same number."""
        is_first = np.append(True, (ids[1:] != ids[:-1]) | (buckets[1:] != buckets[:-1]))
        starts = np.flatnonzero(is_first[: len(ids)])
        return Buckets(starts, np.diff(np.append(starts, len(ids))))


def roll_up(rollup: Rollup, rows: Columns, before: Columns, width_s: int) -> Columns:
    """Return a row for each thing and bucket of ``width_s`` with readings in ``rows``.

    ``rows`` are in order of thing and time. ``before`` has, of ``rollup.edge_inputs``, the last
    reading of each thing before its first in ``rows``, and the last of its energy counter, in order
    of things and time; it may lack some.
    """
    if not len(rows["ts"]):
        table = rollup.table(width_s)
        return empty(table, [column.name for column in table.columns])
    key = rollup.source.key
    pieces = _pieces(rollup, rows, before)
    bucket_us = rows["ts"] // (width_s * US) * (width_s * US)
    groups = Buckets.of(rows[key], bucket_us)
    made: Columns = {
        "ts": bucket_us[groups.starts],
        key: rows[key][groups.starts],
        "readings": groups.sizes,
    }
    stood = stood_s(rows["ts"] / US, rows[key])
    for name, stats in rollup.gauges.items():
        made |= _gauge(name, rows[name], stats, groups, stood, is_power=name in rollup.power)
    for name in rollup.counters:
        made[name] = _greatest(rows[name], groups)
    for name in rollup.masks:
        made[name] = _bits(rows[name], groups)
    for name, values in pieces.items():
        made[name] = _total(values, groups)
    if rollup.power:
        power = first_known(rows, rollup.power)
        made["suspect"] = np.add.reduceat(is_failed(power).astype("i8"), groups.starts)
    if rollup.job:
        made[rollup.job] = _most_frequent(rows[rollup.job], groups)
    return made


# --- What is read at each moment -----------------------------------------------------------------


def _gauge(
    name: str,
    values: Array,
    stats: tuple[str, ...],
    groups: Buckets,
    stood: Array,
    *,
    is_power: bool,
) -> Columns:
    """Return the statistics of one field; a reading counts in the mean for as long as it stood.

    Of power, they are those of the readings that did not fail.
    """
    missing = np.isnan(values) if values.dtype.kind == "f" else is_null(values)
    if is_power:
        missing = missing | is_failed(values)
    count = groups.sizes - np.add.reduceat(missing.astype("i8"), groups.starts)
    mean = weighted_mean(np.where(missing, np.nan, values), stood, groups)
    made: Columns = {name: mean, f"{name}_n": np.where(count == groups.sizes, _NULL, count)}
    floats = np.where(missing, np.nan, values) if missing.any() else values
    if "min" in stats:
        made[f"{name}_min"] = np.fmin.reduceat(floats, groups.starts)
    if "max" in stats or "p95" in stats:
        greatest = np.fmax.reduceat(floats, groups.starts)
        if "max" in stats:
            made[f"{name}_max"] = greatest
        if "p95" in stats:
            made[f"{name}_p95"] = percentile(floats, count, greatest, groups)
    return made


_NULL = null_of(np.dtype("i8"))


def stood_s(t: Array, ids: Array, *, alone_s: Array | float = 1.0) -> Array:
    """Return for how long each reading stood, s: half of the way to those before and after it.

    ``t`` (Unix s) is in order within each of ``ids``. At an end, and beside a gap, the whole way to
    the one neighbor counts; a reading without any stands for ``alone_s``.
    """
    between = np.diff(t)
    is_joined = (ids[1:] == ids[:-1]) & (between >= 0) & (between <= MAX_GAP_S)
    between = np.where(is_joined, between, np.nan)
    before, after = np.insert(between, 0, np.nan), np.append(between, np.nan)
    one = np.where(np.isnan(before), after, before)
    both = (before + after) / 2
    stood = np.where(np.isnan(both), one, both)[: len(t)]
    return np.where(np.isnan(stood), alone_s, np.fmax(stood, _LEAST_S))


#: Of several readings of one moment, none counts for nothing, s.
_LEAST_S = 1e-3


def weighted_mean(values: Array, weight: Array, groups: Buckets) -> Array:
    """Return the mean of each bucket's known values; NaN where there is none."""
    if not len(groups.starts):
        return np.zeros(0)
    known = ~np.isnan(values)
    weight = np.where(known, weight, 0.0)
    total = np.add.reduceat(np.where(known, values, 0.0) * weight, groups.starts)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / np.add.reduceat(weight, groups.starts))


def percentile(values: Array, count: Array, greatest: Array, groups: Buckets) -> Array:
    """Return the 95th percentile of each bucket, of which ``count`` values are known."""
    rank = np.ceil(_P95 * count).astype("i8") - 1
    found = greatest.astype("f8")
    # Of fewer than 20 values, the greatest is the nearest rank.
    wanted = rank < count - 1
    for size in np.unique(groups.sizes[wanted]).tolist():
        chosen = np.flatnonzero(wanted & (groups.sizes == size))
        # Missing ones are sorted behind all others.
        ordered = np.sort(values[groups.starts[chosen, None] + np.arange(size)], axis=1)
        found[chosen] = np.take_along_axis(ordered, rank[chosen, None], axis=1)[:, 0]
    return found


def _greatest(values: Array, groups: Buckets) -> Array:
    if values.dtype.kind == "f":
        return np.asarray(np.fmax.reduceat(values, groups.starts))
    return np.asarray(np.maximum.reduceat(values, groups.starts))


def _bits(values: Array, groups: Buckets) -> Array:
    missing = is_null(values)
    bits = np.bitwise_or.reduceat(np.where(missing, 0, values), groups.starts)
    nothing = np.logical_and.reduceat(missing, groups.starts)
    return np.where(nothing, _NULL, bits)


def _most_frequent(values: Array, groups: Buckets) -> Array:
    """Return the value that most rows of a bucket have. A missing one counts if all are missing."""
    least = np.minimum.reduceat(values, groups.starts)
    found = np.maximum.reduceat(values, groups.starts)
    for place in np.flatnonzero(least != found).tolist():
        start = groups.starts[place]
        part = values[start : start + groups.sizes[place]]
        known, counts = np.unique(part[~is_null(part)], return_counts=True)
        found[place] = known[counts.argmax()]
    return found


def is_failed(power_w: Array) -> Array:
    """Say which readings of power are a meter's fault: nothing that is on draws 0 W or less."""
    return np.asarray(power_w <= 0)


def first_known(rows: Columns, names: tuple[str, ...]) -> Array:
    """Return for each row the first of ``names`` that is not missing, as float64."""
    found = rows[names[0]].astype("f8")
    for name in names[1:]:
        found = np.where(np.isnan(found), rows[name], found)
    return found


# --- What is in between --------------------------------------------------------------------------


def _pieces(rollup: Rollup, rows: Columns, before: Columns) -> Columns:
    """Return :func:`integrate` of ``rows``, with ``before`` put before them."""
    if not rollup.edge_inputs:
        return {}
    key = rollup.source.key
    places = np.searchsorted(rows[key], before[key])
    names = ("ts", key, *rollup.edge_inputs)
    joined = {name: np.insert(rows[name], places, before[name]) for name in names}
    is_row = np.insert(np.ones(len(rows["ts"]), bool), places, False)
    return take(integrate(rollup, joined), is_row)


def integrate(rollup: Rollup, rows: Columns) -> Columns:
    """Return ``used_j``, ``covered_s`` and the seconds of each cause, of the time up to each row.

    NaN where it is not known: the thing's first reading, or one after a gap.
    """
    found: Columns = {}
    if rollup.power:
        found["used_j"], found["covered_s"] = _energy(rollup, rows)
    if rollup.causes:
        found |= _throttled(rollup, rows)
    return found


def _energy(rollup: Rollup, rows: Columns) -> tuple[Array, Array]:
    """Return J and s of the piece that ends at each row; NaN where a meter failed at either end.

    J is the difference of the energy counter where that has one and did not start anew, else the
    mean of both powers times the time between them.
    """
    power = first_known(rows, rollup.power)
    counter = rows[rollup.energy] if rollup.energy else np.full(len(power), np.nan)
    used, covered = np.full(len(power), np.nan), np.full(len(power), np.nan)
    # A row that tells nothing of energy does not end the piece around it; one that failed does.
    is_told = ~np.isnan(counter) | (~np.isnan(power) & ~_just_counted(rollup, rows, counter))
    told = np.flatnonzero(is_told)
    later, earlier, length_s = _pairs(told, rows[rollup.source.key], rows["ts"])
    counted = counter[later] - counter[earlier]
    working = np.where(is_failed(power), np.nan, power)
    drawn = (working[later] + working[earlier]) / 2 * length_s
    # A counter that stands still while the power says nothing has failed with it.
    stands = (counted == 0) & np.isnan(drawn) & ~np.isnan(power[later] + power[earlier])
    joules = np.where((counted >= 0) & ~stands, counted, drawn)
    used[later] = joules
    covered[later] = np.where(np.isnan(joules), np.nan, length_s)
    return used, covered


def _just_counted(rollup: Rollup, rows: Columns, counter: Array) -> Array:
    """Tell which rows come so soon after a reading of the counter that its next one has them.

    Counters are dear to read, and powers stand in between: those are in the counter's difference.
    """
    ids, ts = rows[rollup.source.key], rows["ts"]
    every = np.arange(len(counter))
    last = np.maximum.accumulate(np.where(np.isnan(counter), -1, every))
    return np.asarray((last >= 0) & (ids == ids[last]) & (ts - ts[last] <= MAX_COUNTED_GAP_S * US))


def _throttled(rollup: Rollup, rows: Columns) -> Columns:
    """Return the seconds for which each cause held in the piece that ends at each row."""
    mask = rows[rollup.masks[0]]
    known = ~is_null(mask)
    every = np.arange(len(mask))
    later, earlier, length_s = _pairs(every, rows[rollup.source.key], rows["ts"])
    has_masks = known[later] & known[earlier]
    found = {}
    for cause, counter in rollup.causes.items():
        seconds = np.full(len(mask), np.nan)
        by_mask = (_share(mask, later, cause) + _share(mask, earlier, cause)) / 2 * length_s
        seconds[later] = np.where(has_masks, by_mask, np.nan)
        if counter is not None:
            _put_counted(seconds, rows[counter], later, earlier, length_s)
        found[seconds_of(cause)] = seconds
    slowdown = seconds_of(ThrottleCause.HW_SLOWDOWN)
    if slowdown in found:
        counters = [rollup.causes[cause] for cause in EXPLAINS_SLOWDOWN]
        grown_s = sum(_grown_s(rows[name], later, earlier) for name in counters if name)
        by_both = [
            _explained(mask, places).astype("f8") / 2 * length_s for places in (later, earlier)
        ]
        explained_s = np.where(has_masks, by_both[0] + by_both[1], np.nan)
        own = rollup.causes[ThrottleCause.HW_SLOWDOWN]
        counts_itself = ~np.isnan(_grown_s(rows[own], later, earlier)) if own else False
        is_bounded = ~(np.isnan(grown_s) | np.isnan(explained_s)) & ~counts_itself
        places = later[is_bounded]
        excess_s = np.maximum(explained_s - grown_s, 0.0)[is_bounded]
        found[slowdown][places] = np.maximum(found[slowdown][places] - excess_s, 0.0)
    return found


def _explained(mask: Array, places: Array) -> Array:
    slow = (mask[places] & int(ThrottleCause.HW_SLOWDOWN)) != 0
    return np.asarray(slow & ((mask[places] & sum(map(int, EXPLAINS_SLOWDOWN))) != 0))


def _grown_s(counter: Array, later: Array, earlier: Array) -> Array:
    """Return the seconds that a counter tells of each piece; NaN where it does not."""
    tells = ~is_null(counter[later]) & ~is_null(counter[earlier])
    grown = np.where(tells, counter[later] - np.where(tells, counter[earlier], 0), -1)
    return np.where(grown >= 0, grown * 1e-9, np.nan)


def _share(mask: Array, places: Array, cause: ThrottleCause) -> Array:
    return np.asarray((mask[places] & int(cause)) != 0, dtype="f8")


def _put_counted(
    seconds: Array, counter: Array, later: Array, earlier: Array, length_s: Array
) -> None:
    """Write the seconds that a cumulative counter (ns) tells, where it did not start anew."""
    known = ~is_null(counter)
    grown = counter[later] - counter[earlier]
    tells = known[later] & known[earlier] & (grown >= 0)
    # A counter that is read a little after the clock may grow by more than the time.
    seconds[later[tells]] = np.minimum(grown[tells] * 1e-9, length_s[tells])


def _pairs(places: Array, ids: Array, ts: Array) -> tuple[Array, Array, Array]:
    """Return the pieces between the rows at ``places``: later row, earlier row, length (s)."""
    later, earlier = places[1:], places[:-1]
    length_s = (ts[later] - ts[earlier]) / US
    joined = (ids[later] == ids[earlier]) & (length_s <= MAX_GAP_S)
    return later[joined], earlier[joined], length_s[joined]


def _total(values: Array, groups: Buckets) -> Array:
    """Return the sum over each bucket of its known values; NaN where there is none."""
    unknown = np.isnan(values)
    total = np.add.reduceat(np.where(unknown, 0.0, values), groups.starts)
    return np.where(np.logical_and.reduceat(unknown, groups.starts), np.nan, total)


def carriers(rows: Columns, table: Table, job: str) -> dict[int, Array]:
    """Return for each job in ``rows`` the things (sorted ids) that carried it."""
    known = ~is_null(rows[job])
    if not known.any():
        return {}
    # Both in one number: ids are below 2 ** 31, and pairs would be sorted far more slowly.
    both = np.unique((rows[job][known].astype("i8") << 31) | rows[table.key][known])
    jobs, places = np.unique(both >> 31, return_index=True)
    return dict(zip(jobs.tolist(), np.split(both & ((1 << 31) - 1), places[1:]), strict=True))
