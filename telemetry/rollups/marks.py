"""Which buckets have readings that are not rolled up yet.

The writer notes them in the transaction that stores the readings, a few rows a round. Things are
taken together in blocks of ids, so that an agent that comes back with an hour of readings has its
own GPUs' roll-ups computed anew, and not the fleet's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from psycopg import Cursor

from telemetry.rollups.spec import MINUTE_S, ROLLUPS
from telemetry.samples import Array, Rows
from telemetry.sql import array_text

BLOCK_BITS = 10
#: Ids in a block.
BLOCK = 1 << BLOCK_BITS

# Blocks travel as text, since an array of arrays of unlike length is none to Postgres.
_INSERT = """
INSERT INTO telemetry_rollupmark (source, width_s, bucket, blocks, noted_at)
SELECT source, width_s, to_timestamp(bucket), blocks::int[],
       coalesce(to_timestamp(noted_at), statement_timestamp())
FROM unnest(%s::text[], %s::int[], %s::float8[], %s::text[], %s::float8[])
    AS new (source, width_s, bucket, blocks, noted_at)
"""

# All marks of the oldest bucket, so that it is computed once, and of those after it in its hour.
_OLDEST = """
WITH oldest AS (
    SELECT min(bucket) AS bucket FROM telemetry_rollupmark
    WHERE source = %(source)s AND width_s = %(width_s)s AND bucket < to_timestamp(%(before)s)
)
SELECT id, extract(epoch FROM mark.bucket)::float8, blocks, extract(epoch FROM noted_at)::float8
FROM telemetry_rollupmark AS mark, oldest
WHERE source = %(source)s AND width_s = %(width_s)s AND mark.bucket < to_timestamp(%(before)s)
  AND mark.bucket BETWEEN oldest.bucket AND date_trunc('hour', oldest.bucket, 'UTC') + '59 min'
ORDER BY mark.bucket
"""

_DELETE = "DELETE FROM telemetry_rollupmark WHERE id = ANY(%s)"

_ARE_ANY = """
SELECT EXISTS (
    SELECT FROM telemetry_rollupmark
    WHERE source = %s AND bucket >= to_timestamp(%s) AND bucket < to_timestamp(%s)
)
"""


@dataclass(frozen=True)
class Mark:
    """Readings of ``blocks`` (None: all) in the bucket that begins at ``bucket`` (Unix s)."""

    id: int
    bucket: int
    blocks: frozenset[int] | None
    noted_at: float


@dataclass(frozen=True)
class NewMark:
    """A mark to be written. ``noted_at`` (Unix s): now, unless it says otherwise."""

    source: str
    width_s: int
    bucket: float
    blocks: Iterable[int] | None
    noted_at: float | None = None


def note(cursor: Cursor[Any], stored: Iterable[Rows]) -> None:
    """Mark the minutes of ``stored``, within the transaction that stores it. One statement."""
    insert(
        cursor,
        (
            NewMark(rows.table.name, MINUTE_S, bucket, blocks)
            for rows in stored
            if rows.table.name in ROLLUPS and len(rows)
            for bucket, blocks in _touched(rows.columns["ts"], rows.columns[rows.table.key])
        ),
    )


def insert(cursor: Cursor[Any], marks: Iterable[NewMark]) -> None:
    """Write marks. One statement, or none."""
    rows = [
        (
            mark.source,
            mark.width_s,
            mark.bucket,
            None if mark.blocks is None else array_text(mark.blocks),
            mark.noted_at,
        )
        for mark in marks
    ]
    if rows:
        cursor.execute(_INSERT, [array_text(column) for column in zip(*rows, strict=True)])


def _touched(ts: Array, ids: Array) -> Iterator[tuple[float, list[int]]]:
    minutes, blocks = (ts // MINUTE_S).astype("i8"), ids.astype("i8") >> BLOCK_BITS
    # Blocks are below 2 ** 21, since ids are below 2 ** 31.
    both = np.unique((minutes << 21) | blocks)
    minutes, places = np.unique(both >> 21, return_index=True)
    parts = np.split(both & ((1 << 21) - 1), places[1:])
    for minute, part in zip(minutes.tolist(), parts, strict=True):
        yield float(minute * MINUTE_S), part.tolist()


def oldest(cursor: Cursor[Any], source: str, width_s: int, before: float) -> list[Mark]:
    """Return the marks of the oldest bucket and of those after it in its hour, in order of time.

    Only of buckets that begin before ``before`` (Unix s).
    """
    cursor.execute(_OLDEST, {"source": source, "width_s": width_s, "before": before})
    return [
        Mark(number, int(bucket), None if blocks is None else frozenset(blocks), noted_at)
        for number, bucket, blocks, noted_at in cursor.fetchall()
    ]


def delete(cursor: Cursor[Any], marks: Iterable[Mark]) -> None:
    """Take marks away, within the transaction that stores the roll-ups that they asked for."""
    cursor.execute(_DELETE, [[mark.id for mark in marks]])


def are_any(cursor: Cursor[Any], source: str, start: datetime, end: datetime) -> bool:
    """Tell whether readings between ``start`` and ``end`` wait to be rolled up."""
    cursor.execute(_ARE_ANY, [source, start.astimezone(UTC).timestamp(), end.timestamp()])
    return bool(cursor.fetchone()[0])  # type: ignore[index]
