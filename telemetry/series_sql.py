"""The statements behind :mod:`telemetry.series`. Column names are ``telemetry.samples``' own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from psycopg import sql

from telemetry import samples
from telemetry.samples import Table

if TYPE_CHECKING:
    from django.db.backends.utils import CursorWrapper

Column: TypeAlias = list[float | None]
Row: TypeAlias = tuple[float | None, ...]

#: How the readings of one source in one bucket become one value. Not named here: their mean.
_OVER_TIME = {
    "throttle": "bit_or",
    **dict.fromkeys(("energy_j", "ecc", "xid", "errors", "step"), "max"),
    **{c.name: "max" for c in samples.GPU.fields if c.name.endswith("_ns")},
}
#: How the values of the GPUs of a node or a rack become one.
ACROSS = {
    "power_limit_w": "sum",
    "energy_j": "sum",
    "temp_c": "max",
    "temp_mem_c": "max",
    "temp_limit_c": "min",
    "sm_mhz": "avg",
    "mem_mhz": "avg",
    "util": "avg",
    "fan": "avg",
    "mem_used": "sum",
    "throttle": "bit_or",
    "nvlink_tx": "sum",
    "nvlink_rx": "sum",
    "pcie_tx": "sum",
    "pcie_rx": "sum",
    "ecc": "sum",
}
#: What a node or rack has besides: its draw, that of its GPUs alone, and what both rest on.
POWER_FIELDS = ("power_w", "gpu_power_w", "nodes_reporting", "gpus_reporting")

_CADENCE_READINGS = 50
_CADENCE_SOURCES = 64


@dataclass(frozen=True, slots=True)
class Window:
    """From ``start`` up to, not including, ``end``: Unix s."""

    start: float
    end: float

    def params(self) -> dict[str, Any]:
        return {
            "start": datetime.fromtimestamp(self.start, UTC),
            "end": datetime.fromtimestamp(self.end, UTC),
        }


@dataclass(frozen=True, slots=True)
class PartIds:
    """What a node or rack is made of. ``gpus`` and ``meters``: node by id; 0 is the whole rack."""

    gpus: dict[int, int]
    meters: dict[int, int]
    nodes: list[int]

    def sources(self) -> Iterator[tuple[Table, list[int]]]:
        """Yield each table that has readings of the parts, with the ids to look for."""
        yield samples.GPU, list(self.gpus)
        yield samples.METER, list(self.meters)
        yield samples.HOST, self.nodes


# --- One source ----------------------------------------------------------------------------------

_SPAN = sql.SQL("ts >= %(start)s AND ts < %(end)s")


def cadence_s(cursor: CursorWrapper, table: Table, ids: Sequence[int], window: Window) -> float:
    """Return the usual time between two readings of one source, at the window's end; 0: unknown."""
    if not ids:
        return 0.0
    statement = sql.SQL(
        """
        SELECT extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY gap))::float8
        FROM unnest(%(ids)s::int[]) AS source (id), LATERAL (
            SELECT ts - lag(ts) OVER (ORDER BY ts) AS gap
            FROM (
                SELECT ts FROM {table} WHERE {key} = source.id AND {span}
                ORDER BY ts DESC LIMIT {readings}
            ) AS newest
        ) AS gaps
        """
    ).format(
        table=sql.Identifier(table.name),
        key=sql.Identifier(table.key),
        span=_SPAN,
        readings=sql.Literal(_CADENCE_READINGS),
    )
    cursor.execute(statement, {**window.params(), "ids": list(ids)[:_CADENCE_SOURCES]})
    return cursor.fetchone()[0] or 0.0


def raw(
    cursor: CursorWrapper,
    table: Table,
    source: int,
    fields: Sequence[str],
    window: Window,
    most: int,
) -> list[Row]:
    """Return up to ``most`` readings, oldest first: time, then ``fields``."""
    statement = sql.SQL(
        """
        SELECT extract(epoch FROM ts)::float8, {fields} FROM {table}
        WHERE {key} = %(source)s AND {span} ORDER BY ts LIMIT %(most)s
        """
    ).format(
        fields=sql.SQL(", ").join(map(sql.Identifier, fields)),
        table=sql.Identifier(table.name),
        key=sql.Identifier(table.key),
        span=_SPAN,
    )
    cursor.execute(statement, {**window.params(), "source": source, "most": most})
    rows: list[Row] = cursor.fetchall()
    return rows


def bucketed(
    cursor: CursorWrapper,
    table: Table,
    source: int,
    fields: Sequence[str],
    window: Window,
    step_s: float,
    *,
    band: bool,
) -> list[Row]:
    """Return a row for each bucket with readings: its start, the values, then the band."""
    ends = [
        _cast(f"{end}({{}})", table, name)
        for name in fields
        for end in (("min", "max") if band else ())
    ]
    statement = sql.SQL(
        """
        SELECT extract(epoch FROM date_bin(%(step)s::interval, ts, 'epoch'))::float8 AS bucket,
               {values}
        FROM {table} WHERE {key} = %(source)s AND {span} GROUP BY bucket ORDER BY bucket
        """
    ).format(
        values=sql.SQL(", ").join([*(_over_time(table, name) for name in fields), *ends]),
        table=sql.Identifier(table.name),
        key=sql.Identifier(table.key),
        span=_SPAN,
    )
    cursor.execute(statement, {**window.params(), "source": source, "step": _interval(step_s)})
    rows: list[Row] = cursor.fetchall()
    return rows


def _interval(seconds: float) -> str:
    return f"{seconds} seconds"


def _over_time(table: Table, name: str) -> sql.Composed:
    return _cast(f"{_OVER_TIME.get(name, 'avg')}({{}})", table, name)


def _cast(call: str, table: Table, name: str) -> sql.Composed:
    """``call`` of a column, in the column's own type: a mean of float4 is no more exact than it."""
    pg_type = next(c.pg_type for c in table.fields if c.name == name)
    # Both parts come from the tables above, never from a request.
    return sql.SQL(f"{call}::{pg_type}").format(sql.Identifier(name))


# --- Many sources --------------------------------------------------------------------------------

_GPU_BUCKETS = sql.SQL(
    """
    SELECT extract(epoch FROM bucket)::float8, {across}
    FROM (
        SELECT date_bin(%(step)s::interval, ts, 'epoch') AS bucket, gpu_id, {over_time}
        FROM gpu_sample WHERE gpu_id = ANY(%(gpus)s) AND {span} GROUP BY bucket, gpu_id
    ) AS by_gpu
    GROUP BY bucket
    """
)

# The draw of each node in each bucket from what there is of it, then the sum over nodes. The meter
# of a rack is on node 0. A meter that reads zero or less has failed: telemetry.summary says so too.
_POWER_BUCKETS = sql.SQL(
    """
    SELECT extract(epoch FROM bucket)::float8,
           coalesce(
               sum(rack_w), sum(coalesce(meter_w, gpu_w + coalesce(host_w, 0), host_w))
           )::float4,
           sum(gpu_w)::float4,
           count(coalesce(meter_w, gpu_w, host_w)),
           sum(gpus)::int8
    FROM (
        SELECT bucket, node,
               sum(power_w) FILTER (WHERE source = 'rack') AS rack_w,
               sum(power_w) FILTER (WHERE source = 'meter') AS meter_w,
               sum(power_w) FILTER (WHERE source = 'gpu') AS gpu_w,
               sum(power_w) FILTER (WHERE source = 'host') AS host_w,
               count(*) FILTER (WHERE source = 'gpu') AS gpus
        FROM (
            SELECT date_bin(%(step)s::interval, ts, 'epoch') AS bucket, node, 'gpu' AS source,
                   avg(power_w) AS power_w
            FROM gpu_sample
            JOIN unnest(%(gpus)s::int[], %(gpu_nodes)s::int[]) AS g (id, node) ON g.id = gpu_id
            WHERE gpu_id = ANY(%(gpus)s) AND {span} GROUP BY bucket, node, gpu_id
            UNION ALL
            SELECT date_bin(%(step)s::interval, ts, 'epoch'), node,
                   CASE node WHEN 0 THEN 'rack' ELSE 'meter' END,
                   avg(power_w) FILTER (WHERE power_w > 0)
            FROM meter_sample
            JOIN unnest(%(meters)s::int[], %(meter_nodes)s::int[]) AS m (id, node)
                ON m.id = meter_id
            WHERE meter_id = ANY(%(meters)s) AND {span} GROUP BY 1, node, meter_id
            UNION ALL
            SELECT date_bin(%(step)s::interval, ts, 'epoch'), node_id, 'host',
                   coalesce(avg(power_w), avg(cpu_power_w))
            FROM host_sample WHERE node_id = ANY(%(nodes)s) AND {span} GROUP BY 1, node_id
        ) AS by_source
        GROUP BY bucket, node
    ) AS by_node
    GROUP BY bucket
    """
)


def group(
    cursor: CursorWrapper, parts: PartIds, across: Sequence[str], window: Window, step_s: float
) -> dict[float, Row]:
    """Return by bucket start the values of ``POWER_FIELDS``, then those of ``across``."""
    params = {
        **window.params(),
        "step": _interval(step_s),
        "gpus": list(parts.gpus),
        "gpu_nodes": list(parts.gpus.values()),
        "meters": list(parts.meters),
        "meter_nodes": list(parts.meters.values()),
        "nodes": parts.nodes,
    }
    cursor.execute(_POWER_BUCKETS.format(span=_SPAN), params)
    power = {bucket: row for bucket, *row in cursor.fetchall()}
    gpus: dict[float, list[float | None]] = {}
    if across and parts.gpus:
        cursor.execute(_gpu_buckets(across), params)
        gpus = {bucket: row for bucket, *row in cursor.fetchall()}
    none = [None] * len(across)
    # Every reading of a GPU is a row of the first answer too.
    return {bucket: (*row, *gpus.get(bucket, none)) for bucket, row in power.items()}


def _gpu_buckets(fields: Sequence[str]) -> sql.Composed:
    across = [_cast(f"{ACROSS[name]}({{}})", samples.GPU, name) for name in fields]
    over_time = [
        sql.SQL("{} AS {}").format(_over_time(samples.GPU, name), sql.Identifier(name))
        for name in fields
    ]
    return _GPU_BUCKETS.format(
        across=sql.SQL(", ").join(across), over_time=sql.SQL(", ").join(over_time), span=_SPAN
    )
