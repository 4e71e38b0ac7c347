"""Rows out of Postgres as arrays.

COPY's binary form with every null replaced by a value has rows of one width, which NumPy takes as
they are: 1 µs of CPU a row of 22 columns, the server's part included, where ``fetchall`` takes ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from psycopg import Cursor, sql
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from telemetry.samples import Column, Table
from telemetry.store.columns import Columns, Window, columns_of, dtype_of, null_of

#: Postgres counts microseconds from 2000-01-01.
_POSTGRES_EPOCH_US = 946_684_800_000_000
#: Signature, flags and the length of an extension that is never there.
_HEADER_BYTES = 19


@dataclass(frozen=True, slots=True)
class IdRange:
    """The things with ids from ``first`` up to, not including, ``end``."""

    first: int
    end: int


def fetch(
    cursor: Cursor[Any],
    relation: str,
    table: Table,
    names: Sequence[str],
    window: Window,
    ids: Sequence[int] | IdRange | None = None,
) -> Columns:
    """Return the rows of ``relation``, which has the columns of ``table``, in no order."""
    chosen = tuple(columns_of(table, names))
    statement = sql.SQL("COPY (SELECT {} FROM {} WHERE {}) TO STDOUT (FORMAT binary)").format(
        sql.SQL(", ").join(map(_never_null, chosen)),
        sql.Identifier(relation),
        _condition(table, window, ids),
    )
    return _columns(chosen, _copied(cursor, statement))


def fetch_bins(
    cursor: Cursor[Any],
    table: Table,
    totals: Mapping[str, str],
    window: Window,
    ids: Sequence[int] | None,
    step_s: int,
) -> Columns:
    """Return a row for each of ``ids`` and bucket of ``step_s`` (from 1970 on) with rows in it.

    It has ``totals``: of each of these columns ``sum`` (as float64), ``min``, ``max`` or
    ``bit_or``; how many ``rows`` there were, and how many of the values in them were ``known``.
    Without ``ids``, all things have theirs. To the end of the transaction, which there must be,
    Postgres may use more memory than else.
    """
    by_name = {column.name: column for column in table.columns}
    made = [Column(n, "float8") if how == "sum" else by_name[n] for n, how in totals.items()]
    chosen = (Column("ts", "timestamptz"), by_name[table.key], *_BIN_COUNTS, *made)
    statement = sql.SQL(
        "COPY (SELECT date_bin(make_interval(secs => {step}), ts, to_timestamp(0)), {key},"
        " count(*), sum(num_nonnulls({names})), {totals} FROM {table} WHERE {condition}"
        " GROUP BY 1, 2) TO STDOUT (FORMAT binary)"
    ).format(
        step=sql.Literal(step_s),
        key=sql.Identifier(table.key),
        names=sql.SQL(", ").join(map(sql.Identifier, totals)),
        totals=sql.SQL(", ").join(
            _total(column, how) for column, how in zip(made, totals.values(), strict=True)
        ),
        table=sql.Identifier(table.name),
        condition=_condition(table, window, ids),
    )
    cursor.execute(_ROOM_FOR_BINS)
    return _columns(chosen, _copied(cursor, statement))


# With the 4 MB that Postgres has by default it sorts all rows by their buckets, on the disk. The
# buckets of a rack's day take 10 MB.
_ROOM_FOR_BINS = "SET LOCAL work_mem = '32MB'"
_BIN_COUNTS = (Column("rows", "int8"), Column("known", "int8"))
_TOTALS = {
    "sum": sql.SQL("sum({}::float8)"),
    "min": sql.SQL("min({})"),
    "max": sql.SQL("max({})"),
    "bit_or": sql.SQL("bit_or({})"),
}


@cache
def _total(column: Column, how: str) -> sql.Composable:
    return _written(_or_null(column, _TOTALS[how].format(sql.Identifier(column.name))))


def _copied(cursor: Cursor[Any], statement: sql.Composed) -> bytearray:
    """Return the data that a COPY TO STDOUT sends.

    By libpq's own calls, since the rows of ``cursor.copy`` each go through several generators and
    cost twice as much.
    """
    connection = cursor.connection.pgconn
    answer = connection.exec_(statement.as_bytes(cursor))
    if answer.status != ExecStatus.COPY_OUT:
        raise error_from_result(answer)
    data = bytearray()
    size, row = connection.get_copy_data(0)
    while size > 0:
        data += row
        size, row = connection.get_copy_data(0)
    while (end := connection.get_result()) is not None:
        if end.status != ExecStatus.COMMAND_OK:
            raise error_from_result(end)
    return data


def _condition(table: Table, window: Window, ids: Sequence[int] | IdRange | None) -> sql.Composable:
    key = sql.Identifier(table.key)
    span = sql.SQL("ts >= {} AND ts < {}").format(
        sql.Literal(window.start_at), sql.Literal(window.end_at)
    )
    if ids is None:
        return span
    if isinstance(ids, IdRange):
        return sql.SQL("{} AND {} >= {} AND {} < {}").format(
            span, key, sql.Literal(ids.first), key, sql.Literal(ids.end)
        )
    return sql.SQL("{} AND {} = ANY({}::int[])").format(span, key, sql.Literal(list(ids)))


@cache
def _never_null(column: Column) -> sql.Composable:
    name = sql.Identifier(column.name)
    return _written(name if column.pg_type == "timestamptz" else _or_null(column, name))


def _written(part: sql.Composable) -> sql.SQL:
    """Return a part of statements as its text: to put it together takes a while each time."""
    text: Any = part.as_string()
    return sql.SQL(text)


def _or_null(column: Column, value: sql.Composable) -> sql.Composable:
    null = null_of(dtype_of(column))
    instead = sql.Literal("NaN" if column.is_float else str(null))
    return sql.SQL("coalesce({}, {}::{})").format(value, instead, sql.SQL(column.pg_type))


def _columns(chosen: tuple[Column, ...], data: bytearray) -> Columns:
    layout = _layout(chosen)
    # Two bytes follow the last row.
    count = (len(data) - _HEADER_BYTES - 2) // layout.itemsize
    rows = np.frombuffer(data, layout, count=count, offset=_HEADER_BYTES)
    columns = {c.name: rows[c.name].astype(dtype_of(c)) for c in chosen}
    if "ts" in columns:
        columns["ts"] += _POSTGRES_EPOCH_US
    return columns


@cache
def _layout(chosen: tuple[Column, ...]) -> np.dtype[Any]:
    fields: list[tuple[str, str]] = [("count", ">i2")]
    for column in chosen:
        fields += [
            (f"{column.name}_size", ">i4"),
            (column.name, dtype_of(column).newbyteorder(">").str),
        ]
    return np.dtype(fields)
