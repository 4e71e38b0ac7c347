"""What follows for a lease from a report of its job, and what is then wanted of the job. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from admission.executors.protocol import WorkOutcomeKind
from admission.executors.schedulers.models import Lease
from headroom.schedulers.contract import EndedAs, JobState, SchedulerJob, WantedOfJob

__all__ = ["RUNS", "WAITS", "End", "end_of", "has_started", "wanted_of"]

#: It has begun, and is not over.
RUNS = frozenset({JobState.RUNNING, JobState.SUSPENDED, JobState.ENDING})
#: It has not begun.
WAITS = frozenset({JobState.HELD, JobState.BLOCKED, JobState.RELEASED})
_OUTCOMES = {
    EndedAs.SUCCEEDED: WorkOutcomeKind.SUCCEEDED,
    EndedAs.FAILED: WorkOutcomeKind.FAILED,
    EndedAs.TIMED_OUT: WorkOutcomeKind.TIMED_OUT,
    EndedAs.CANCELLED: WorkOutcomeKind.STOPPED,
    EndedAs.LOST: WorkOutcomeKind.LOST,
}


@dataclass(frozen=True)
class End:
    """How a lease ends, and why in words."""

    outcome: WorkOutcomeKind
    why: str


def has_started(lease: Lease, told: SchedulerJob) -> bool:
    """Say whether the job runs under this very lease."""
    return told.state in RUNS and told.restarts == lease.restarts and told.lease == lease.key


def end_of(lease: Lease, told: SchedulerJob) -> End | None:
    """Return how ``lease`` is over by what is told of its job; None: it goes on."""
    if told.restarts > lease.restarts:
        # Schedulers count it as put back before its nodes have let go of it.
        return None if told.state is JobState.ENDING else _requeued(lease, told)
    if told.state is JobState.ENDED:
        outcome = _OUTCOMES[told.ended_as or EndedAs.LOST]
        return End(outcome, told.why or f"its scheduler says {outcome}")
    if told.state in RUNS:
        if lease.started_at is None and told.lease != lease.key:
            return End(WorkOutcomeKind.WITHDRAWN, "it was started without us")
        return None
    if lease.started_at is not None:
        # It ran, waits, and its scheduler counts no other start: slurmctld lost what it had done.
        return _requeued(lease, told)
    if told.state is JobState.RELEASED:
        return None
    if lease.stop_for:
        return End(WorkOutcomeKind.STOPPED, lease.stop_for)
    if lease.is_late:
        return End(WorkOutcomeKind.WITHDRAWN, "its scheduler did not start it in time")
    return None


def _requeued(lease: Lease, told: SchedulerJob) -> End:
    if lease.stop_for:
        return End(WorkOutcomeKind.STOPPED, lease.stop_for)
    if lease.started_at is None:
        return End(WorkOutcomeKind.WITHDRAWN, told.why or "its scheduler took it back")
    return End(WorkOutcomeKind.LOST, told.why or "its scheduler put it back into the queue")


def wanted_of(lease: Lease, told: SchedulerJob) -> WantedOfJob | None:
    """Return what is wanted of the job of an open lease; None: it is as it should be."""
    if lease.stop_for or lease.is_late:
        if told.state is JobState.RELEASED:
            return WantedOfJob.HOLD
        runs = told.state in (JobState.RUNNING, JobState.SUSPENDED)
        return WantedOfJob.EVICT if runs and lease.stop_for else None
    if told.state is JobState.HELD:
        return WantedOfJob.RUN if lease.released_at is not None else None
    if lease.is_paused is True and told.state is JobState.RUNNING:
        return WantedOfJob.SUSPEND
    if lease.is_paused is False and told.state is JobState.SUSPENDED:
        return WantedOfJob.RESUME
    return None
