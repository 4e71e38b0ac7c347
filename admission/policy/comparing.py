"""The decisions of a shadow over the last day, compared with the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from accounts.models import User
from accounts.visibility import Visibility
from admission.jobs.models import Job
from admission.policy.models import AdmissionPolicyVersion, ShadowDecision, ShadowProgress
from admission.policy.shadowing import KEPT

__all__ = ["NOT_RECORDED", "Compared", "compared"]

#: In moments that are reconstructed from records these stand for those of then.
NOT_RECORDED = (
    "machines that run jobs, classes, quotas and shares of projects are those of today",
    "jobs ask for what they ask for today, at their primary sites",
    "an attempt drew what it drew until its end",
)


@dataclass(frozen=True)
class Compared:
    """A shadow compared. Numbers are of all jobs; decisions of those that one may see."""

    since: datetime | None
    asked_at: datetime | None
    cycles: int
    jobs: int
    jobs_otherwise: int
    #: before this moment decisions are reconstructed from records, in steps of so many seconds
    reconstructed_until: datetime | None
    reconstructed_step_s: float | None
    not_recorded: tuple[str, ...]
    #: the newest, as far as was asked for
    decisions: list[ShadowDecision]


def compared(version: AdmissionPolicyVersion, user: User, now: datetime, *, most: int) -> Compared:
    """Return the decisions of ``version`` that differ within the last day. Five queries."""
    progress = ShadowProgress.objects.filter(version=version).first()
    recent = ShadowDecision.objects.filter(version=version, last_at__gte=now - KEPT)
    mine = recent.visible_to(user).select_related("phase__job")[:most]
    # Reasons name those who are ahead.
    decisions = Visibility(user).veiled(mine, "decided", "otherwise")
    if progress is None:
        return Compared(None, None, 0, 0, 0, None, None, (), decisions)
    since = max(progress.since, now - KEPT)
    # What was still open then was looked at, or has begun since.
    looked_at = Job.objects.filter(Q(ended_at=None) | Q(ended_at__gte=since))
    return Compared(
        since=progress.since,
        asked_at=progress.asked_at,
        cycles=progress.cycles,
        jobs=looked_at.filter(submitted_at__lte=progress.asked_at).count(),
        jobs_otherwise=recent.order_by().values("phase__job").distinct().count(),
        reconstructed_until=progress.reconstructed_until,
        reconstructed_step_s=progress.reconstructed_step_s,
        not_recorded=NOT_RECORDED if progress.reconstructed_until else (),
        decisions=decisions,
    )
