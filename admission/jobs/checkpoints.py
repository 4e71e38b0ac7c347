"""What keepers have told of the checkpoints of jobs: docs/reference/directives.md#fallback."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from admission.core.response.checkpoints import Known, KnownCheckpoint
from admission.jobs.models import Attempt
from telemetry.models import CheckpointFact

__all__ = ["COUNTS_FOR", "Verified", "known_of", "of_job", "of_jobs", "verified_of"]

#: What was told last so long ago says nothing any more of where checkpoints are.
COUNTS_FOR = timedelta(days=1)


def of_jobs(jobs: Collection[str], now: datetime) -> dict[str, list[CheckpointFact]]:
    """Return what is known of the checkpoints of jobs, by name, sites in order. One query."""
    rows = CheckpointFact.objects.filter(job__in=jobs, received_at__gt=now - COUNTS_FOR)
    found: dict[str, list[CheckpointFact]] = {}
    for row in rows.select_related("site"):
        found.setdefault(row.job, []).append(row)
    return found


def of_job(job: str) -> list[CheckpointFact]:
    """Return all that is known of the checkpoints of a job, however old. One query."""
    return list(CheckpointFact.objects.filter(job=job).select_related("site"))


def known_of(facts: Iterable[CheckpointFact]) -> Known:
    """Return what is known of the checkpoints of one job, by site."""
    return {fact.site.name: _known(fact) for fact in facts}


def _known(fact: CheckpointFact) -> KnownCheckpoint | None:
    if fact.epoch is None or fact.step is None or fact.verified_at is None:
        return None
    return KnownCheckpoint(fact.epoch, fact.step, fact.verified_at.timestamp())


@dataclass(frozen=True)
class Verified:
    """What is verified of the checkpoints that an attempt has written.

    ``saved_at`` is of the latest that is whole anywhere; None: none is yet.
    """

    saved_at: datetime | None


def verified_of(attempt: Attempt, facts: Sequence[CheckpointFact]) -> Verified | None:
    """Return what is verified of an attempt's checkpoints; None: nobody has told since it began."""
    began = attempt.started_at
    if began is None or all(fact.told_at < began for fact in facts):
        return None
    saved = [fact.saved_at for fact in facts if fact.saved_at is not None]
    return Verified(max((at for at in saved if at >= began), default=None))
