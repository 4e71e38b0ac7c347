"""Which GPUs carried a job, hour by hour: how a job's timeline finds its GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
from psycopg import Cursor

from telemetry.rollups.compute import carriers
from telemetry.rollups.spec import HOUR_S
from telemetry.samples import Table
from telemetry.store.columns import Array, Columns, Window

_KNOWN = """
SELECT job_id, gpu_ids FROM telemetry_jobcarrier
WHERE hour = to_timestamp(%s) AND job_id = ANY(%s) ORDER BY job_id FOR UPDATE
"""

# Arrays travel as text, since an array of arrays of unlike length is none to Postgres.
_SAVE = """
INSERT INTO telemetry_jobcarrier (job_id, hour, gpu_ids)
SELECT job_id, to_timestamp(%s), gpu_ids::int[]
FROM unnest(%s::bigint[], %s::text[]) AS new (job_id, gpu_ids)
ON CONFLICT (job_id, hour) DO UPDATE SET gpu_ids = excluded.gpu_ids
"""

_BETWEEN = """
SELECT gpu_ids FROM telemetry_jobcarrier
WHERE job_id = %s AND hour > to_timestamp(%s) AND hour < to_timestamp(%s)
"""


def note(cursor: Cursor[Any], rows: Columns, table: Table, job: str, at: float) -> None:
    """Add the carriers of jobs in ``rows``, readings of the minute that begins at ``at``."""
    found = carriers(rows, table, job)
    if not found:
        return
    hour = at // HOUR_S * HOUR_S
    cursor.execute(_KNOWN, [hour, list(found)])
    known = {number: np.array(gpus) for number, gpus in cursor.fetchall()}
    changed = {
        number: grown
        for number, gpus in found.items()
        if len(grown := np.union1d(gpus, known.get(number, gpus[:0]))) > len(known.get(number, ()))
    }
    if changed:
        texts = ["{" + ",".join(map(str, gpus.tolist())) + "}" for gpus in changed.values()]
        cursor.execute(_SAVE, [hour, list(changed), texts])


def of_job(cursor: Cursor[Any], job_id: int, window: Window) -> Array:
    """Return the ids of the GPUs that carried a job at some time in ``window``, or near it."""
    cursor.execute(_BETWEEN, [job_id, window.start - HOUR_S, window.end])
    found = [np.array(gpus) for (gpus,) in cursor.fetchall()]
    return np.unique(np.concatenate(found)) if found else np.empty(0, "i4")
