"""The events that objectives time, read from jobs, their phases and attempts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from django.db.models import Q

from admission.jobs import checkpoints
from admission.jobs.models import Attempt, Phase
from admission.jobs.past import Spans, came_in_reach_at, ended_before, held_spans
from admission.slos.budget import SPANS_S
from admission.slos.document import Measure
from admission.slos.judging import Event

__all__ = ["PIECE_S", "events"]

#: Of each piece of time of this length one moment is judged: the shortest span of burn rates.
PIECE_S = min(SPANS_S.values())

#: Attempts that ended so were cut short by no fault of theirs.
_CUT_SHORT = (Attempt.Outcome.PREEMPTED, Attempt.Outcome.LOST)


def events(measure: Measure, since: datetime, oldest: datetime, now: datetime) -> list[Event]:
    """Return the events of one kind that are still waited for, or were over since ``since``.

    What began before ``oldest`` is left out. Losses are those of ``now``. At most five queries.
    """
    if measure is Measure.CROSS_SITE_LOSS:
        return _losses(now)
    if measure is Measure.START:
        return _starts(since, oldest)
    found = _resumes(since, oldest)
    return [event for event in found if event.at_all_sites or measure is Measure.RESUME]


# --- Starts --------------------------------------------------------------------------------------

#: What is read of a start: the specification of a job takes longer than all else of it.
_READ = (
    "name", "needs", "request", "started_at", "ended_at", "job__name", "job__submitted_at",
    "job__job_class", "job__project__name",
)  # fmt: skip


def _starts(since: datetime, oldest: datetime) -> list[Event]:
    waits = Q(started_at=None)
    rows = list(
        Phase.objects.filter(
            Q(started_at__gte=since)
            | (waits & Q(state=Phase.State.QUEUED))
            | (waits & Q(ended_at__gte=since)),
            job__submitted_at__gte=oldest,
        )
        .select_related("job__project")
        .only(*_READ)
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


# --- Losses --------------------------------------------------------------------------------------


def _losses(now: datetime) -> list[Event]:
    """Return what each phase that runs would lose now by a resume at another site.

    Of whom nobody tells what is at other sites nothing is said.
    """
    running = Attempt.objects.filter(state=Attempt.State.RUNNING, started_at__lte=now)
    attempts = list(running.select_related("phase__job__project"))
    known = checkpoints.of_jobs({each.phase.job.name for each in attempts}, now, counts_for=None)
    ran: dict[int, list[Attempt]] = defaultdict(list)
    phases = [each.phase_id for each in attempts if each.phase.job.name in known]
    for each in Attempt.objects.filter(phase__in=phases, started_at__lte=now):
        ran[each.phase_id].append(each)
    return [
        _loss(attempt, elsewhere, ran[attempt.phase_id], now)
        for attempt in attempts
        if (elsewhere := checkpoints.elsewhere_of(attempt, known.get(attempt.phase.job.name, ())))
    ]


def _loss(
    attempt: Attempt, elsewhere: checkpoints.Elsewhere, ran: Iterable[Attempt], now: datetime
) -> Event:
    phase = attempt.phase
    piece = datetime.fromtimestamp(now.timestamp() // PIECE_S * PIECE_S, UTC)
    return Event(
        key=f"{phase.key}@{piece:%Y-%m-%dT%H:%MZ}",
        begun_at=now.timestamp(),
        over_at=now.timestamp(),
        checkpoint_interval_s=phase.request.get("checkpoint_interval_s"),
        lost_s=_ran_s(ran, elsewhere.saved_at, now),
        sent_in_s=elsewhere.sent_in_s,
        sites=tuple(attempt.placement.get("sites", ())),
        at_all_sites=True,
        **_told(phase),
    )


def _ran_s(attempts: Iterable[Attempt], since: datetime | None, now: datetime) -> float:
    """Return how long attempts have run from ``since`` (None: ever) to ``now``, s."""
    spans = (
        (each.started_at if since is None else max(each.started_at, since), each.ended_at or now)
        for each in attempts
        if each.started_at is not None
    )
    return sum(max((end - start).total_seconds(), 0.0) for start, end in spans)


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
