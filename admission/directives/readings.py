"""Readings of the GPUs of a gang, and of the job itself, around the time of a directive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db import connection

from admission.directives.effects import BEFORE_S, Floats, Trace

__all__ = ["trace_of"]

#: Width of a step, s: agents read more often than that or about as often.
STEP_S = 5.0
#: Of larger gangs every second, third, ... GPU is read.
_MOST_READ = 1000

# Of each GPU the mean of a step, then the mean of all GPUs: one that reads more often is not to
# count for more.
_GPUS = """
SELECT slot, avg(power_w), avg(temp_c) FROM (
    SELECT gpu_id, floor(extract(epoch FROM ts - %(at)s) / %(step_s)s) AS slot,
           avg(power_w) AS power_w, avg(temp_c) AS temp_c
    FROM gpu_sample
    WHERE gpu_id = ANY(%(gpus)s) AND ts >= %(first)s AND ts < %(until)s
    GROUP BY gpu_id, slot
) AS by_gpu GROUP BY slot ORDER BY slot
"""

_JOB = """
SELECT floor(extract(epoch FROM ts - %(at)s) / %(step_s)s) AS slot, avg(samples_per_s)
FROM job_sample JOIN telemetry_reportedjob AS job ON job.id = job_sample.job_id
WHERE job.name = ANY(%(names)s) AND ts >= %(first)s AND ts < %(until)s
GROUP BY slot ORDER BY slot
"""


def trace_of(
    gpu_ids: Sequence[int], job_names: Sequence[str], *, at: datetime, until: datetime
) -> Trace:
    """Return the readings of GPUs (database ids) from before ``at`` until ``until``. Two queries.

    ``job_names``: under which the job may have reported on itself.
    """
    chosen = list(gpu_ids[:: max(math.ceil(len(gpu_ids) / _MOST_READ), 1)])
    asked: dict[str, Any] = {
        "gpus": chosen, "names": list(job_names), "at": at, "step_s": STEP_S,
        "first": at - timedelta(seconds=BEFORE_S), "until": until,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_GPUS, asked)
        of_gpus = np.array(cursor.fetchall(), dtype=np.float64).reshape(-1, 3)
        cursor.execute(_JOB, asked)
        of_job = np.array(cursor.fetchall(), dtype=np.float64).reshape(-1, 2)
    steps = np.unique(np.concatenate([of_gpus[:, 0], of_job[:, 0]]))
    return Trace(
        gpus=len(gpu_ids),
        at_s=steps * STEP_S,
        power_w=_at(steps, of_gpus[:, 0], of_gpus[:, 1]) * len(gpu_ids),
        temp_c=_at(steps, of_gpus[:, 0], of_gpus[:, 2]),
        samples_per_s=_at(steps, of_job[:, 0], of_job[:, 1]),
    )


def _at(steps: Floats, known: Floats, values: Floats) -> Floats:
    found = np.full(len(steps), np.nan)
    found[np.searchsorted(steps, known)] = values
    return found
