"""The events that objectives time, read from jobs, their phases and attempts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

from django.db.models import Q

from admission.jobs.models import Attempt, Phase
from admission.jobs.past import Spans, came_in_reach_at, ended_before, held_spans
from admission.slos.document import Measure
from admission.slos.judging import Event

__all__ = ["events"]

#: Attempts that ended so were cut short by no fault of theirs.
_CUT_SHORT = (Attempt.Outcome.PREEMPTED, Attempt.Outcome.LOST)


def events(measure: Measure, since: datetime, oldest: datetime) -> list[Event]:
    """Return the events of one kind that are still waited for, or were over since ``since``.

    What began before ``oldest`` is left out. At most five queries.
    """
    if measure is Measure.START:
        return _starts(since, oldest)
    found = _resumes(since, oldest)
    return [event for event in found if event.at_all_sites or measure is Measure.RESUME]


# --- Starts --------------------------------------------------------------------------------------


def _starts(since: datetime, oldest: datetime) -> list[Event]:
    waits = Q(started_at=None)
    rows = list(
        Phase.objects.filter(
            Q(started_at__gte=since)
            | (waits & Q(state=Phase.State.QUEUED))
            | (waits & Q(ended_at__gte=since)),
            job__submitted_at__gte=oldest,
        ).select_related("job__project")
    )
    before, held = ended_before(rows), held_spans(rows)
    return [
        Event(
            key=row.key,
            begun_at=max(came_in_reach_at(row), before.get(row.pk, 0.0)),
            over_at=_seconds(row.started_at),
            dropped_at=_seconds(row.ended_at) if row.started_at is None else None,
            sites=tuple(row.request.get("sites", ())),
            held=held.get((row.job_id, row.name), ()),
            **_told(row),
        )
        for row in rows
    ]


# --- Resumes -------------------------------------------------------------------------------------


def _resumes(since: datetime, oldest: datetime) -> list[Event]:
    cut = Attempt.objects.filter(outcome__in=_CUT_SHORT, ended_at__gte=oldest)
    is_recent = Q(phase__state__in=Phase.OPEN) | Q(phase__ended_at__gte=since)
    phases = Phase.objects.filter(pk__in=cut.filter(is_recent).values("phase"))
    rows = list(phases.select_related("job__project").prefetch_related("attempts"))
    held = held_spans(rows)
    return [
        event
        for row in rows
        for event in _resumes_of(row, held.get((row.job_id, row.name), ()))
        if (event.over_at is None or event.over_at >= since.timestamp())
        and event.begun_at >= oldest.timestamp()
    ]


def _resumes_of(phase: Phase, held: Spans) -> Iterator[Event]:
    """Yield one event for each attempt that was cut short."""
    attempts = sorted(phase.attempts.all(), key=lambda attempt: attempt.number)
    ran = [each for each in attempts if each.started_at is not None]
    for last, following in pairwise([*ran, None]):
        if last is None or last.outcome not in _CUT_SHORT or last.ended_at is None:
            continue
        here = tuple(last.placement.get("sites", ()))
        there = tuple(following.placement.get("sites", ())) if following else ()
        crosses = bool(there) and not set(here) & set(there)
        yield Event(
            key=last.key,
            begun_at=last.ended_at.timestamp(),
            over_at=_seconds(following.started_at) if following else None,
            dropped_at=_seconds(phase.ended_at) if following is None else None,
            checkpoint_interval_s=phase.request.get("checkpoint_interval_s"),
            sites=(*here, *there) if crosses else tuple(phase.request.get("sites", ())),
            at_all_sites=crosses,
            held=held,
            **_told(phase),
        )


# --- Shared --------------------------------------------------------------------------------------


def _told(phase: Phase) -> dict[str, Any]:
    job = phase.job
    return {
        "job": job.name,
        "phase": phase.name,
        "job_class": job.job_class,
        "project": job.project.name,
    }


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
