"""The elements of job arrays: their phases are made as they come in reach.

An array of ten thousand is one job. Only so many of its elements have rows and are looked at by the
cycle as may run, or could begin in the next few cycles; the others are a number. What keeps one of
those that wait keeps all behind it, and is told once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Case, QuerySet, When

from admission import bulk
from admission.core.request import Request
from admission.jobs import catalog, needs, progress
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Job, Phase, PhaseQuerySet
from admission.jobs.resolution import Resolved, of_element, requests_of, stored
from headroom.jobs import array, reading
from headroom.jobs.array import Array
from headroom.jobs.spec import JobSpec

__all__ = [
    "array_of",
    "counts_of",
    "leave_out",
    "make",
    "most_waiting",
    "phase_rows",
    "phases_shown",
    "release",
]

#: Elements of one array that wait in the queue at once, and phases of those.
_MOST_WAITING, _MOST_PHASES = 100, 1_000


def array_of(job: Job) -> Array:
    """Return the array of a job that is one."""
    return array.read(job.spec["array"])


def most_waiting(found: Array, phases: int) -> int:
    """Return how many elements, of ``phases`` each, are in the queue at once at most."""
    most = max(1, min(_MOST_WAITING, _MOST_PHASES // phases))
    return min(len(found), most, found.limit or most)


def phase_rows(
    job: Job,
    spec: JobSpec,
    requests: Iterable[Request],
    now: datetime,
    *,
    element: int | None = None,
    kept: Collection[int] = (),
) -> list[Phase]:
    """Return the phases of a job, or of one element of an array, as rows that are not saved.

    ``kept``: the places of those that wait for more than phases of their job.
    """
    rows = []
    pairs = zip(spec.phases, requests, strict=True)
    for index, (phase, request) in enumerate(pairs):
        asked = of_element(request, element, now.timestamp())
        before = needs.plain(phase.needs)
        if element is not None:
            before = [array.name_of(name, element) for name in before]
        waits = bool(before) or index in kept
        rows.append(
            Phase(
                job=job,
                name=asked.phase,
                index=index,
                element=element,
                needs=before,
                state=Phase.State.WAITING if waits else Phase.State.QUEUED,
                request=stored(asked),
                gpus=phase.gang.gpus,
                held_by=job.held_by,
                hold_reason=job.hold_reason,
                queued_at=None if waits else now,
            )
        )
    return rows


# --- As they come in reach -----------------------------------------------------------------------

# By array with elements left: how many have open phases, and how many of those wait altogether.
_OPEN = """
SELECT job.id, count(open.element), count(open.element) FILTER (WHERE open.waits)
FROM admission_jobs_job AS job
LEFT JOIN LATERAL (
    SELECT element, bool_and(state IN ('waiting', 'queued')) AS waits
    FROM admission_jobs_phase AS phase
    WHERE phase.job_id = job.id AND state NOT IN ('succeeded', 'failed', 'cancelled')
      -- What can never begin takes no room from the others.
      AND NOT EXISTS (
        SELECT FROM admission_jobs_dependency AS need
        WHERE need.job_id = job.id AND need.element = phase.element AND need.state = 'never'
      )
    GROUP BY element
) AS open ON true
WHERE job.elements_reached < job.elements AND job.state IN ('queued', 'running')
  AND NOT EXISTS (
    SELECT FROM admission_jobs_dependency AS need
    WHERE need.job_id = job.id AND need.phase = '' AND need.element IS NULL
      AND need.state IN ('open', 'never')
)
GROUP BY job.id
ORDER BY job.id
"""


def release(now: datetime) -> int:
    """Make the elements that arrays have room for; return how many. One query, more where some do.

    Only the cycle calls this, so that no two do at a time.
    """
    with connection.cursor() as cursor:
        cursor.execute(_OPEN)
        found: list[tuple[int, int, int]] = cursor.fetchall()
    return sum(_release(job, open_, waiting, now) for job, open_, waiting in found)


@transaction.atomic
def _release(job_id: int, open_: int, waiting: int, now: datetime) -> int:
    job = progress.lock(job_id)
    if job.state not in Job.OPEN:
        return 0
    found = array_of(job)
    room = most_waiting(found, len(job.spec["phases"])) - waiting
    if found.limit is not None:
        room = min(room, found.limit - open_)
    if room <= 0:
        return 0
    left = _left(job, found)
    make(job, left[:room], now)
    _reached(job, found, left[room:])
    return len(left[:room])


def _left(job: Job, found: Array) -> list[int]:
    """Return the elements that have no phases yet. One query."""
    ahead = found.indices[job.elements_reached :]
    # Those that somebody has cancelled one by one have some.
    made = set(_made(job).filter(element__gte=ahead[0])) if ahead else set()
    return [element for element in ahead if element not in made]


def _made(job: Job) -> QuerySet[Phase, int | None]:
    return job.phases.filter(index=0).order_by().values_list("element", flat=True)


def _reached(job: Job, found: Array, left: Sequence[int]) -> None:
    job.elements_reached = found.indices.index(left[0]) if left else len(found)
    job.save(update_fields=["elements_reached"])


def make(job: Job, elements: Collection[int], now: datetime, **state: object) -> None:
    """Make the phases of elements of a locked job, in another ``state`` where it is given."""
    spec = reading.convert(job.spec)
    job_class = catalog.current().get(job.job_class) or SchedulingClass(name=job.job_class)
    requests = requests_of(
        Resolved(spec, job_class),
        name=job.name,
        submitted_at=job.submitted_at,
        user=job.submitted_by,
    )
    kept = needs.kept(job)
    if not state:
        kept |= needs.write_each(job, elements)
    rows = [
        row
        for element in elements
        for row in phase_rows(job, spec, requests, now, element=element, kept=kept)
    ]
    for row in rows:
        for name, value in state.items():
            setattr(row, name, value)
    bulk.insert(rows)


def leave_out(job: Job, elements: Collection[int], now: datetime) -> int:
    """Cancel those of ``elements`` of a locked job that have no phases yet; return how many."""
    found = array_of(job)
    left = _left(job, found)
    chosen = [element for element in left if element in elements]
    make(job, chosen, now, state=Phase.State.CANCELLED, ended_at=now, queued_at=None)
    _reached(job, found, [element for element in left if element not in elements])
    return len(chosen)


# --- To be looked at -----------------------------------------------------------------------------

#: Phases of an array that are shown with it: those that run, failed or wait, then others.
_SHOWN = 100
_FIRST: tuple[Sequence[str], ...] = (Phase.ACTIVE, (Phase.State.FAILED,), Phase.PENDING)


def phases_shown(job: Job) -> PhaseQuerySet:
    """Return the phases that are shown with a job: all, or of an array the first of interest."""
    if job.elements is None:
        return Phase.objects.filter(job=job)
    ranks = [When(state__in=states, then=rank) for rank, states in enumerate(_FIRST)]
    rank = Case(*ranks, default=len(_FIRST))
    found = job.phases.order_by(rank, "element", "index")[:_SHOWN]
    return Phase.objects.filter(pk__in=list(found.values_list("pk", flat=True)))


# --- In numbers ----------------------------------------------------------------------------------


def counts_of(jobs: Iterable[Job]) -> dict[int, dict[str, int]]:
    """Return how many elements of each array are in which state, by job. One query, if any is one.

    ``left`` are those that have no phases yet; of a job that is over they never had. An element
    counts as running as soon as one of its phases has begun.
    """
    arrays = {job.pk: job for job in jobs if job.elements is not None}
    if not arrays:
        return {}
    found = {pk: dict.fromkeys(_COUNTED, 0) for pk in arrays}
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, [list(arrays)])
        for pk, state, count in cursor.fetchall():
            found[pk][state] = count
    for pk, counts in found.items():
        counts["left"] = (arrays[pk].elements or 0) - sum(counts.values())
    return found


_COUNTED = ("left", "waiting", "running", "succeeded", "failed", "cancelled")
_COUNTS = """
SELECT job_id, of_element, count(*) FROM (
    SELECT job_id, CASE
        WHEN bool_or(state = 'failed') AND bool_and(state IN ('succeeded', 'failed', 'cancelled'))
            THEN 'failed'
        WHEN bool_and(state = 'succeeded') THEN 'succeeded'
        WHEN bool_and(state IN ('succeeded', 'cancelled')) THEN 'cancelled'
        WHEN bool_and(state IN ('waiting', 'queued')) THEN 'waiting'
        ELSE 'running'
    END AS of_element
    FROM admission_jobs_phase WHERE job_id = ANY(%s) AND element IS NOT NULL
    GROUP BY job_id, element
) AS elements
GROUP BY job_id, of_element
"""
