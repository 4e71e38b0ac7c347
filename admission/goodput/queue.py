"""What waited to begin in a span of time, and for which dominant reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from django.db import connection

from admission.core.account import GpuSpans
from admission.goodput.records import NO_SPANS
from admission.goodput.waiting import Waits, wanted_us
from admission.jobs.models import Job
from admission.queue.reasons import REASON
from telemetry.spans import Span

__all__ = ["Wait", "of_job", "waits"]

# What waits still; what an attempt began of since; what was ended while it waited. What began again
# and again waited from the end of the attempt before.
_WAITS = """
WITH begun AS (
    SELECT phase_id, dispatched_at,
           lag(ended_at) OVER (PARTITION BY phase_id ORDER BY number) AS before
    FROM admission_jobs_attempt
    WHERE phase_id IN (
        SELECT phase_id FROM admission_jobs_attempt
        WHERE (ended_at IS NULL OR ended_at > %(start)s)
            AND (%(phases)s::bigint[] IS NULL OR phase_id = ANY(%(phases)s))
    )
), waited AS (
    SELECT phase_id, before AS since, dispatched_at AS until FROM begun
    WHERE dispatched_at > %(start)s
    UNION ALL
    SELECT id, queued_at, ended_at FROM admission_jobs_phase AS phase
    WHERE queued_at < %(end)s AND (%(phases)s::bigint[] IS NULL OR id = ANY(%(phases)s)) AND (
        state = 'queued'
        OR state = 'cancelled' AND ended_at > %(start)s AND NOT EXISTS (
            SELECT FROM admission_jobs_attempt WHERE phase_id = phase.id
        )
    )
)
SELECT job.id, phase.name, project.name, job.job_class, phase.gpus,
       extract(epoch FROM greatest(%(start)s, coalesce(
           waited.since, least(phase.queued_at, waited.until), job.submitted_at)))::float8,
       extract(epoch FROM least(%(end)s, waited.until))::float8,
       phase.reason, extract(epoch FROM phase.reason_since)::float8
FROM waited
JOIN admission_jobs_phase AS phase ON phase.id = waited.phase_id
JOIN admission_jobs_job AS job ON job.id = phase.job_id
JOIN admission_jobs_project AS project ON project.id = job.project_id
"""

# Of each phase the last change before the span, and all in it.
_REASONS = """
SELECT job_id, phase, extract(epoch FROM at)::float8, data->>'token'
FROM admission_jobs_jobevent
WHERE kind = %(kind)s AND job_id = ANY(%(jobs)s) AND at < %(end)s
ORDER BY at, id
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """Demand of one project and class that waited for one reason, µs of GPUs.

    ``wanted_us`` is what of it stood against GPUs that were free.
    """

    project: str
    job_class: str
    reason: str
    demand_us: int
    wanted_us: int


class _Row(NamedTuple):
    """A wait as it is read. Times are Unix s."""

    job: int
    phase: str
    project: str
    job_class: str
    gpus: int
    start: float
    end: float
    reason: str
    reason_since: float | None


class _Piece(NamedTuple):
    project: str
    job_class: str
    reason: str
    gpus: int
    start: float
    end: float


def of_job(job: Job, now: datetime) -> list[Wait]:
    """Return what a job has waited for so far, the most first. Three queries.

    ``wanted_us`` is 0: free GPUs are not looked at.
    """
    phases = list(job.phases.values_list("pk", flat=True))
    end = max(now, job.submitted_at + timedelta(microseconds=1))
    found = waits(Span(job.submitted_at.timestamp(), end.timestamp()), NO_SPANS, phases)
    return sorted(found, key=lambda each: -each.demand_us)


def waits(span: Span, free: GpuSpans, phases: Sequence[int] | None = None) -> list[Wait]:
    """Return what waited in ``span``, by project, class and reason. Two queries.

    ``phases``: the numbers of those that are meant; None: all.
    """
    given: dict[str, Any] = {"start": span.start_at, "end": span.end_at, "phases": phases}
    with connection.cursor() as cursor:
        cursor.execute(_WAITS, given)
        rows = [row for row in map(_Row._make, cursor.fetchall()) if row.end > row.start]
        jobs = list({row.job for row in rows})
        cursor.execute(_REASONS, {"kind": REASON, "jobs": jobs, "end": span.end_at})
        told: dict[tuple[int, str], list[tuple[float, str]]] = defaultdict(list)
        for job, phase, at, token in cursor.fetchall():
            told[job, phase].append((at, token or ""))
    pieces = [piece for row in rows for piece in _pieces(row, told[row.job, row.phase])]
    return _summed(pieces, free)


def _pieces(row: _Row, told: list[tuple[float, str]]) -> Iterator[_Piece]:
    """Yield the pieces of one wait, by what kept it."""
    changes = [(at, token) for at, token in told if at < row.end]
    if row.reason and row.reason_since is not None and row.reason_since < row.end:
        # What has not stood for long is no event yet.
        changes.append((row.reason_since, row.reason))
    at, kept = row.start, ""
    for change, token in sorted(changes):
        if change > at:
            yield _Piece(row.project, row.job_class, kept, row.gpus, at, change)
            at = change
        kept = token
    yield _Piece(row.project, row.job_class, kept, row.gpus, at, row.end)


def _summed(pieces: Sequence[_Piece], free: GpuSpans) -> list[Wait]:
    given = Waits(
        np.array([each.gpus for each in pieces], dtype=np.int64),
        np.rint(np.array([each.start for each in pieces]) * 1e6).astype(np.int64),
        np.rint(np.array([each.end for each in pieces]) * 1e6).astype(np.int64),
    )
    total: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    columns = (given.demand_us.tolist(), wanted_us(given, free).tolist())
    for each, demand, wanted in zip(pieces, *columns, strict=True):
        total[each[:3]][0] += demand
        total[each[:3]][1] += wanted
    return [
        Wait(*whose, demand, wanted) for whose, (demand, wanted) in sorted(total.items()) if demand
    ]
