"""The trace of a job that is over: spans from its submission to its end. Pure.

A job is the root. Below it are its phases, and below each of these its waits in the queue and its
attempts. An attempt has its start, until its command ran on all nodes, and its run. Ids follow from
the job alone, so that whoever makes the trace twice makes the same one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["MOST_SPANS", "AttemptTimes", "JobTimes", "PhaseTimes", "Span", "spans_of"]

#: A trace has no more spans; what is left out is counted on its root.
MOST_SPANS = 2000
_FAILED = ("failed", "lost")

Value = str | int | float


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """One attempt. Times are Unix s; None: it did not get that far."""

    number: int
    dispatched: float
    started: float | None
    ended: float | None
    outcome: str
    why: str
    sites: Sequence[str]
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """One phase, with its attempts in their order. ``queued``: since when it might begin, Unix s.

    None: a phase before it never succeeded.
    """

    name: str
    state: str
    gpus: int
    queued: float | None
    ended: float | None
    attempts: Sequence[AttemptTimes] = ()


@dataclass(frozen=True, slots=True)
class JobTimes:
    """A job that is over. ``key`` tells it from all others, for good."""

    key: str
    name: str
    project: str
    job_class: str
    state: str
    submitted: float
    ended: float
    phases: Sequence[PhaseTimes] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A span of a trace. Times are Unix s; ``parent_id`` is empty at the root."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start: float
    end: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    #: why it failed; None: it did not
    error: str | None = None


def spans_of(job: JobTimes) -> list[Span]:
    """Return the trace of a job, its root first; no more than :data:`MOST_SPANS`."""
    trace_id = _id(job.key, 16)
    below = list(_below(job, trace_id))
    kept = below[: MOST_SPANS - 1]
    about: dict[str, Value] = {
        "headroom.job.name": job.name,
        "headroom.job.project": job.project,
        "headroom.job.class": job.job_class,
        "headroom.job.state": job.state,
    }
    if len(kept) < len(below):
        about["headroom.spans_left_out"] = len(below) - len(kept)
    error = job.state if job.state == "failed" else None
    name = f"job {job.name}"
    return [
        Span(trace_id, _id(job.key, 8), b"", name, job.submitted, job.ended, about, error), *kept
    ]  # fmt: skip


def _below(job: JobTimes, trace_id: bytes) -> Iterator[Span]:
    for phase in job.phases:
        if phase.queued is None:
            continue
        ended = job.ended if phase.ended is None else phase.ended
        key = f"{job.key}/{phase.name}"
        about: dict[str, Value] = {
            "headroom.phase.name": phase.name,
            "headroom.phase.state": phase.state,
            "headroom.phase.gpus": phase.gpus,
        }
        error = phase.state if phase.state == "failed" else None
        yield Span(
            trace_id, _id(key, 8), _id(job.key, 8), f"phase {phase.name}", phase.queued, ended,
            about, error,
        )  # fmt: skip
        yield from _waits(phase, trace_id, key, ended)
        for attempt in phase.attempts:
            yield from _attempt(attempt, trace_id, key, ended)


def _waits(phase: PhaseTimes, trace_id: bytes, key: str, ended: float) -> Iterator[Span]:
    """Yield the waits of a phase: before each attempt, or until its end where there was none."""
    since = phase.queued
    for number, until in enumerate([*(each.dispatched for each in phase.attempts), ended], 1):
        is_last = number > len(phase.attempts)
        if since is not None and until > since and not (is_last and phase.attempts):
            yield Span(
                trace_id, _id(f"{key}/queue/{number}", 8), _id(key, 8), "queue", since, until
            )
        since = None if is_last else phase.attempts[number - 1].ended


def _attempt(attempt: AttemptTimes, trace_id: bytes, phase: str, ended: float) -> Iterator[Span]:
    key = f"{phase}/{attempt.number}"
    over = ended if attempt.ended is None else attempt.ended
    about: dict[str, Value] = {
        "headroom.attempt.number": attempt.number,
        "headroom.attempt.outcome": attempt.outcome,
        "headroom.attempt.sites": ",".join(attempt.sites),
        "headroom.attempt.nodes": attempt.nodes,
        "headroom.attempt.gpus": attempt.gpus,
    }
    error = (attempt.why or attempt.outcome) if attempt.outcome in _FAILED else None
    yield Span(
        trace_id, _id(key, 8), _id(phase, 8), f"attempt {attempt.number}", attempt.dispatched, over,
        about, error,
    )  # fmt: skip
    begun = over if attempt.started is None else attempt.started
    yield Span(trace_id, _id(f"{key}/start", 8), _id(key, 8), "start", attempt.dispatched, begun)
    if attempt.started is not None:
        yield Span(trace_id, _id(f"{key}/run", 8), _id(key, 8), "run", begun, over)


def _id(key: str, length: int) -> bytes:
    return hashlib.sha256(f"{length}:{key}".encode()).digest()[:length]
