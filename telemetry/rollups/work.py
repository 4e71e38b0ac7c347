"""Computing the roll-ups that readings ask for, the oldest first.

A few buckets are one transaction: their rows are computed from the readings as they are now, take
the place of those that were there, and their marks go. So it may be done twice, or be killed in the
middle, and the outcome is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from django.db import connection, transaction
from psycopg import Cursor, sql

from fleet import snapshot
from telemetry import samples, tiers
from telemetry.rollups import carriers, marks
from telemetry.rollups.compute import roll_up
from telemetry.rollups.marks import BLOCK, BLOCK_BITS, Mark, NewMark
from telemetry.rollups.spec import (
    HOUR_S,
    MAX_COUNTED_GAP_S,
    MAX_GAP_S,
    MINUTE_S,
    ROLLUPS,
    Rollup,
)
from telemetry.samples import NULL_INT, Rows, Table
from telemetry.store.columns import US, Array, Columns, Window, is_null, take
from telemetry.store.hot import IdRange
from telemetry.store.reading import read

#: A bucket is computed so long after its end: by then all agents that push every 10 s have, and it
#: need not be done again.
SETTLE_S = {MINUTE_S: 20, HOUR_S: 60}
#: Readings stored so long after their bucket ended may change the next buckets too, which are
#: computed by then: a piece counts where it ends.
_LATE_S = 60
#: Readings that are worked on at a time: some 150 MB.
_ROWS_AT_ONCE = 500_000
#: Blocks of ids times buckets that are computed in one transaction.
_BLOCKS_AT_ONCE = 128
_FIRST_IDS = 256
#: Most things have a reading within so long before a bucket; only for the others more is read.
_NEAR_S = MAX_COUNTED_GAP_S
_FEW_IDS = 2_000


@dataclass(frozen=True)
class _Run:
    """Buckets that follow each other, of the same things: computed at once."""

    window: Window
    blocks: list[int]
    marks: list[Mark]


def step(source: str, width_s: int, now: float) -> bool:
    """Compute the oldest buckets that have ended and are not up to date; tell whether some were."""
    rollup = ROLLUPS[source]
    closed = now - SETTLE_S[width_s] - width_s + 1
    ready = _create_partitions(rollup.table(width_s), source, width_s, closed)
    if not ready:
        return False
    with transaction.atomic(), connection.cursor() as django_cursor:
        cursor: Cursor[Any] = django_cursor.cursor
        oldest = marks.oldest(cursor, source, width_s, closed)
        # One that was noted since has its turn next.
        found = [mark for mark in oldest if mark.bucket in ready]
        if not found:
            return True
        run = _first_run(rollup.source, found, width_s)
        if run.blocks:
            _compute(cursor, rollup, width_s, run)
            marks.insert(cursor, _what_follows(source, width_s, run))
        marks.delete(cursor, run.marks)
    return True


def _create_partitions(table: Table, source: str, width_s: int, closed: float) -> set[int]:
    """Create what is missing for the buckets that may be computed next; return these.

    On its own, before a reading is looked at: whoever makes partitions of readings waits for those
    who read them, and they would wait for whoever makes some.
    """
    width = tiers.rollup_width(width_s, len(snapshot.current().gpus))
    with transaction.atomic(), connection.cursor() as django_cursor:
        cursor: Cursor[Any] = django_cursor.cursor
        buckets = {mark.bucket for mark in marks.oldest(cursor, source, width_s, closed)}
        if buckets:
            starts = np.array(sorted(buckets), dtype=np.float64)
            samples.create_partitions(cursor, samples.partitions_for(table, starts, width))
    return buckets


def _first_run(table: Table, found: list[Mark], width_s: int) -> _Run:
    """Return the oldest bucket of ``found``, with those that can be computed together with it."""
    by_bucket = {bucket: list(same) for bucket, same in groupby(found, lambda mark: mark.bucket)}
    first = found[0].bucket
    blocks = _blocks(table, by_bucket[first], width_s)
    last = first
    while (
        (following := by_bucket.get(last + width_s)) is not None
        and len(blocks) * (last + 2 * width_s - first) <= _BLOCKS_AT_ONCE * width_s
        and _blocks(table, following, width_s) == blocks
    ):
        last += width_s
    chosen = [mark for mark in found if mark.bucket <= last]
    return _Run(Window(first, last + width_s), blocks, chosen)


def _blocks(table: Table, found: list[Mark], width_s: int) -> list[int]:
    """Return the blocks of the marks of one bucket, in order."""
    if all(mark.blocks is not None for mark in found):
        return sorted(set().union(*(mark.blocks or () for mark in found)))
    window = Window(found[0].bucket, found[0].bucket + width_s)
    ids = read(table, (), window)[table.key]
    return [int(block) for block in np.unique(ids >> BLOCK_BITS)]


def _what_follows(source: str, width_s: int, run: _Run) -> Iterator[NewMark]:
    """Yield the marks that minutes leave: of their hour and, if they came late, of the next."""
    if width_s != MINUTE_S:
        return
    yield NewMark(source, HOUR_S, run.window.start // HOUR_S * HOUR_S, run.blocks)
    late = [m.bucket for m in run.marks if m.noted_at > m.bucket + width_s + _LATE_S]
    if late:
        first = max(max(late) + MINUTE_S, int(run.window.end))
        for later in range(first, max(late) + MINUTE_S + MAX_GAP_S, MINUTE_S):
            # As if it were on time: only what is late leads further.
            yield NewMark(source, MINUTE_S, later, run.blocks, noted_at=later)


def _compute(cursor: Cursor[Any], rollup: Rollup, width_s: int, run: _Run) -> None:
    table, window = rollup.table(width_s), run.window
    for ids, rows in _parts(rollup, window, run.blocks):
        made = roll_up(rollup, rows, _before(rollup, window, ids, rows), width_s)
        _replace(cursor, table, window, ids, made)
        if rollup.job and width_s == MINUTE_S:
            carriers.note(cursor, rows, rollup.source, rollup.job, window.start)


def _parts(rollup: Rollup, window: Window, blocks: list[int]) -> Iterator[tuple[IdRange, Columns]]:
    """Yield the readings in ``window`` by ranges of ids, each with about as many as fit at once."""
    size = _FIRST_IDS
    for first, end in _spans(blocks):
        while first < end:
            ids = IdRange(first, min(first + size, end))
            rows = read(rollup.source, rollup.inputs, window, ids)
            yield ids, rows
            per_id = len(rows["ts"]) / (ids.end - ids.first)
            size = max(16, int(_ROWS_AT_ONCE / max(per_id, 0.1)))
            first = ids.end


def _spans(blocks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, end) ids of the runs of neighboring blocks, which are in order."""
    first = end = -1
    for block in blocks:
        if block != end:
            if end >= 0:
                yield first * BLOCK, end * BLOCK
            first = block
        end = block + 1
    if end >= 0:
        yield first * BLOCK, end * BLOCK


def _before(rollup: Rollup, window: Window, ids: IdRange, rows: Columns) -> Columns:
    """Return the last reading before ``window`` of each thing in ``rows``, as far as it counts.

    And the last of its energy counter, where that is not the same.
    """
    if not rollup.edge_inputs:
        return {}
    key, near = rollup.source.key, window.start - _NEAR_S
    found = read(rollup.source, rollup.edge_inputs, Window(near, window.start), ids)
    present = np.unique(rows[key])
    lacking = np.setdiff1d(present, found[key], assume_unique=False)
    if len(lacking):
        wanted = lacking.tolist() if len(lacking) <= _FEW_IDS else ids
        further = read(
            rollup.source, rollup.edge_inputs, Window(window.start - MAX_GAP_S, near), wanted
        )
        further = take(further, np.isin(further[key], lacking))
        found = {name: np.concatenate([further[name], found[name]]) for name in found}
    found = take(found, np.isin(found[key], present))
    order = np.argsort(found[key], kind="stable")
    found = take(found, order)
    kept = _is_last(found[key])
    if rollup.energy:
        counted = np.flatnonzero(~is_null(found[rollup.energy]))
        kept[counted[_is_last(found[key][counted])]] = True
    return take(found, kept)


def _is_last(ids: Array) -> Array:
    """Return which of ``ids``, which are in order, are the last of theirs."""
    return np.append(ids[1:] != ids[:-1], True)[: len(ids)]


def _replace(
    cursor: Cursor[Any], table: Table, window: Window, ids: IdRange, made: Columns
) -> None:
    cursor.execute(
        sql.SQL(
            "DELETE FROM {table} WHERE ts >= %s AND ts < %s AND {key} >= %s AND {key} < %s"
        ).format(table=sql.Identifier(table.name), key=sql.Identifier(table.key)),
        [window.start_at, window.end_at, ids.first, ids.end],
    )
    if len(made["ts"]):
        samples.copy(cursor, Rows(table, {c.name: _given(c, made[c.name]) for c in table.columns}))


def _given(column: samples.Column, values: Array) -> Array:
    """Return a column as :class:`telemetry.samples.Rows` has it."""
    if column.name == "ts":
        return values / US
    if column.is_float:
        return values
    return np.where(is_null(values), NULL_INT, values.astype("i8"))
