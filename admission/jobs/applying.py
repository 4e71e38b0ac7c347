"""Which of the changes that the solver found can be made to a job."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils import timezone

from admission.core.cycle.change import Counterfactual
from admission.jobs import inputs
from admission.jobs.actions import amendment_problems
from admission.jobs.models import Job

__all__ = ["applicable", "applicable_to"]


def applicable(key: str, found: Iterable[Counterfactual]) -> tuple[Counterfactual, ...]:
    """Return those of ``found`` by which the phase ``key`` may be amended, in their order.

    The solver knows nothing of pinned inputs, or of how long a class lets its jobs run. Neither of
    sites at which its inputs were found to differ: those are not offered. One query, and one more
    for each that was found; two more where one names sites, none where nothing was found.
    """
    found = tuple(found)
    name, _, phase = key.rpartition("/")
    job = Job.objects.filter(name=name).first() if found else None
    return () if job is None else applicable_to(job, phase, _fit(job, phase, found))


def _fit(job: Job, phase: str, found: Iterable[Counterfactual]) -> Iterable[Counterfactual]:
    """Return ``found`` without those that name sites, and stand where the phase's inputs differ."""
    found = tuple(found)
    if not any(each.change.sites for each in found):
        return found
    unfit = inputs.unfit(job.phases.filter(name=phase).select_related("job"), timezone.now())
    return [
        each for each in found if not each.change.sites or unfit.isdisjoint(each.placement.sites)
    ]


def applicable_to(
    job: Job, phase: str, found: Iterable[Counterfactual]
) -> tuple[Counterfactual, ...]:
    """Return those of ``found`` by which a job that need not be saved may be amended.

    Those that only say when it starts change nothing.
    """
    return tuple(
        each
        for each in found
        if not each.starts_now or not amendment_problems(job, phase, each.change.as_json())
    )
