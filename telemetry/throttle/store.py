"""The tracker's events as rows in Postgres: written with their readings, and read back."""

from __future__ import annotations

from typing import Any

import numpy as np
from psycopg import Cursor

from fleet.snapshot import FleetArrays
from telemetry import samples
from telemetry.faults.ecc import Increases
from telemetry.samples import NULL_INT, Rows
from telemetry.sql import array_text
from telemetry.throttle.events import EVENT, STORED, Changes, read_back
from telemetry.throttle.readings import COLUMNS
from telemetry.throttle.rules import CAUSES, Array

#: A GPU whose last sample is older than this starts anew.
_REBUILD_WINDOW = "1 hour"

# --- Writing -------------------------------------------------------------------------------------

_TIMES = ("opened", "updated", "closed")
_FLOATS = (
    "observed_s", "throttled_s", "capped_s", "sampled_s", "lost_mhz_s", "energy_j", "usual_mhz",
    "peak_temp_c", "peak_temp_mem_c", "peak_power_w", "min_sm_mhz",
)  # fmt: skip
_NEW = (
    "unnest(%s::bigint[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[],"
    + " %s::float8[]," * len(_FLOATS)
    + " %s::bigint[], %s::bool[], %s::smallint[], %s::text[])"
    + " AS new (gpu_id, cause, opened_us, updated_us, closed_us, readings, "
    + ", ".join(_FLOATS)
    + ", job_id, expected, severity, place)"
)


def _at(name: str) -> str:
    return f"to_timestamp(new.{name}_us / 1000000.0)"


# A GPU that was removed in between takes its event with it. That another is open already can only
# be where a shard was given up and taken up again: then that one goes on.
_INSERT = f"""
INSERT INTO telemetry_throttleevent
    (gpu_id, cause, opened_at, updated_at, closed_at, readings, {", ".join(_FLOATS)}, job_id,
     expected, severity, place)
SELECT new.gpu_id, new.cause, {", ".join(map(_at, _TIMES))}, new.readings,
       {", ".join(f"new.{name}" for name in _FLOATS)}, new.job_id, new.expected, new.severity,
       new.place
FROM {_NEW} JOIN fleet_gpu ON fleet_gpu.id = new.gpu_id
ON CONFLICT (gpu_id, cause) WHERE closed_at IS NULL DO NOTHING
"""  # noqa: S608 - the names are our own

_UPDATE = f"""
UPDATE telemetry_throttleevent AS event
SET updated_at = {_at("updated")}, closed_at = {_at("closed")}, readings = new.readings,
    {", ".join(f"{name} = new.{name}" for name in _FLOATS)},
    job_id = new.job_id, expected = new.expected, severity = new.severity
FROM {_NEW}
WHERE event.gpu_id = new.gpu_id AND event.cause = new.cause AND event.closed_at IS NULL
"""  # noqa: S608 - the names are our own

_INSERT_ECC = """
INSERT INTO telemetry_eccevent (gpu_id, since, at, count, total)
SELECT new.gpu_id, to_timestamp(new.since_us / 1000000.0), to_timestamp(new.at_us / 1000000.0),
       new.count, new.total
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS new (gpu_id, since_us, at_us, count, total)
JOIN fleet_gpu ON fleet_gpu.id = new.gpu_id
ON CONFLICT (gpu_id, at) DO NOTHING
"""


def save(cursor: Cursor[Any], changes: Changes, fleet: FleetArrays) -> None:
    """Write the changes of events. Closing comes first: an event may follow at once."""
    if len(changed := np.concatenate([changes.updated, changes.closed])):
        cursor.execute(_UPDATE, _columns(changed, [""] * len(changed)))
    if len(changes.opened):
        cursor.execute(_INSERT, _columns(changes.opened, places(changes.opened["gpu_id"], fleet)))


def save_ecc(cursor: Cursor[Any], rose: Increases) -> None:
    """Write down counts of memory errors that rose."""
    if len(rose.gpu_id):
        arrays = (rose.gpu_id, rose.since_us, rose.at_us, rose.count, rose.total)
        cursor.execute(_INSERT_ECC, [array_text(array.tolist()) for array in arrays])


def places(gpu_id: Array, fleet: FleetArrays) -> list[str]:
    """Return ``site/rack/node/index`` of GPUs; empty where the inventory no longer has one."""
    row_of = fleet.gpus.index_by_id
    return [_place(row_of.get(gpu), fleet) for gpu in gpu_id.tolist()]


def _place(row: int | None, fleet: FleetArrays) -> str:
    if row is None:
        return ""
    node = fleet.gpus.node[row]
    rack = fleet.racks.paths[fleet.nodes.rack[node]]
    return f"{rack}/{fleet.nodes.names[node]}/{fleet.gpus.index[row]}"


def _columns(events: Array, places: list[str]) -> list[str]:
    """Return the events as the columns of ``_NEW``."""
    bits = np.array([int(cause) for cause in CAUSES])
    times = [[us or None for us in events[f"{name}_us"].tolist()] for name in _TIMES]
    floats = [[None if v != v else v for v in events[name].tolist()] for name in _FLOATS]
    jobs = [None if job == NULL_INT else job for job in events["job_id"].tolist()]
    columns = [
        events["gpu_id"].tolist(),
        bits[events["cause"]].tolist(),
        *times,
        events["readings"].tolist(),
        *floats,
        jobs,
        events["expected"].tolist(),
        events["severity"].tolist(),
        places,
    ]
    return [array_text(column) for column in columns]


# --- Reading back --------------------------------------------------------------------------------


def _us(column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


_OPEN = f"""
SELECT gpu_id, cause, {_us("opened_at")}, {_us("updated_at")}, 0, readings,
       {", ".join(_FLOATS)}, job_id, expected, severity
FROM telemetry_throttleevent WHERE closed_at IS NULL ORDER BY gpu_id, cause
"""  # noqa: S608 - the names are our own
_OF_SAMPLE = ", ".join(name for name in (*COLUMNS, "ecc") if name != "ts")
_SAMPLE = f"extract(epoch FROM ts)::float8 AS ts, {_OF_SAMPLE}"
_LATEST = f"""
SELECT latest.* FROM fleet_gpu AS gpu CROSS JOIN LATERAL (
    SELECT {_SAMPLE} FROM gpu_sample AS sample
    WHERE sample.gpu_id = gpu.id AND sample.ts > now() - interval '{_REBUILD_WINDOW}'
    ORDER BY sample.ts DESC LIMIT 1) AS latest
"""  # noqa: S608 - the names are our own
_SINCE = f"""
SELECT later.*
FROM (SELECT gpu_id, min(updated_at) AS since FROM telemetry_throttleevent
      WHERE closed_at IS NULL GROUP BY gpu_id) AS event
CROSS JOIN LATERAL (
    SELECT {_SAMPLE} FROM gpu_sample AS sample
    WHERE sample.gpu_id = event.gpu_id AND sample.ts >= event.since) AS later
"""  # noqa: S608 - the names are our own


def latest_samples(cursor: Any) -> Rows:
    """Return the newest sample of each GPU: one index look-up for each."""
    return _rows(cursor, _LATEST)


def samples_since(cursor: Any) -> Rows:
    """Return the samples of GPUs with open events, each from the oldest update of its events."""
    return _rows(cursor, _SINCE)


def _rows(cursor: Any, query: str) -> Rows:
    cursor.execute(query)
    names = [column.name for column in cursor.description]
    found = list(zip(*cursor.fetchall(), strict=True)) or [() for _ in names]
    given = dict(zip(names, found, strict=True))
    columns = {c.name: c for c in samples.GPU.columns}
    return Rows(
        samples.GPU, {n: samples.as_array(columns[n].dtype, list(v)) for n, v in given.items()}
    )


def open_events(cursor: Any) -> Array:
    """Return the open events, as they were last written."""
    cursor.execute(_OPEN)
    place = {int(cause): i for i, cause in enumerate(CAUSES)}
    found = cursor.fetchall()
    records = np.zeros(len(found), EVENT)
    for name, values in zip(STORED, zip(*found, strict=True), strict=False):
        if name == "cause":
            records[name] = [place[bit] for bit in values]
        elif name == "job_id":
            records[name] = [NULL_INT if job is None else job for job in values]
        else:
            records[name] = values if EVENT[name].kind != "f" else np.array(values, "f8")
    return read_back(records)
