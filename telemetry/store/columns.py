"""Columns of rows as they are read: one array for each, in the type of the table.

``ts`` is int64, microseconds since 1970, as Postgres and Parquet hold it: nothing is rounded on the
way. A missing value is NaN, or the least integer of its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from telemetry.samples import Column, Table

Array: TypeAlias = NDArray[Any]
Columns: TypeAlias = dict[str, Array]

US = 1_000_000
_KEY_BITS = 63
_DTYPES = {"timestamptz": "i8", "int4": "i4", "int8": "i8", "float4": "f4", "float8": "f8"}


@dataclass(frozen=True, slots=True)
class Window:
    """From ``start`` up to, not including, ``end``: Unix s."""

    start: float
    end: float

    @property
    def start_us(self) -> int:
        return round(self.start * US)

    @property
    def end_us(self) -> int:
        return round(self.end * US)

    @property
    def start_at(self) -> datetime:
        return datetime.fromtimestamp(self.start, UTC)

    @property
    def end_at(self) -> datetime:
        return datetime.fromtimestamp(self.end, UTC)


@dataclass(frozen=True)
class SupersedingTable(Table):
    """A table whose rows are written anew: of a thing and a time the newest row counts."""


def dtype_of(column: Column) -> np.dtype[Any]:
    """Return the type of the column's array."""
    return np.dtype(_DTYPES[column.pg_type])


def null_of(dtype: np.dtype[Any]) -> float | int:
    """Return the value that marks a missing one in an array of ``dtype``."""
    return np.nan if dtype.kind == "f" else int(np.iinfo(dtype).min)


def is_null(values: Array) -> Array:
    """Return which of ``values`` are missing."""
    found: Array = np.isnan(values) if values.dtype.kind == "f" else values == null_of(values.dtype)
    return found


def columns_of(table: Table, names: Sequence[str]) -> list[Column]:
    """Return the columns of ``table`` in the order of ``names``."""
    by_name = {column.name: column for column in table.columns}
    return [by_name[name] for name in names]


def empty(table: Table, names: Sequence[str]) -> Columns:
    """Return no rows."""
    return {c.name: np.empty(0, dtype_of(c)) for c in columns_of(table, names)}


def concatenate(pieces: Iterable[Columns]) -> Columns:
    """Return the rows of all ``pieces``, of which there is one at least, in their order."""
    listed = list(pieces)
    if len(listed) == 1:
        return listed[0]
    return {name: np.concatenate([piece[name] for piece in listed]) for name in listed[0]}


def take(columns: Columns, chosen: Array | slice) -> Columns:
    """Return the rows at ``chosen``: places, a mask or a slice."""
    return {name: values[chosen] for name, values in columns.items()}


def order_by(columns: Columns, key: str) -> Columns:
    """Return the rows in order of ``key`` and time. Rows with both the same keep their order."""
    ids, ts = columns[key], columns["ts"]
    later = ids[1:] == ids[:-1]
    if bool(np.all((ids[1:] > ids[:-1]) | (later & (ts[1:] >= ts[:-1])))):
        return columns
    return take(columns, _order(ids.astype("i8"), ts))


def _order(ids: Array, ts: Array) -> Array:
    since = ts - ts.min()
    id_bits, time_bits = int(ids.max()).bit_length(), int(since.max()).bit_length()
    if ids.min() < 0 or id_bits + time_bits > _KEY_BITS:
        return np.lexsort((ts, ids))
    # One number to sort by; rows come in runs that are in order, which a stable sort makes use of.
    return np.argsort((ids << time_bits) | since, kind="stable")


def last_of_each(columns: Columns, key: str) -> Columns:
    """Return of rows with the same ``key`` and time the last, in order of both.

    Roll-ups are computed anew where readings come late; the newest computation stands last.
    """
    ordered = order_by(columns, key)
    ids, ts = ordered[key], ordered["ts"]
    is_last = np.append((ids[1:] != ids[:-1]) | (ts[1:] != ts[:-1]), True)
    return ordered if is_last.all() else take(ordered, is_last[: len(ids)])
