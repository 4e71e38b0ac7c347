"""How ``accounts.visibility`` looks jobs up."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from django.db.models import QuerySet, Value

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
        """Those of ``keys`` that are of jobs that ``user`` does not see. One query."""
        visible = Job.objects.visible_to(user).order_by()
        phases = Phase.objects.filter(
            job__name__in={job for job, phase in keys if phase},
            name__in={phase for _, phase in keys if phase},
        ).exclude(job__in=visible)
        jobs = Job.objects.filter(name__in={job for job, phase in keys if not phase})
        hidden = jobs.exclude(pk__in=visible.values("pk")).order_by()
        found = (
            phases.order_by()
            .values_list("job__name", "name")
            .union(hidden.values_list("name", Value("")), all=True)
        )
        return set(found) & set(keys)


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
