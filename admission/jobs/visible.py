"""How ``accounts.visibility`` looks jobs up."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from django.db.models import QuerySet

from accounts.models import User
from accounts.visibility import Visibility
from admission.jobs.models import Job, Phase
from admission.queue.queue_status import PendingStatus, ReasonLine

__all__ = ["JobsOfProjects", "pending_status", "reasons"]


class JobsOfProjects:
    def names_of(self, user: User) -> QuerySet[Any]:
        """The names of the jobs that ``user`` sees."""
        return Job.objects.visible_to(user).order_by().values_list("name", flat=True)

    def of_others(self, user: User, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of ``keys`` that are phases of jobs that ``user`` does not see. One query."""
        phases = Phase.objects.filter(
            job__name__in={job for job, _ in keys}, name__in={phase for _, phase in keys}
        ).exclude(job__in=Job.objects.visible_to(user))
        return set(phases.order_by().values_list("job__name", "name")) & set(keys)


def reasons(lines: Iterable[ReasonLine], visibility: Visibility) -> list[ReasonLine]:
    """Return reasons as the reader may see them. One query at most."""
    return visibility.veiled(lines, "sentence", "evidence")


def pending_status(found: PendingStatus, visibility: Visibility) -> PendingStatus:
    """Return the status of a phase as the reader may see it. Two queries at most."""
    return msgspec.structs.replace(
        found,
        reasons=tuple(reasons(found.reasons, visibility)),
        trace=tuple(visibility.veiled(found.trace, "sentence")),
    )
