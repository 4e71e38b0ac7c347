"""Limits on the queue by user and by project: how much may wait, and how fast it may come.

:func:`charge` counts a submission and :func:`check` looks at what waits, in the transaction that
inserts the job. The row that ``charge`` writes is locked until that ends, so submissions of one
user, and of one project, come one after the other: none that comes at once with another passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection

from admission.core.per_user import UserLimit

if TYPE_CHECKING:
    from admission.jobs.models import SubmissionLimits

__all__ = [
    "Holder",
    "Limits",
    "OverLimit",
    "Waiting",
    "charge",
    "check",
    "check_size",
    "limits_of",
    "member_of",
]

#: The kind of a holder that is a user in a project.
MEMBER = "member"
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
INSERT INTO admission_jobs_submissionpace AS pace (kind, holder, full_at)
VALUES (%(kind)s, %(holder)s, clock_timestamp() + make_interval(secs => %(takes_s)s))
ON CONFLICT (kind, holder) DO UPDATE
SET full_at = greatest(pace.full_at, clock_timestamp()) + make_interval(secs => %(takes_s)s)
WHERE greatest(pace.full_at, clock_timestamp()) + make_interval(secs => %(takes_s)s)
    <= clock_timestamp() + make_interval(secs => %(bucket_s)s)
    OR pace.full_at <= clock_timestamp()
RETURNING true
"""
_WAIT = """
SELECT extract(epoch FROM full_at - clock_timestamp())::float8
FROM admission_jobs_submissionpace WHERE kind = %s AND holder = %s
"""


def charge(holders: tuple[Holder, ...], cost: float = 1.0) -> None:
    """Count ``cost`` submissions of each of ``holders``; one query each. Raises :class:`OverLimit`.

    Call this in a transaction. Holders have to come in the same order always.
    """
    for holder in holders:
        rate = holder.limits.submissions_per_s
        if math.isinf(rate):
            continue
        given: dict[str, str | int | float] = {
            "kind": holder.kind, "holder": holder.id, "takes_s": cost / rate,
            "bucket_s": holder.limits.burst / rate,
        }  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute(_CHARGE, given)
            if cursor.fetchone() is None:
                raise _too_fast(holder, cost)


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


def check(holders: tuple[Holder, ...], user: str, project_id: int, phases: int) -> None:
    """Raise :class:`OverLimit` where one more job of ``phases`` is too many for any of ``holders``.

    One query. Call this after :func:`charge`, in the same transaction.
    """
    waiting = waiting_of(user, project_id)
    for holder in holders:
        limits, now = holder.limits, waiting[holder.kind]
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
