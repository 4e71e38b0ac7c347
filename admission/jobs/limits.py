"""Limits on the queue by user and by project: how much may wait, and how fast it may come.

:func:`take` counts a submission and looks at what waits, in the transaction that inserts the job.
The row of each holder that it writes is locked until that ends, so submissions of one user, and of
one project, come one after the other: none that comes at once with another passes.
:func:`take_all` does the same for jobs that are inserted together.

To count what waits takes longer, the more jobs are open. So the row of a holder has how much waits
at most: what was counted, and all that was submitted since. Nobody is refused by that: where it is
too much, or was counted some seconds ago, it is counted anew. What went back into the queue since
is seen then.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection

from admission.core.per_user import UserLimit

if TYPE_CHECKING:
    from admission.jobs.models import SubmissionLimits

__all__ = [
    "Asked",
    "Holder",
    "Limits",
    "OverLimit",
    "Waiting",
    "charge",
    "check_size",
    "limits_of",
    "member_of",
    "take",
    "take_all",
    "waiting_of",
]

#: The kind of a holder that is a user in a project.
MEMBER = "member"
#: The order of locks, by kind.
_ORDER = {"user": 0, MEMBER: 1, "project": 2}
#: So many seconds' worth of submissions may come at once.
BURST_S = 20.0
#: The bucket of whom nothing limits so, s: it is never empty.
_ENDLESS_S = 1e6
#: When what waits may be less, nobody knows: so often it is worth to try again, s.
_TRY_AGAIN_S = 30.0
#: What was counted so long ago is counted anew, s.
_COUNTS_FOR_S = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one user, or one project, may have waiting, and submit in a second; inf: no end."""

    max_pending_jobs: float
    max_pending_phases: float
    max_phases_per_job: float
    submissions_per_s: float

    @property
    def burst(self) -> float:
        """Submissions that may come at once."""
        return max(self.submissions_per_s * BURST_S, 1.0)

    @property
    def is_none(self) -> bool:
        """Whether nothing is limited that has to be counted."""
        return math.isinf(
            min(self.submissions_per_s, self.max_pending_jobs, self.max_pending_phases)
        )


@dataclass(frozen=True, slots=True)
class Holder:
    """A user, a project, or a user in a project ("member"), and the limits."""

    kind: str
    id: int
    name: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class Waiting:
    """The waiting jobs and phases of one holder."""

    jobs: int = 0
    phases: int = 0

    def __add__(self, other: Waiting) -> Waiting:
        return Waiting(self.jobs + other.jobs, self.phases + other.phases)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job asks for: ``phases`` are those that it has in the queue at once at most."""

    holders: tuple[Holder, ...]
    user: str
    project_id: int
    phases: int


#: What waits, by user and project.
_Counts = dict[tuple[str, int], Waiting]


class OverLimit(Exception):
    """A submission is over a limit of its user or project.

    ``retry_after_s``: None where it will never be taken as it is.
    """

    def __init__(
        self,
        code: str,
        holder: Holder,
        what: str,
        *,
        limit: float,
        used: float,
        asked: float,
        retry_after_s: float | None,
        hint: str,
    ) -> None:
        whose = holder.name if holder.kind == MEMBER else f"{holder.kind} {holder.name!r}"
        words = what.replace("_", " ")
        super().__init__(
            f"{whose} may have {limit:g} {words}; it has {used:g}, and this asks for {asked:g}"
        )
        self.code = code
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.numbers = {
            "of": holder.kind, "name": holder.name, "what": what, "limit": limit, "used": used,
            "asked": asked, "retry_after_s": retry_after_s,
        }  # fmt: skip


def limits_of(row: SubmissionLimits | None, kind: str) -> Limits:
    """Return the limits of a user or project: its own where it has any, else those set for all."""
    found: dict[str, Any] = {}
    for each in fields(Limits):
        own = None if row is None else getattr(row, each.name)
        found[each.name] = settings.SUBMISSION_LIMITS[kind][each.name] if own is None else own
    return Limits(**found)


def member_of(project_id: int, project: str, user_id: int, user: str, stated: UserLimit) -> Holder:
    """Return a user in a project, with what the admission policy states for that."""

    def at_most(limit: float | None) -> float:
        return math.inf if limit is None else limit

    limits = Limits(
        max_pending_jobs=at_most(stated.pending_jobs),
        max_pending_phases=at_most(stated.pending_phases),
        max_phases_per_job=math.inf,
        submissions_per_s=at_most(stated.submissions_per_s),
    )
    # Both ids are far below: so each pair has a number of its own.
    return Holder(
        MEMBER, project_id << 32 | user_id, f"user {user!r} in project {project!r}", limits
    )


def check_size(holders: tuple[Holder, ...], phases: int, waiting: int) -> None:
    """Raise :class:`OverLimit` where one job has more phases than any of the holders may have.

    ``waiting``: how many of them are in the queue at once, with all elements of an array.
    """
    split = "split the job" if waiting == phases else "give the array a lower limit, as 0-99%5"
    for holder in holders:
        for what, limit, asked in (
            ("max_phases_per_job", holder.limits.max_phases_per_job, phases),
            ("max_pending_phases", holder.limits.max_pending_phases, waiting),
        ):
            if asked > limit:
                raise OverLimit(
                    "too_many_phases", holder, what.removeprefix("max_"), limit=limit, used=0,
                    asked=asked, retry_after_s=None,
                    hint=f"{split}, or have an operator raise "
                    f"{_stated_as(holder, what.removeprefix('max_'))}",
                )  # fmt: skip


# The bucket is one time: when it will be full again. A submission moves that on by what it takes to
# refill, unless it would then lie further ahead than a whole bucket takes. The clock is read after
# the lock is had, so that nobody is charged for having waited.
_CHARGE = """
WITH given AS (
    SELECT kind, holder, make_interval(secs => takes_s) AS takes,
        make_interval(secs => bucket_s) AS bucket, jobs, phases
    FROM unnest(%s::text[], %s::bigint[], %s::float8[], %s::float8[], %s::int[], %s::int[])
        AS given (kind, holder, takes_s, bucket_s, jobs, phases)
)
INSERT INTO admission_jobs_submissionpace AS pace (kind, holder, full_at)
SELECT kind, holder, clock_timestamp() + takes FROM given
ON CONFLICT (kind, holder) DO UPDATE
SET (full_at, waiting_jobs, waiting_phases) = (
    SELECT greatest(pace.full_at, clock_timestamp()) + takes,
        pace.waiting_jobs + jobs, pace.waiting_phases + phases
    FROM given WHERE given.kind = pace.kind AND given.holder = pace.holder
)
WHERE pace.full_at <= clock_timestamp() OR (
    SELECT greatest(pace.full_at, clock_timestamp()) + takes <= clock_timestamp() + bucket
    FROM given WHERE given.kind = pace.kind AND given.holder = pace.holder
)
RETURNING kind, holder, waiting_jobs, waiting_phases,
    coalesce(counted_at > clock_timestamp() - make_interval(secs => %s), false)
"""
_WAIT = """
SELECT extract(epoch FROM full_at - clock_timestamp())::float8
FROM admission_jobs_submissionpace WHERE kind = %s AND holder = %s
"""


@dataclass(slots=True)
class _Cost:
    """What is charged to a holder: ``waiting`` will wait once it is taken."""

    submissions: float = 0.0
    waiting: Waiting = Waiting()


@dataclass(frozen=True, slots=True)
class _Charged:
    """What became of it. ``at_most`` waits now; None: that is to be counted."""

    refused: Sequence[Holder]
    at_most: Mapping[Holder, Waiting | None]


def charge(holders: tuple[Holder, ...], cost: float) -> None:
    """Count ``cost`` submissions of each of ``holders`` of which nothing is to wait. One query.

    Raises :class:`OverLimit`. Call this in a transaction.
    """
    refused = _charge({holder: _Cost(cost) for holder in holders}).refused
    if refused:
        raise _too_fast(refused[0], cost)


def take(asked: Asked) -> None:
    """Count the submission of a job. Raises :class:`OverLimit` where it is too much for a holder.

    One query, and two more where it is not known how much waits. Call this in the transaction that
    inserts the job.
    """
    charged = _charge(_costs([asked]))
    if charged.refused:
        raise _too_fast(charged.refused[0], 1.0)
    for why in _check_all([asked], charged.at_most).values():
        raise why


def take_all(jobs: Sequence[Asked]) -> set[int]:
    """Count the submissions of jobs; return the places of those that are too much for a holder.

    The first that have room are taken. As many queries as :func:`take` has. Call this in the
    transaction that inserts the jobs, and undo that where any is too much.
    """
    costs = _costs(jobs)
    # One more than a whole bucket would pass where it is full: a single job may be that dear.
    refused = {each for each, cost in costs.items() if 1 < cost.submissions > each.limits.burst}
    if not refused:
        charged = _charge(costs)
        refused = set(charged.refused)
        if not refused:
            return set(_check_all(jobs, charged.at_most))
    return {place for place, each in enumerate(jobs) if not refused.isdisjoint(each.holders)}


def _costs(jobs: Iterable[Asked]) -> dict[Holder, _Cost]:
    found: defaultdict[Holder, _Cost] = defaultdict(_Cost)
    for each in jobs:
        for holder in each.holders:
            found[holder].submissions += 1.0
            found[holder].waiting += Waiting(1, each.phases)
    return found


def _charge(costs: Mapping[Holder, _Cost]) -> _Charged:
    """Charge each holder what it costs. One query."""
    # Locks are taken in one order by all.
    counted = sorted(
        (each for each in costs if not each.limits.is_none),
        key=lambda each: (_ORDER[each.kind], each.id),
    )
    if not counted:
        return _Charged((), {})
    rates = [each.limits.submissions_per_s for each in counted]
    given: list[list[str] | list[int] | list[float] | float] = [
        [each.kind for each in counted],
        [each.id for each in counted],
        [costs[each].submissions / rate for each, rate in zip(counted, rates, strict=True)],
        [
            _ENDLESS_S if math.isinf(rate) else each.limits.burst / rate
            for each, rate in zip(counted, rates, strict=True)
        ],
        [costs[each].waiting.jobs for each in counted],
        [costs[each].waiting.phases for each in counted],
        _COUNTS_FOR_S,
    ]
    with connection.cursor() as cursor:
        cursor.execute(_CHARGE, given)
        passed = {
            (kind, holder): Waiting(jobs, phases) if is_known else None
            for kind, holder, jobs, phases, is_known in cursor.fetchall()
        }
    return _Charged(
        refused=[each for each in counted if (each.kind, each.id) not in passed],
        at_most={each: passed.get((each.kind, each.id)) for each in counted},
    )


def _too_fast(holder: Holder, cost: float) -> OverLimit:
    limits = holder.limits
    with connection.cursor() as cursor:
        cursor.execute(_WAIT, [holder.kind, holder.id])
        full_in_s = max(float(cursor.fetchone()[0]), 0.0)
    rate = limits.submissions_per_s
    wait_s = full_in_s + cost / rate - limits.burst / rate
    return OverLimit(
        "too_many_submissions", holder, "submissions_at_once", limit=limits.burst,
        used=round(full_in_s * rate, 1), asked=cost, retry_after_s=max(math.ceil(wait_s), 1),
        hint=f"{rate:g} more are taken each second; a dry run counts as one for each phase",
    )  # fmt: skip


# OFFSET 0 has the phases of each job looked up by its key. Else Postgres takes those that wait for
# one or two, and reads the index of all open phases anew for each job that waits: 0.1 s of a
# submission where 3,000 of one user do, 7 ms this way, and 13 and 18 ms where 10,000 do.
_WAITING = """
SELECT job.submitted_by, job.project_id, count(DISTINCT job.id), count(*)
FROM admission_jobs_job AS job CROSS JOIN LATERAL (
    SELECT state FROM admission_jobs_phase WHERE job_id = job.id OFFSET 0
) AS phase
WHERE job.state IN ('queued', 'running') AND phase.state IN ('waiting', 'queued')
  AND (job.submitted_by = ANY(%s) OR job.project_id = ANY(%s))
GROUP BY job.submitted_by, job.project_id
"""
_NOTE = """
UPDATE admission_jobs_submissionpace AS pace
SET waiting_jobs = given.jobs, waiting_phases = given.phases, counted_at = clock_timestamp()
FROM unnest(%s::text[], %s::bigint[], %s::int[], %s::int[]) AS given (kind, holder, jobs, phases)
WHERE pace.kind = given.kind AND pace.holder = given.holder
"""


def _check_all(
    jobs: Sequence[Asked], at_most: Mapping[Holder, Waiting | None]
) -> dict[int, OverLimit]:
    """Return why jobs are too much for a holder, one after another, by their places.

    ``at_most``: what waits with all of them. No query where that is within the limits, else two.
    """
    to_count = {
        holder
        for holder, waiting in at_most.items()
        if waiting is None or not _has_room(holder.limits, waiting)
    }
    if not to_count:
        return {}
    waits = _counted(jobs, to_count)
    over = {}
    for place, each in enumerate(jobs):
        mine = [holder for holder in each.holders if holder in to_count]
        why = next(filter(None, (_why_not(one, waits[one], each.phases) for one in mine)), None)
        if why is not None:
            over[place] = why
            continue
        for one in mine:
            waits[one] += Waiting(1, each.phases)
    _note(waits)
    return over


def _has_room(limits: Limits, waiting: Waiting) -> bool:
    return waiting.jobs <= limits.max_pending_jobs and waiting.phases <= limits.max_pending_phases


def _counted(jobs: Iterable[Asked], holders: Collection[Holder]) -> dict[Holder, Waiting]:
    """Count what waits of those of ``holders`` that ``jobs`` have. One query."""
    pairs = {one: each for each in jobs for one in each.holders if one in holders}
    counts = _counts(
        {each.user for each in pairs.values()}, {each.project_id for each in pairs.values()}
    )
    return {
        one: _waiting_of(counts, one.kind, each.user, each.project_id)
        for one, each in pairs.items()
    }


def _note(waits: Mapping[Holder, Waiting]) -> None:
    """Write down what waits of each, as counted just now. One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            _NOTE,
            [
                [each.kind for each in waits],
                [each.id for each in waits],
                [waiting.jobs for waiting in waits.values()],
                [waiting.phases for waiting in waits.values()],
            ],
        )


def _why_not(holder: Holder, now: Waiting, phases: int) -> OverLimit | None:
    """Say why one more job, with so many phases, is too much for a holder; None: it is not."""
    limits = holder.limits
    for what, limit, used, asked in (
        ("pending_jobs", limits.max_pending_jobs, now.jobs, 1),
        ("pending_phases", limits.max_pending_phases, now.phases, phases),
    ):
        if used + asked > limit:
            return OverLimit(
                "too_much_waits", holder, what, limit=limit, used=used, asked=asked,
                retry_after_s=_TRY_AGAIN_S,
                hint="there is room as jobs begin, or where you cancel some; an operator can"
                f" raise {_stated_as(holder, what)}",
            )  # fmt: skip
    return None


def _stated_as(holder: Holder, what: str) -> str:
    """Return where a limit is stated."""
    if holder.kind == MEMBER:
        return f"{what} in the admission policy"
    return f"max_{what}"


def waiting_of(user: str, project_id: int) -> dict[str, Waiting]:
    """Return the waiting jobs and phases of a user, of a project, and of that user in it.

    One query.
    """
    counts = _counts({user}, {project_id})
    return {kind: _waiting_of(counts, kind, user, project_id) for kind in _ORDER}


def _counts(users: Collection[str], project_ids: Collection[int]) -> _Counts:
    """Count what waits of ``users`` anywhere, and of anybody in projects. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, [list(users), list(project_ids)])
        return {
            (user, project_id): Waiting(jobs, phases)
            for user, project_id, jobs, phases in cursor.fetchall()
        }


def _waiting_of(counts: _Counts, kind: str, user: str, project_id: int) -> Waiting:
    return sum(
        (
            waiting
            for (whose, where), waiting in counts.items()
            if kind == "project" or whose == user
            if kind == "user" or where == project_id
        ),
        Waiting(),
    )
