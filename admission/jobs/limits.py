"""Limits on the queue by user and by project: how much may wait, and how fast it may come.

:func:`charge` counts a submission and :func:`check` looks at what waits, in the transaction that
inserts the job. The row that ``charge`` writes is locked until that ends, so submissions of one
user, and of one project, come one after the other: none that comes at once with another passes.
:func:`charge_all` and :func:`check_all` do the same for jobs that are inserted together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
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
    "charge_all",
    "check",
    "check_all",
    "check_size",
    "limits_of",
    "member_of",
]

#: The kind of a holder that is a user in a project.
MEMBER = "member"
#: The order of locks, by kind.
_ORDER = {"user": 0, MEMBER: 1, "project": 2}
#: So many seconds' worth of submissions may come at once.
BURST_S = 20.0
#: When what waits may be less, nobody knows: so often it is worth to try again, s.
_TRY_AGAIN_S = 30.0


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
        make_interval(secs => bucket_s) AS bucket
    FROM unnest(%s::text[], %s::bigint[], %s::float8[], %s::float8[])
        AS given (kind, holder, takes_s, bucket_s)
)
INSERT INTO admission_jobs_submissionpace AS pace (kind, holder, full_at)
SELECT kind, holder, clock_timestamp() + takes FROM given
ON CONFLICT (kind, holder) DO UPDATE
SET full_at = greatest(pace.full_at, clock_timestamp()) + (
    SELECT takes FROM given WHERE given.kind = pace.kind AND given.holder = pace.holder
)
WHERE pace.full_at <= clock_timestamp() OR (
    SELECT greatest(pace.full_at, clock_timestamp()) + takes <= clock_timestamp() + bucket
    FROM given WHERE given.kind = pace.kind AND given.holder = pace.holder
)
RETURNING kind, holder
"""
_WAIT = """
SELECT extract(epoch FROM full_at - clock_timestamp())::float8
FROM admission_jobs_submissionpace WHERE kind = %s AND holder = %s
"""


def charge(holders: tuple[Holder, ...], cost: float = 1.0) -> None:
    """Count ``cost`` submissions of each of ``holders``. One query. Raises :class:`OverLimit`.

    Call this in a transaction.
    """
    refused = _charged(dict.fromkeys(holders, cost))
    if refused:
        raise _too_fast(refused[0], cost)


def charge_all(jobs: Iterable[tuple[Holder, ...]]) -> frozenset[Holder]:
    """Count a submission for each job, given as its holders; return those for whom it is too many.

    One query. Call this in a transaction, and undo that where it is too many for any.
    """
    counts = Counter(chain.from_iterable(jobs))
    # One more than a whole bucket would pass where it is full: a single job may be that dear.
    over = [each for each, count in counts.items() if 1 < count > each.limits.burst]
    return frozenset(over or _charged(counts))


def _charged(costs: Mapping[Holder, float]) -> list[Holder]:
    """Count submissions of each holder; return those for whom it is too much. One query."""
    # Locks are taken in one order by all.
    paced = sorted(
        (each for each in costs if not math.isinf(each.limits.submissions_per_s)),
        key=lambda each: (_ORDER[each.kind], each.id),
    )
    if not paced:
        return []
    rates = [each.limits.submissions_per_s for each in paced]
    given: list[list[str] | list[int] | list[float]] = [
        [each.kind for each in paced],
        [each.id for each in paced],
        [costs[each] / rate for each, rate in zip(paced, rates, strict=True)],
        [each.limits.burst / rate for each, rate in zip(paced, rates, strict=True)],
    ]
    with connection.cursor() as cursor:
        cursor.execute(_CHARGE, given)
        passed = set(cursor.fetchall())
    return [each for each in paced if (each.kind, each.id) not in passed]


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


# More than these are not counted.
_FEW = """
SELECT count(*) FROM (
    SELECT FROM admission_jobs_phase WHERE state IN ('waiting', 'queued') LIMIT %s
) AS phase
"""
# OFFSET 0 has the phases of each job looked up by its key. Else Postgres takes those that wait for
# one or two, and reads the index of all open phases anew for each job that waits: 0.1 s of a
# submission where 3,000 of one user do, 7 ms this way, and 13 and 18 ms where 10,000 do.
_WAITING = """
SELECT count(DISTINCT job.id) FILTER (WHERE job.submitted_by = %(user)s),
       count(*) FILTER (WHERE job.submitted_by = %(user)s),
       count(DISTINCT job.id) FILTER (WHERE job.project_id = %(project)s),
       count(*) FILTER (WHERE job.project_id = %(project)s),
       count(DISTINCT job.id) FILTER (
           WHERE job.project_id = %(project)s AND job.submitted_by = %(user)s),
       count(*) FILTER (WHERE job.project_id = %(project)s AND job.submitted_by = %(user)s)
FROM admission_jobs_job AS job CROSS JOIN LATERAL (
    SELECT state FROM admission_jobs_phase WHERE job_id = job.id OFFSET 0
) AS phase
WHERE job.state IN ('queued', 'running') AND phase.state IN ('waiting', 'queued')
  AND (job.submitted_by = %(user)s OR job.project_id = %(project)s)
"""


def check(asked: Asked) -> None:
    """Raise :class:`OverLimit` where one more job is too much for any of its holders.

    Two queries at most. Call this after :func:`charge`, in the same transaction.
    """
    if not _are_few([asked]):
        waiting = waiting_of(asked.user, asked.project_id)
        for holder in asked.holders:
            _check(holder, waiting[holder.kind], asked.phases)


def check_all(jobs: Sequence[Asked]) -> set[int]:
    """Return the places of ``jobs`` that are too much for any of their holders, one after another.

    One query, and where much waits another for each user and project. Call this after
    :func:`charge_all`, in the same transaction.
    """
    if _are_few(jobs):
        return set()
    pairs = {(each.user, each.project_id) for each in jobs}
    found = {pair: waiting_of(*pair) for pair in pairs}
    added: dict[Holder, Waiting] = {}
    over = set()
    for place, each in enumerate(jobs):
        waiting = found[each.user, each.project_id]
        try:
            for holder in each.holders:
                _check(holder, waiting[holder.kind] + added.get(holder, Waiting()), each.phases)
        except OverLimit:
            over.add(place)
            continue
        for holder in each.holders:
            added[holder] = added.get(holder, Waiting()) + Waiting(1, each.phases)
    return over


def _are_few(jobs: Sequence[Asked]) -> bool:
    """Say whether all that waits, of whomever, and ``jobs`` are within each limit. One query.

    So it mostly is, and this costs less than to tell what is whose: that looks at each open job.
    """
    limits = [holder.limits for each in jobs for holder in each.holders]
    least = min(
        (min(each.max_pending_jobs, each.max_pending_phases) for each in limits), default=math.inf
    )
    room = least - sum(each.phases for each in jobs)
    if math.isinf(room):
        return True
    if room < 0:
        return False
    with connection.cursor() as cursor:
        cursor.execute(_FEW, [int(room) + 1])
        return bool(cursor.fetchone()[0] <= room)


def _check(holder: Holder, now: Waiting, phases: int) -> None:
    limits = holder.limits
    for what, limit, used, asked in (
        ("pending_jobs", limits.max_pending_jobs, now.jobs, 1),
        ("pending_phases", limits.max_pending_phases, now.phases, phases),
    ):
        if used + asked > limit:
            raise OverLimit(
                "too_much_waits", holder, what, limit=limit, used=used, asked=asked,
                retry_after_s=_TRY_AGAIN_S,
                hint="there is room as jobs begin, or where you cancel some; an operator can"
                f" raise {_stated_as(holder, what)}",
            )  # fmt: skip


def _stated_as(holder: Holder, what: str) -> str:
    """Return where a limit is stated."""
    if holder.kind == MEMBER:
        return f"{what} in the admission policy"
    return f"max_{what}"


def waiting_of(user: str, project_id: int) -> dict[str, Waiting]:
    """Return the waiting jobs and phases of a user, of a project, and of that user in it.

    One query.
    """
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, {"user": user, "project": project_id})
        jobs, phases, of_project, its_phases, of_both, their_phases = cursor.fetchone()
    return {
        "user": Waiting(jobs, phases),
        "project": Waiting(of_project, its_phases),
        MEMBER: Waiting(of_both, their_phases),
    }
