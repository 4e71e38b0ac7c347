"""The sample tables: their columns, their partitions, and binary COPY into them.

A table's columns are said once, here: what the stream carries of a row, what COPY writes and what
the live frame holds all follow from it. COPY's binary form is laid out by NumPy, some thousand rows
at a time: 0.15 µs a row of 28 columns, where psycopg's ``write_row`` takes 3. Rows with nulls are
grouped by which columns are null, since a null has no bytes and so each such group has a row layout
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, sql

from headroom.traffic import TrafficClass, reading_of

Array: TypeAlias = NDArray[Any]

#: Postgres counts microseconds from 2000-01-01.
_POSTGRES_EPOCH_S = 946_684_800
_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_TRAILER = b"\xff\xff"
_WIRE_TYPES = {"timestamptz": ">i8", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}
_TYPES = {"timestamptz": "<f8", "float4": "<f4", "float8": "<f8"}


@dataclass(frozen=True)
class Column:
    """A column of a sample table. ``null`` marks missing values: NaN, or the least integer."""

    name: str
    pg_type: str

    @property
    def is_id(self) -> bool:
        """Whether it holds ids, which batches do not have: they have names."""
        return self.name.endswith("_id")

    @property
    def is_float(self) -> bool:
        return self.pg_type.startswith("float")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type in memory and on the stream, in which nulls are told apart.

        It is no wider than the table's where it has a NaN, and int64 where it has none.
        """
        return np.dtype(_TYPES.get(self.pg_type, "<i8"))


#: Two who saw the same gap would else both fill it, and one of them fail.
_PARTITIONS_LOCK = 0x50415254
_ROWS_IN_BUFFERS = 6_000_000
#: Rows that are laid out at a time: some 1 MB, which stays in the processor's cache, and for which
#: the system need not be asked for memory each time.
_CHUNK_ROWS = 4096

#: Stands for null in integer arrays, which have no NaN. No counter can hold it.
NULL_INT = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Group:
    """The columns of one type: they stand side by side in a record."""

    name: str
    dtype: np.dtype[Any]
    columns: tuple[str, ...]

    @property
    def missing(self) -> float | int:
        """The value that stands for null."""
        return np.nan if self.dtype.kind == "f" else NULL_INT


@dataclass(frozen=True)
class Table:
    """A sample table. ``key`` is the column that names the row's entity."""

    name: str
    key: str
    columns: tuple[Column, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The columns by type, ids first."""
        named = sorted(self.columns, key=lambda column: not column.is_id)
        by_type = {
            name: tuple(c.name for c in named if c.dtype == name) for name in ("i8", "f8", "f4")
        }
        return tuple(Group(n, np.dtype(f"<{n}"), names) for n, names in by_type.items() if names)

    @cached_property
    def record(self) -> np.dtype[Any]:
        """A row as the stream carries it, column by column."""
        return np.dtype([(name, g.dtype) for g in self.groups for name in g.columns])

    @cached_property
    def grouped_record(self) -> np.dtype[Any]:
        """The same bytes as :attr:`record`, group by group."""
        return np.dtype([(g.name, g.dtype, (len(g.columns),)) for g in self.groups])

    @property
    def fields(self) -> tuple[Column, ...]:
        """The columns that carry readings: all but time and entity."""
        return tuple(c for c in self.columns if c.name not in ("ts", self.key))


def _table(name: str, key: str, **types: str) -> Table:
    head = (Column("ts", "timestamptz"), Column(key, "int4"))
    fields = (Column(f, t) for t, names in types.items() for f in names.split())
    return Table(name, key, (*head, *fields))


GPU = _table(
    "gpu_sample",
    "gpu_id",
    float8="energy_j",
    float4="power_w power_limit_w temp_c temp_mem_c temp_limit_c sm_mhz mem_mhz util fan"
    " mem_util mem_bw_util"
    " nvlink_tx nvlink_rx pcie_tx pcie_rx",
    int8="mem_used throttle throttle_sw_power_cap_ns throttle_hw_slowdown_ns"
    " throttle_sync_boost_ns throttle_sw_thermal_ns throttle_hw_thermal_ns"
    " throttle_hw_power_brake_ns ecc",
    int4="xid job_id mig_instances",
)
HOST = _table(
    "host_sample",
    "node_id",
    float4="cpu_util psi_cpu psi_mem psi_io power_w cpu_power_w"
    " net_rx_bytes_per_s net_tx_bytes_per_s",
    int8="mem_used mem_total",
)
LINK = _table(
    "link_sample",
    "link_id",
    float8="latency_s",
    float4=" ".join(
        ("tx_bytes_per_s rx_bytes_per_s retransmits_per_s", *map(reading_of, TrafficClass))
    ),
    int8="errors",
)
METER = _table("meter_sample", "meter_id", float8="power_w energy_j", float4="temp_c")
JOB = _table(
    "job_sample",
    "job_id",
    float8="loss step_time_s samples_per_s tokens_per_s flops_per_step",
    float4="data_wait_s sync_s lost_share rank_spread",
    int8="step rank_mem_bytes",
    int4="slowest_rank",
)
STORAGE = _table("storage_sample", "mount_id", int4="node_id", float4="fsync_s read_s")

TABLES = {table.name: table for table in (GPU, HOST, LINK, METER, JOB, STORAGE)}


@dataclass(frozen=True)
class Rows:
    """Rows for one table: an array for each column, all of one length.

    ``ts`` is Unix seconds (float64). Missing values are NaN or ``NULL_INT``.
    """

    table: Table
    columns: dict[str, Array]

    @staticmethod
    def of_records(table: Table, records: Array) -> Rows:
        """Return ``records``, which have the type ``table.record``, as rows. Nothing is copied."""
        return Rows(table, {c.name: records[c.name] for c in table.columns})

    def __len__(self) -> int:
        return len(self.columns["ts"])


def as_array(dtype: np.dtype[Any], values: list[Any]) -> Array:
    """Return ``values`` (None: missing) as an array of the type that a column has in memory."""
    if dtype.kind == "i":
        values = [NULL_INT if value is None else value for value in values]
    return np.array(values, dtype)  # NumPy turns None into NaN


# --- COPY ----------------------------------------------------------------------------------------


def copy(cursor: Cursor[Any], rows: Rows) -> None:
    """Append ``rows`` to their table. Their partitions must exist."""
    copy_encoded(cursor, rows.table.name, rows.table, encode(rows))


def copy_encoded(
    cursor: Cursor[Any], name: str, table: Table, chunks: Iterable[bytes | bytearray]
) -> None:
    """Append the chunks of :func:`encode` to table ``name``, which has the columns of ``table``."""
    with cursor.copy(_copy_statement(name, tuple(c.name for c in table.columns))) as out:
        out.write(_HEADER)
        for chunk in chunks:
            out.write(chunk)
        out.write(_TRAILER)


@cache
def _copy_statement(name: str, columns: tuple[str, ...]) -> bytes:
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    return statement.as_bytes()


def encode(rows: Rows) -> Iterator[bytearray]:
    """Yield the rows in COPY's binary form, in chunks of rows that are null in the same columns."""
    columns = rows.table.columns
    nulls = {c.name: is_null(c, rows.columns[c.name]) for c in columns}
    for chosen in _alike(list(nulls.values()), len(rows)):
        first = chosen.start if isinstance(chosen, slice) else chosen[0]
        has_value = tuple(not nulls[c.name][first] for c in columns)
        blank = _blank_row(columns, has_value)
        chunk = bytearray(blank.tobytes() * len(rows.columns["ts"][chosen]))
        out = np.frombuffer(chunk, blank.dtype)
        for column, is_present in zip(columns, has_value, strict=True):
            if is_present:
                out[column.name] = _wire_values(column, rows.columns[column.name][chosen])
        yield chunk


def _alike(nulls: list[Array], count: int) -> Iterator[slice | Array]:
    """Yield places of rows that are null in the same columns, some thousand at a time."""
    mixed = [column for column in nulls if column.any() and not column.all()]
    if not mixed:
        for start in range(0, count, _CHUNK_ROWS):
            yield slice(start, min(start + _CHUNK_ROWS, count))
        return
    bits = np.ascontiguousarray(np.packbits(mixed, axis=0).T)
    patterns = bits.view(np.dtype((np.void, bits.shape[1]))).ravel()
    _, group = np.unique(patterns, return_inverse=True)
    order = np.argsort(group, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        for start in range(0, len(same), _CHUNK_ROWS):
            yield same[start : start + _CHUNK_ROWS]


def is_null(column: Column, values: Array) -> Array:
    """Return which of ``values`` are missing."""
    missing: Array = np.isnan(values) if column.dtype.kind == "f" else values == NULL_INT
    return missing


def _wire_values(column: Column, values: Array) -> Array:
    if column.pg_type == "timestamptz":
        return np.round((values - _POSTGRES_EPOCH_S) * 1e6).astype("i8")
    return values


@cache
def _blank_row(columns: tuple[Column, ...], present: tuple[bool, ...]) -> Array:
    """Return a row that has all but its values: the number of columns, and the size of each."""
    layout: list[tuple[str, str]] = [("count", ">i2")]
    for column, is_present in zip(columns, present, strict=True):
        layout.append((f"{column.name}_size", ">i4"))
        if is_present:
            layout.append((column.name, _WIRE_TYPES[column.pg_type]))
    blank = np.zeros((), dtype=layout)
    blank["count"] = len(columns)
    for column, is_present in zip(columns, present, strict=True):
        width = np.dtype(_WIRE_TYPES[column.pg_type]).itemsize
        blank[f"{column.name}_size"] = width if is_present else -1
    return blank


# --- Partitions ----------------------------------------------------------------------------------
# The role of the application owns no table: functions of the owner make and drop partitions.


@dataclass(frozen=True, order=True)
class Partition:
    """A partition of one sample table: rows from ``start`` up to, not including, ``end``."""

    table: str
    start: datetime
    end: datetime

    @property
    def name(self) -> str:
        return f"{self.table}_{self.start:%Y%m%d_%H%M}"


def width_for(gpus: int) -> timedelta:
    """Return how wide a partition of a fleet of so many GPUs may be.

    Its index has to stay in Postgres' buffers: once it does not, COPY falls to a quarter. Six
    million rows, ten minutes of 100,000 GPUs at 10 s, have an index of 260 MB.
    """
    for minutes in (60, 30, 20, 15):
        if gpus * minutes * 6 <= _ROWS_IN_BUFFERS:
            return timedelta(minutes=minutes)
    return timedelta(minutes=10)


def partitions_for(table: Table, ts: Array, width: timedelta) -> list[Partition]:
    """Return the partitions into which rows at times ``ts`` (Unix seconds) fall."""
    width_s = width.total_seconds()
    starts = np.unique(np.floor_divide(ts, width_s)) * width_s
    return [
        Partition(
            table.name, datetime.fromtimestamp(s, UTC), datetime.fromtimestamp(s, UTC) + width
        )
        for s in starts.tolist()
    ]


def lock_partitions(cursor: Cursor[Any]) -> None:
    """Have nobody else create or detach partitions before the end of the transaction."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PARTITIONS_LOCK])


def create_partitions(cursor: Cursor[Any], partitions: Iterable[Partition]) -> None:
    """Create missing ``partitions``. Others who do so wait for the end of our transaction.

    A width that was changed in between leaves wider or narrower partitions behind; where one of
    them covers part of a new one, the new one is cut to what is free.
    """
    lock_partitions(cursor)
    for partition in partitions:
        for free in _uncovered(cursor, partition):
            cursor.execute(
                "SELECT telemetry_create_partition(%s, %s, %s)", [free.table, free.start, free.end]
            )


def _uncovered(cursor: Cursor[Any], wanted: Partition) -> Iterator[Partition]:
    start = wanted.start
    for other in existing_partitions(cursor, wanted.table):
        if other.end <= start or other.start >= wanted.end:
            continue
        if other.start > start:
            yield Partition(wanted.table, start, other.start)
        start = max(start, other.end)
    if start < wanted.end:
        yield Partition(wanted.table, start, wanted.end)


def existing_partitions(cursor: Cursor[Any], table: str) -> list[Partition]:
    """Return the partitions of ``table``, in order of time."""
    cursor.execute(
        """
        SELECT (regexp_match(bound, 'FROM \\(''([^'']+)''\\)'))[1]::timestamptz,
               (regexp_match(bound, 'TO \\(''([^'']+)''\\)'))[1]::timestamptz
        FROM (
            SELECT pg_get_expr(child.relpartbound, child.oid) AS bound
            FROM pg_inherits
            JOIN pg_class child ON child.oid = inhrelid
            WHERE inhparent = %s::regclass
        ) AS bounds
        ORDER BY 1
        """,
        [table],
    )
    return [Partition(table, start, end) for start, end in cursor.fetchall()]


def detach(cursor: Cursor[Any], partition: Partition, renamed: str) -> None:
    """Make a partition a table of its own, called ``renamed``: its name and eight hex digits."""
    cursor.execute(
        "SELECT telemetry_detach_partition(%s, %s, %s)",
        [partition.table, partition.name, renamed],
    )


def drop(cursor: Cursor[Any], relation: str) -> None:
    """Drop a partition, or a table that was one."""
    cursor.execute("SELECT telemetry_drop_partition(%s)", [relation])


def drop_before(cursor: Cursor[Any], table: Table, limit: datetime) -> list[str]:
    """Drop the partitions that end before ``limit`` and return their names."""
    old = [p for p in existing_partitions(cursor, table.name) if p.end <= limit]
    for partition in old:
        drop(cursor, partition.name)
    return [p.name for p in old]
