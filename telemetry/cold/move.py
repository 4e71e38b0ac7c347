"""Moving closed partitions into the cold tier.

1. Partitions that are old enough are detached, in a short transaction that enters them in the
   catalogue. From then on nothing is added to them; late rows make a new partition.
2. Their rows are written to files, a range of ids at a time. A file is durable, and has been read
   back and compared, before the transaction that enters it and says that the partition no longer
   counts for these ids.
3. When all ids are done, the table is dropped, in the transaction of the last file.

Whatever dies, the next step goes on from what the catalogue says. A file that was written and not
entered is an orphan, which :func:`telemetry.cold.keep.clean` removes.

Only one process may move at a time.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import structlog
from django.db import connection, transaction
from psycopg import Cursor, sql
from psycopg.errors import LockNotAvailable

from telemetry import samples, tiers
from telemetry.cold import scan
from telemetry.cold.catalog import File
from telemetry.cold.models import ColdFile, DetachedPartition
from telemetry.cold.places import SUFFIX, place
from telemetry.rollups import marks
from telemetry.rollups.spec import ROLLUPS
from telemetry.samples import Partition, Table
from telemetry.store import hot
from telemetry.store.columns import (
    Columns,
    SupersedingTable,
    Window,
    concatenate,
    last_of_each,
    order_by,
)
from telemetry.store.hot import IdRange

log = structlog.get_logger(__name__)

#: Files hold the rows of at least so long a time.
UNIT = timedelta(hours=1)
#: Rows of one file, about: what a worker can hold in memory several times.
FILE_ROWS = 500_000
#: What a row of Postgres takes, roughly, to guess how many there are.
_ROW_BYTES = 150
_MAX_ID = 2**31 - 1
#: Less than Postgres waits before it looks for a deadlock: the writer must not be the one to fail.
_LOCK_TIMEOUT = "500ms"


class Damaged(RuntimeError):
    """A file does not give back the rows that were written. They stay in Postgres."""


@dataclass(frozen=True)
class Unit:
    """The content of one set of files: a table's rows between two times."""

    start: datetime
    end: datetime


def unit_of(start: datetime, end: datetime) -> Unit:
    """Return the unit to which a partition belongs: narrow ones are taken together by the hour."""
    hour = start.replace(minute=0, second=0, microsecond=0)
    return Unit(hour, hour + UNIT) if end <= hour + UNIT else Unit(start, end)


def step(now: datetime) -> bool:
    """Write one file, or detach the next partitions; tell whether there was anything to do."""
    tables = {kept.table.name: kept for kept in tiers.kept()}
    waiting = DetachedPartition.objects.order_by("start", "table").first()
    if waiting is not None:
        _write_next(tables[waiting.table].table, unit_of(waiting.start, waiting.end))
        return True
    return any(_detach_next(kept, now) for kept in tables.values())


# --- Detaching -----------------------------------------------------------------------------------


def _detach_next(kept: tiers.Kept, now: datetime) -> bool:
    with connection.cursor() as cursor:
        unit = _next_unit(cursor.cursor, kept, now)
    if unit is None:
        return False
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_LOCK_TIMEOUT])
            _detach(cursor.cursor, kept.table, unit)
    except LockNotAvailable:
        log.info("detach_put_off", table=kept.table.name)
        return False
    return True


def _next_unit(cursor: Cursor[Any], kept: tiers.Kept, now: datetime) -> Unit | None:
    """Return the oldest unit that is old enough and of which nothing waits to be rolled up."""
    for partition in samples.existing_partitions(cursor, kept.table.name):
        unit = unit_of(partition.start, partition.end)
        if unit.end > now - kept.hot:
            return None
        is_raw = kept.table.name in ROLLUPS
        if not (is_raw and marks.are_any(cursor, kept.table.name, unit.start, unit.end)):
            return unit
    return None


def _detach(cursor: Cursor[Any], table: Table, unit: Unit) -> None:
    # Whoever adds rows to an old partition holds this lock as well: see create_partitions.
    samples.lock_partitions(cursor)
    for partition in samples.existing_partitions(cursor, table.name):
        if unit_of(partition.start, partition.end) == unit:
            _detach_one(cursor, table, partition)


def _detach_one(cursor: Cursor[Any], table: Table, partition: Partition) -> None:
    relation = f"{partition.name}_{secrets.token_hex(4)}"
    samples.detach(cursor, partition, relation)
    DetachedPartition.objects.create(
        table=table.name, relation=relation, start=partition.start, end=partition.end
    )


# --- Writing -------------------------------------------------------------------------------------


def _write_next(table: Table, unit: Unit) -> None:
    """Move the next range of ids of the partitions of one unit."""
    moving = [
        each
        for each in DetachedPartition.objects.filter(table=table.name).order_by("start")
        if unit_of(each.start, each.end) == unit
    ]
    first = max(each.moved_below for each in moving)
    with connection.cursor() as django_cursor:
        cursor: Cursor[Any] = django_cursor.cursor
        ids, is_last = _next_ids(cursor, table, [each.relation for each in moving], first)
        rows = _rows(cursor, table, moving, unit, ids)
    files = [write(table, rows, unit)] if len(rows["ts"]) else []
    with transaction.atomic():
        ColdFile.objects.bulk_create(files)
        _count_as_moved(moving, ids, is_last=is_last)


def _next_ids(
    cursor: Cursor[Any], table: Table, relations: list[str], first: int
) -> tuple[IdRange, bool]:
    """Return the range of ids whose rows make one file, and whether it is the last."""
    least, greatest, size = _MAX_ID, -1, 0
    for relation in relations:
        cursor.execute(
            sql.SQL("SELECT min({key}), max({key}), pg_relation_size({name}) FROM {table}").format(
                key=sql.Identifier(table.key),
                name=sql.Literal(relation),
                table=sql.Identifier(relation),
            )
        )
        low, high, bytes_ = cursor.fetchone() or (None, None, 0)
        if low is not None and high is not None:
            least, greatest, size = min(least, low), max(greatest, high), size + bytes_
    per_id = max(1.0, size / _ROW_BYTES / max(1, greatest - least + 1))
    end = max(first, least if greatest >= 0 else 0) + max(1, int(FILE_ROWS / per_id))
    is_last = end > greatest
    return IdRange(first, _MAX_ID if is_last else end), is_last


def _rows(
    cursor: Cursor[Any], table: Table, moving: list[DetachedPartition], unit: Unit, ids: IdRange
) -> Columns:
    names = [column.name for column in table.columns]
    window = Window(unit.start.timestamp(), unit.end.timestamp())
    found = concatenate(
        hot.fetch(cursor, each.relation, table, names, window, ids) for each in moving
    )
    return in_order(table, found)


def in_order(table: Table, rows: Columns) -> Columns:
    """Return the rows as a file has them: of roll-ups, the newest alone."""
    is_superseding = isinstance(table, SupersedingTable)
    return (last_of_each if is_superseding else order_by)(rows, table.key)


def write(table: Table, rows: Columns, unit: Unit) -> ColdFile:
    """Write a file, read it back, and return its entry, which the caller saves."""
    from telemetry.cold.encoding import to_parquet  # needs pyarrow, which only movers load

    data = to_parquet(table, rows)
    ids = rows[table.key]
    name = f"{unit.start:%H%M}-{int(ids[0])}-{secrets.token_hex(6)}{SUFFIX}"
    file = ColdFile(
        table=table.name,
        start=unit.start,
        end=unit.end,
        first_id=int(ids[0]),
        last_id=int(ids[-1]),
        columns=[column.name for column in table.columns],
        path=f"{table.name}/{unit.start:%Y-%m-%d}/{name}",
        rows=len(ids),
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    place().put(file.path, data)
    _check(file, table, rows)
    return file


def _check(file: ColdFile, table: Table, rows: Columns) -> None:
    """Compare a reader's rows with those that were written: soon the file is all that there is."""
    window = Window(file.start.timestamp(), file.end.timestamp())
    names = [column.name for column in table.columns]
    entry = File(0, file.path, tuple(file.columns), file.first_id, file.last_id)
    (found,) = scan.fetch([entry], table, names, window)
    for name in names:
        if not np.array_equal(found[name], rows[name], equal_nan=rows[name].dtype.kind == "f"):
            raise Damaged(f"{file.path}: {name} does not come back as it was written")


def _count_as_moved(moving: Iterable[DetachedPartition], ids: IdRange, *, is_last: bool) -> None:
    for each in moving:
        if not is_last:
            each.moved_below = ids.end
            each.save(update_fields=["moved_below"])
            continue
        with connection.cursor() as cursor:
            samples.drop(cursor.cursor, each.relation)
        each.delete()
