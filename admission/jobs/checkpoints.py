"""What keepers have told of the checkpoints of jobs: docs/reference/directives.md#fallback."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from admission.core.response.checkpoints import Known, KnownCheckpoint
from admission.jobs.models import Attempt
from telemetry.models import CheckpointFact

__all__ = [
    "COUNTS_FOR",
    "Elsewhere",
    "Verified",
    "elsewhere_of",
    "known_of",
    "of_job",
    "of_jobs",
    "verified_of",
]

#: What was told last so long ago says nothing any more of where checkpoints are.
COUNTS_FOR = timedelta(days=1)


def of_jobs(
    jobs: Collection[str], now: datetime, *, counts_for: timedelta | None = COUNTS_FOR
) -> dict[str, list[CheckpointFact]]:
    """Return what is known of the checkpoints of jobs, by name, sites in order. One query.

    What was told longer than ``counts_for`` ago is left out; None: nothing is.
    """
    rows = CheckpointFact.objects.filter(job__in=jobs)
    if counts_for is not None:
        rows = rows.filter(received_at__gt=now - counts_for)
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


@dataclass(frozen=True)
class Elsewhere:
    """The latest checkpoint of an attempt's run that is whole at another site than its own.

    Without one ``saved_at`` is None, and ``sent_in_s`` infinite.
    """

    saved_at: datetime | None
    #: from when it was saved until it was verified there, s
    sent_in_s: float


def elsewhere_of(attempt: Attempt, facts: Sequence[CheckpointFact]) -> Elsewhere | None:
    """Return what an attempt could resume from elsewhere; None: nobody has told since it began.

    Neither is anything said where it is not known at which site it runs. What was told stays so
    until something else is told, however long ago that was.
    """
    began, here = attempt.started_at, attempt.placement.get("sites")
    last = max(facts, key=lambda fact: fact.told_at, default=None)
    if not here or began is None or last is None or last.told_at < began:
        return None
    there = [fact for fact in facts if fact.run == last.run and fact.site.name not in here]
    if not there:
        return None
    saved = [(fact.saved_at, _sent_in_s(fact)) for fact in there if fact.saved_at is not None]
    return Elsewhere(*max(saved)) if saved else Elsewhere(None, math.inf)


def _sent_in_s(fact: CheckpointFact) -> float:
    """Return how long a checkpoint took to get there; clocks of two places may differ."""
    if fact.saved_at is None or fact.verified_at is None:
        return math.inf
    return max((fact.verified_at - fact.saved_at).total_seconds(), 0.0)
