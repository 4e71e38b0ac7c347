"""Which of the changes that the solver found can be made to a job."""

from __future__ import annotations

from collections.abc import Iterable

from admission.core.cycle.change import Counterfactual
from admission.jobs.actions import amendment_problems
from admission.jobs.models import Job

__all__ = ["applicable", "applicable_to"]


def applicable(key: str, found: Iterable[Counterfactual]) -> tuple[Counterfactual, ...]:
    """Return those of ``found`` by which the phase ``key`` may be amended, in their order.

    The solver knows nothing of pinned inputs, or of how long a class lets its jobs run. One query,
    and one more for each that was found; none where nothing was.
    """
    found = tuple(found)
    name, _, phase = key.rpartition("/")
    job = Job.objects.filter(name=name).first() if found else None
    return () if job is None else applicable_to(job, phase, found)


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
