"""Phases begin and end: the consequences for their jobs, and for the phases after them.

Call these within the transaction that writes the attempt. Rows of jobs are locked first, then
those of their phases: who does so too never waits in a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from django.db.models import Q

from admission.jobs import history, needs
from admission.jobs.graph import Step, following, job_state
from admission.jobs.models import Job, JobEvent, Phase

__all__ = ["lock", "lock_all", "phase_ended", "phases_began", "settle"]


def lock(job_id: int) -> Job:
    """Return a job that nobody else changes until the transaction ends."""
    return Job.objects.select_for_update().get(pk=job_id)


def lock_all(job_ids: Collection[int]) -> dict[int, Job]:
    """Return several as :func:`lock` does, by key. One query."""
    found = Job.objects.select_for_update().filter(pk__in=job_ids).order_by("pk")
    return {job.pk: job for job in found}


def phases_began(phases: Iterable[Phase]) -> None:
    """Mark the jobs of phases that were dispatched as running. One query."""
    ids = {phase.job_id for phase in phases}
    Job.objects.filter(pk__among=ids, state=Job.State.QUEUED).update(state=Job.State.RUNNING)


def phase_ended(
    phase: Phase, state: Phase.State, now: datetime, why: str = "", *, job: Job | None = None
) -> None:
    """Write down that a phase is over, with all consequences. Its attempts are the caller's.

    A phase that is over already stays as it ended. ``job``: its own, where it is locked already.
    """
    job = job or lock(phase.job_id)
    over = Phase.ended(state, now)
    rows = Phase.objects.open().filter(pk=phase.pk)
    if not rows.update(**over):
        return
    for name, value in over.items():
        setattr(phase, name, value)
    text = f"{phase.name} {state.label.lower()}" + (f": {why}" if why else "")
    told = history.event(job.pk, history.ENDED, text, now, phase=phase.name, state=state.value)
    settle(job, now, element=phase.element, told=[told])


def settle(
    job: Job, now: datetime, *, element: int | None = None, told: Sequence[JobEvent] = ()
) -> None:
    """Bring a locked job, and its waiting phases, to the states that follow from the others.

    Of an array: the phases of ``element``, if it is given. Phases need none of other elements.
    What was ``told`` before is written down with what follows from it.
    """
    rows = {row.name: row for row in job.phases.filter(element=element)}
    kept = needs.kept(job, element)
    events = [
        _moved(job, rows[name], state, now, rows)
        for name, state in following(_steps(rows, kept)).items()
    ]
    state = job_state(_steps(rows)) if job.elements is None else _array_state(job, job.elements)
    if state != job.state:
        events += _job_moved(job, state, now)
    JobEvent.objects.bulk_create([*told, *events])


def _array_state(job: Job, elements: int) -> str:
    """Return the state of an array. Two queries, a third where all is over."""
    if job.elements_reached < elements or job.phases.open().exists():
        if job.state == Job.State.RUNNING:
            return job.state
        has_begun = Q(started_at__isnull=False) | Q(state__in=Phase.ACTIVE)
        is_running = job.phases.filter(has_begun).exists()
        return Job.State.RUNNING if is_running else Job.State.QUEUED
    states = set(job.phases.order_by().values_list("state", flat=True).distinct())
    if job.phases.filter(index=0).count() < elements:
        # Some were given up before they had phases.
        states.add(Phase.State.CANCELLED)
    return job_state(Step("", (), state) for state in states)


def _steps(rows: dict[str, Phase], kept: Collection[int] = ()) -> list[Step]:
    return [
        Step(
            row.name,
            tuple(row.needs),
            row.state,
            has_begun=row.started_at is not None,
            is_kept=row.index in kept,
            is_left_out=row.left_out,
        )
        for row in rows.values()
    ]


_MOVED = ("state", "queued_at", "ended_at", "left_out", "request", "reason", "reason_since")


def _moved(job: Job, row: Phase, state: str, now: datetime, rows: Mapping[str, Phase]) -> JobEvent:
    row.state = state
    needed = [rows[name] for name in row.needs if rows[name].state != Phase.State.SUCCEEDED]
    if state == Phase.State.QUEUED:
        row.queued_at = now
        kind, text = history.UNLOCKED, f"{row.name} may begin: all that it needs has succeeded"
        if needs.has_any(job.spec):
            text = f"{row.name} may begin: all that it needs has come about"
            # It waits for the fleet from here on, not for others.
            row.request = {**row.request, "submitted_at": now.timestamp()}
    else:
        row.ended_at, row.left_out = now, all(each.left_out for each in needed)
        kind, text = history.ENDED, f"{row.name} cancelled: what it needs did not succeed"
    row.reason, row.reason_since = "", None
    row.save(update_fields=_MOVED)
    return history.event(job.pk, kind, text, now, phase=row.name, state=state)


def _job_moved(job: Job, state: str, now: datetime) -> list[JobEvent]:
    job.state = Job.State(state)
    if state in Job.OPEN:
        job.save(update_fields=["state"])
        return []
    job.ended_at = now
    job.save(update_fields=["state", "ended_at"])
    text = f"The job has {job.get_state_display().lower()}" if state != "cancelled" else (
        "The job is cancelled"
    )  # fmt: skip
    return [history.event(job.pk, history.ENDED, text, now, state=state)]
