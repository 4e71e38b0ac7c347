"""Sums of the account as rows of a table, with what joins them to ``sacct``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, fields
from typing import Any

from admission.core.fleet_account import CAUSES
from admission.core.program import Work
from admission.executors.schedulers.models import SchedulerJob
from admission.goodput.summing import By, Found
from admission.jobs.models import Attempt

__all__ = ["rows"]

#: What stands before the sums of an attempt.
_OF_ATTEMPT = ("job", "phase", "attempt", "project", "class", "scheduler", "scheduler_job_id")
#: What stands behind them, empty where it is not kept by that key.
_OF_WORK = tuple(each.name for each in fields(Work))


def rows(found: Found) -> Iterator[list[Any]]:
    """Yield the names of columns, then a row for each sum: its key, seconds by cause, and FLOPs.

    By attempt there are its job, and the name and id of the job at the scheduler that ran it, where
    one did: the ``JobID`` of ``sacct``. Two queries then, else none.
    """
    of_attempts = found.asked.by is By.ATTEMPT
    named = _attempts(found) if of_attempts else {}
    yield [*(_OF_ATTEMPT if of_attempts else found.columns), "gpu_s", *CAUSES, *_OF_WORK]
    for key, us in zip(found.keys, found.us, strict=True):
        head = named.get(key[0], ("",) * len(_OF_ATTEMPT)) if of_attempts else key
        work = found.works.get(key)
        tail = astuple(work) if work else ("",) * len(_OF_WORK)
        yield [*head, int(us.sum()) / 1e6, *(each / 1e6 for each in us.tolist()), *tail]


def _attempts(found: Found) -> Mapping[int, tuple[Any, ...]]:
    keys = [key[0] for key in found.keys]
    told = Attempt.objects.filter(pk__in=keys).values_list(
        "pk", "phase__job__name", "phase__name", "number", "phase__job__project__name",
        "phase__job__job_class", "executor",
    )  # fmt: skip
    listed = list(told)
    # A job that is put back keeps its id; one that was moved has one at each scheduler.
    known = SchedulerJob.objects.filter(name__in={row[1] for row in listed}).order_by("pk")
    ids = {
        (name, scheduler): ref
        for name, scheduler, ref in known.values_list("name", "scheduler__name", "ref")
    }
    return {
        pk: (job, phase, number, project, job_class, executor, ids.get((job, executor), ""))
        for pk, job, phase, number, project, job_class, executor in listed
    }
