"""How ``accounts.visibility`` looks jobs up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from django.db.models import QuerySet, Value

from accounts.models import User
from accounts.visibility import Visibility, named_in, without_names
from admission.jobs.models import Job, JobQuerySet, Phase, PhaseQuerySet
from admission.queue.queue_status import PendingStatus, ReasonLine

__all__ = ["JobsOfProjects", "pending_status", "reasons", "to_projects"]

_Key = tuple[str, str]


class JobsOfProjects:
    def names_of(self, user: User) -> QuerySet[Any]:
        """The names of the jobs that ``user`` sees."""
        return Job.objects.visible_to(user).order_by().values_list("name", flat=True)

    def of_others(self, user: User, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of ``keys`` that are of jobs that ``user`` does not see. One query."""
        visible = Job.objects.visible_to(user).order_by()
        phases, jobs = _named(keys)
        found = (
            phases.exclude(job__in=visible)
            .values_list("job__name", "name")
            .union(
                jobs.exclude(pk__in=visible.values("pk")).values_list("name", Value("")), all=True
            )
        )
        return set(found) & set(keys)


def _named(keys: Collection[_Key]) -> tuple[PhaseQuerySet, JobQuerySet]:
    """Return the phases that ``keys`` may name, and the jobs that they name without a phase."""
    phases = Phase.objects.filter(
        job__name__in={job for job, phase in keys if phase},
        name__in={phase for _, phase in keys if phase},
    )
    jobs = Job.objects.filter(name__in={job for job, phase in keys if not phase})
    return phases.order_by(), jobs.order_by()


def to_projects(texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts about jobs, by job, as they may stand where all of its project read them.

    And perhaps others, of whom nobody knows: no job of another project has a name there. Three
    queries at most, none where no text names any.
    """
    keys = {key for text in texts.values() for key in named_in(text)}
    if not keys:
        return dict(texts)
    phases, jobs = _named(keys)
    owners: dict[_Key, int] = {
        **{
            (job, phase): of
            for job, phase, of in phases.values_list("job__name", "name", "job__project")
        },
        **{(job, ""): of for job, of in jobs.values_list("name", "project")},
    }
    mine = dict(Job.objects.filter(name__in=texts).values_list("name", "project"))

    def veiled(job: str, text: str) -> str:
        return without_names(text, lambda key: key in owners and owners[key] != mine.get(job))

    return {job: veiled(job, text) for job, text in texts.items()}


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
