"""When phases waited and when somebody held them, read from their records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from admission.jobs.history import HELD, RELEASED_HOLD
from admission.jobs.models import Attempt, JobEvent, Phase

__all__ = ["Spans", "came_in_reach_at", "ended_before", "held_spans", "waiting_spans"]

#: Spans of time, Unix s; what goes on ends at infinity.
Spans: TypeAlias = tuple[tuple[float, float], ...]


def ended_before(rows: Iterable[Phase]) -> dict[int, float]:
    """Return when the last phase that each phase needs ended. One query, if any needs one.

    Not ``queued_at``: that of a phase that was let go and came back is a later one.
    """
    wanted = [row for row in rows if row.needs]
    if not wanted:
        return {}
    found = Phase.objects.filter(job__in={row.job_id for row in wanted}, ended_at__isnull=False)
    ended = {
        (job, name): at.timestamp()
        for job, name, at in found.values_list("job", "name", "ended_at")
        if at is not None
    }
    return {
        row.pk: max((ended.get((row.job_id, name), 0.0) for name in row.needs), default=0.0)
        for row in wanted
    }


def came_in_reach_at(row: Phase) -> float:
    """Return when a phase was first in the queue, but for phases before it, Unix s.

    An element of an array waits for the fleet once it is in reach; before that, for its array. And
    what waited for other jobs does once it no longer does. Its job is read.
    """
    return float(row.request.get("submitted_at", row.job.submitted_at.timestamp()))


def waiting_spans(rows: Sequence[Phase]) -> dict[int, Spans]:
    """Return the spans in which each phase was queued, by id. Two queries.

    It waits from when it could begin, and again from the end of each attempt that was not its last.
    """
    before = ended_before(rows)
    attempts: dict[int, list[tuple[float, float]]] = defaultdict(list)
    found = Attempt.objects.filter(phase__in=[row.pk for row in rows]).order_by("number")
    for phase, begun, ended in found.values_list("phase", "dispatched_at", "ended_at"):
        attempts[phase].append((begun.timestamp(), ended.timestamp() if ended else math.inf))
    return {
        row.pk: _gaps(
            max(came_in_reach_at(row), before.get(row.pk, 0.0)),
            attempts[row.pk],
            row.ended_at.timestamp() if row.ended_at else math.inf,
        )
        for row in rows
        if row.queued_at is not None
    }


def _gaps(begin: float, taken: Iterable[tuple[float, float]], end: float) -> Spans:
    """Return the gaps between the spans ``taken``, from ``begin`` to ``end``."""
    gaps = []
    for first, last in taken:
        gaps.append((begin, first))
        begin = last
    return tuple((first, last) for first, last in (*gaps, (begin, end)) if first < last)


def held_spans(rows: Sequence[Phase]) -> dict[tuple[int, str], Spans]:
    """Return the spans in which somebody held each phase, by job and name. One query."""
    if not rows:
        return {}
    marks: dict[tuple[int, str], list[tuple[str, float]]] = defaultdict(list)
    names: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        names[row.job_id].append(row.name)
    found = JobEvent.objects.filter(job__in=names, kind__in=(HELD, RELEASED_HOLD)).order_by(
        "at", "id"
    )
    for job, phase, kind, at in found.values_list("job", "phase", "kind", "at"):
        for name in [phase] if phase else names[job]:
            marks[job, name].append((kind, at.timestamp()))
    return {key: _spans(each) for key, each in marks.items()}


def _spans(marks: Iterable[tuple[str, float]]) -> Spans:
    spans: list[tuple[float, float]] = []
    begun: float | None = None
    for kind, at in marks:
        if kind == HELD:
            begun = at if begun is None else begun
        elif begun is not None:
            spans.append((begun, at))
            begun = None
    return (*spans, (begun, math.inf)) if begun is not None else tuple(spans)
