"""Tell the owners of adopted jobs what these have used so far, where they look."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from admission.executors.schedulers import registered
from admission.executors.schedulers.models import SchedulerJob
from admission.jobs.models import Attempt
from admission.learned import energy
from fleet import snapshot
from headroom.jobs.words import lasting
from headroom.schedulers.contract import JobState, SchedulerKind

__all__ = ["account"]

#: What a job has used is told anew after this, or a tenth of the time that it runs for.
_EVERY = timedelta(minutes=10)
_SHARE = 0.1
#: Jobs of one look.
_MOST = 50


def account(now: float) -> int:
    """Have the comments of running jobs say what they used; return how many change.

    No scheduler takes a change to a job that has ended, so what stands there then is some minutes
    old. One query without schedulers; else two, and some for each job that is due.
    """
    if not registered.names():
        return 0
    at = datetime.fromtimestamp(now, UTC)
    running = SchedulerJob.objects.open().filter(
        is_adopted=True, state=JobState.RUNNING, scheduler__kind=SchedulerKind.SLURM
    )
    # Most of them are not due: their reports need not be read for that.
    looked_at = (
        running.exclude(commented_at__gt=at - _EVERY)
        .order_by("commented_at", "pk")
        .only("name", "commented_at")
    )
    attempts = _attempts([row.name for row in looked_at])
    due = [row for row in looked_at if _is_due(row, attempts.get(row.name), at)][:_MOST]
    for row in due:
        row.comment, row.commented_at = _said(attempts[row.name], now), at
        row.is_comment_new = True
    SchedulerJob.objects.bulk_update(due, ["comment", "commented_at", "is_comment_new"])
    return len(due)


def _attempts(names: list[str]) -> Mapping[str, Attempt]:
    rows = Attempt.objects.open().filter(phase__job__name__in=names, started_at__isnull=False)
    return {row.phase.job.name: row for row in rows.select_related("phase__job")}


def _is_due(row: SchedulerJob, attempt: Attempt | None, at: datetime) -> bool:
    if attempt is None or attempt.started_at is None:
        return False
    told_at = max(row.commented_at or attempt.started_at, attempt.started_at)
    return at - told_at >= max(_EVERY, _SHARE * (at - attempt.started_at))


def _said(attempt: Attempt, now: float) -> str:
    """Return where an attempt runs, and what its GPUs have used."""
    where = f"admitted on {','.join(attempt.placement['nodes'])}"[:300]
    found = energy.of_attempt(attempt, snapshot.current(), now)
    if found.used_j is None or attempt.started_at is None:
        return f"{where}; its GPUs are not read"
    ran = lasting(now - attempt.started_at.timestamp())
    used = f"its GPUs have used {found.used_j / 3.6e6:,.3g} kWh in {ran}"
    return f"{where}; {used}, {100 * found.share:.0f} % of that read"
