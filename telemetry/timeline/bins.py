"""Roll-ups of many things, put together in wider buckets by Postgres where that loses nothing.

A rack's day by minutes has some hundred thousand rows, of which a chart shows a few hundred. Where
a thing lacks no row of a bucket, nor of those before and after it, all rows of the bucket weigh the
same, so their mean is their sum by their number, and Postgres sums up faster than it hands out.
All other rows are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from telemetry.samples import Array
from telemetry.store import reading as store
from telemetry.store.columns import US, Columns, SupersedingTable, Window, is_null, take
from telemetry.timeline.fields import Over, over_time

#: With more buckets than this that lack rows (a share), or in more places, all rows are read.
_MOST_LACKING = 0.25
_MOST_PLACES = 8

_TOTALS = {
    Over.MEAN: "sum",
    Over.SUM: "sum",
    Over.GREATEST: "max",
    Over.LEAST: "min",
    Over.BITS: "bit_or",
}


@dataclass(frozen=True)
class Bins:
    """The buckets of which Postgres gave the values, and where all other rows are.

    ``columns`` are those of the table, in order of thing and time: means are those of the bucket.
    """

    step_s: int
    columns: Columns
    left: tuple[Window, ...]
    _key: str

    def outside(self, rows: Columns) -> Columns:
        """Return those of ``rows`` that are in none of the buckets."""
        start = rows["ts"] // (self.step_s * US)
        mine = _coded(self.columns[self._key], self.columns["ts"] // (self.step_s * US))
        return take(rows, ~np.isin(_coded(rows[self._key], start), mine))


def read(
    table: SupersedingTable,
    names: Sequence[str],
    window: Window,
    ids: Sequence[int],
    *,
    width_s: int,
    step_s: int,
) -> Bins | None:
    """Return ``names`` of ``ids`` in buckets of ``step_s``, made of rows of ``width_s``.

    None where too many rows are missing, or some lie elsewhere than in Postgres.
    """
    found = store.bins(
        table, {name: _TOTALS[over_time(name)] for name in names}, window, ids, step_s
    )
    if found is None or not len(found["ts"]):
        return None
    whole = _whole(found, table.key, names, rows=step_s // width_s, step_s=step_s)
    left = tuple(_windows(found["ts"][~whole], window, step_s))
    if np.count_nonzero(~whole) > _MOST_LACKING * len(whole) or len(left) > _MOST_PLACES:
        return None
    kept = take(found, whole)
    for name in names:
        if over_time(name) is Over.MEAN:
            kept[name] = kept[name] / kept["rows"]
    return Bins(step_s, kept, left, table.key)


def _whole(found: Columns, key: str, names: Sequence[str], *, rows: int, step_s: int) -> Array:
    """Return which buckets lack nothing, in themselves and beside them."""
    told = np.sum([~is_null(found[name]) for name in names], axis=0)
    is_full = (found["rows"] == rows) & (found["known"] == rows * told)
    ids, ts = found[key], found["ts"]
    follows = (ids[1:] == ids[:-1]) & (np.diff(ts) == step_s * US)
    has_before = np.append(False, follows & is_full[:-1])
    has_after = np.append(follows & is_full[1:], False)
    return np.asarray(is_full & has_before & has_after)


def _windows(starts_us: Array, within: Window, step_s: int) -> Iterator[Window]:
    """Yield the parts of ``within`` that buckets cover, those that follow each other as one."""
    starts = np.unique(starts_us) // US
    for run in np.split(starts, np.flatnonzero(np.diff(starts) != step_s) + 1):
        if len(run):
            first, end = float(run[0]), float(run[-1] + step_s)
            yield Window(max(first, within.start), min(end, within.end))


def _coded(ids: Array, buckets: Array) -> Array:
    """Return thing and bucket as one number."""
    return np.asarray((ids.astype("i8") << 32) | buckets)
