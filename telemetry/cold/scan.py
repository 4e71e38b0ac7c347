"""Rows out of the cold tier's files, by Polars.

Polars is imported when the first file is read: it takes 0.15 s and 35 MB, and its threads must not
be there before a worker forks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from telemetry.cold.catalog import File
from telemetry.cold.places import Unreachable, place, reason
from telemetry.samples import Column, Table
from telemetry.store.columns import Columns, Window, columns_of, dtype_of, null_of
from telemetry.store.hot import IdRange

if TYPE_CHECKING:
    import polars as pl


def fetch(
    files: Sequence[File],
    table: Table,
    names: Sequence[str],
    window: Window,
    ids: Sequence[int] | IdRange | None = None,
) -> list[Columns]:
    """Return the rows of each file that may have some, in order of thing and time within a file.

    Raises ``FileNotFoundError`` where a file is gone, else :class:`Unreachable`.
    """
    if ids is not None and not isinstance(ids, IdRange):
        ids = sorted(ids)
    wanted = [file for file in files if _may_have(file, ids)]
    if not wanted:
        return []
    import polars as pl

    frames = [_frame(file, columns_of(table, names), table.key, window, ids) for file in wanted]
    try:
        collected = pl.collect_all(frames)
    except FileNotFoundError:
        raise
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Unreachable(reason(error)) from None
    return [{name: found[name].to_numpy() for name in found.columns} for found in collected]


def _may_have(file: File, ids: Sequence[int] | IdRange | None) -> bool:
    if ids is None:
        return True
    if isinstance(ids, IdRange):
        return file.first_id < ids.end and ids.first <= file.last_id
    at = bisect_left(ids, file.first_id)
    return at < len(ids) and ids[at] <= file.last_id


def _frame(
    file: File,
    columns: list[Column],
    key: str,
    window: Window,
    ids: Sequence[int] | IdRange | None,
) -> pl.LazyFrame:
    import polars as pl

    time = pl.Datetime("us", "UTC")
    conditions = [
        pl.col("ts") >= pl.lit(window.start_us).cast(time),
        pl.col("ts") < pl.lit(window.end_us).cast(time),
    ]
    if isinstance(ids, IdRange):
        conditions += [pl.col(key) >= ids.first, pl.col(key) < ids.end]
    elif ids is not None:
        # The range lets whole row groups be left out.
        conditions += [pl.col(key).is_between(min(ids), max(ids)), pl.col(key).is_in(list(ids))]
    options = place().options() or None
    found = pl.scan_parquet(
        place().uri(file.path), hive_partitioning=False, storage_options=options
    )
    values = (_value(column, column.name in file.columns) for column in columns)
    return found.filter(*conditions).select(values)


def _value(column: Column, is_there: bool) -> pl.Expr:
    """Return the column as its array has it, nulls as the values that stand for them."""
    import polars as pl

    dtype = dtype_of(column)
    if column.pg_type == "timestamptz":
        return pl.col(column.name).to_physical()
    kind = {"i4": pl.Int32, "i8": pl.Int64, "f4": pl.Float32, "f8": pl.Float64}[dtype.str[1:]]
    if not is_there:  # the file is older than the column
        return pl.lit(null_of(dtype), dtype=kind).alias(column.name)
    value = pl.col(column.name)
    if dtype.kind == "f":
        value = value.cast(pl.Float64)  # decimals are exact in 64 bits, then in 32
    return value.cast(kind).fill_null(null_of(dtype))
