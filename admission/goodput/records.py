"""What was recorded of GPUs and attempts besides reports, as spans of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import numpy as np
from django.db.models import Q

from admission.core.account import PPM, Cause, GpuSpans, Ints, Shares, Whole, throttled
from admission.core.fleet_account import Onto
from admission.directives.models import Directive
from admission.goodput.steps import times_us
from headroom.contracts import ThrottleCause
from telemetry.models import ThrottleEvent
from telemetry.spans import Span

__all__ = ["caps_of_attempts", "pauses", "spans_of", "throttle"]


def spans_of(rows: Iterable[tuple[int, datetime, datetime | None]], span: Span) -> GpuSpans:
    """Return spans of what has a number. None: it goes on."""
    found = [
        (number, begun.timestamp(), span.end if over is None else over.timestamp())
        for number, begun, over in rows
    ]
    numbers, start, end = zip(*found, strict=True) if found else ((), (), ())
    return GpuSpans(**times_us(numbers, start, end))


def pauses(numbers: Mapping[int, int], span: Span) -> Whole:
    """Return when attempts stood still since they were told to, by number. One query.

    ``numbers`` are those of attempts by their key.
    """
    found = _directives(Directive.Kind.PAUSE, numbers, span)
    return Whole(cause=Cause.PAUSED, **vars(found))


def caps_of_attempts(numbers: Mapping[int, int], span: Span) -> GpuSpans:
    """Return when attempts had been told to draw less, by number. One query."""
    return _directives(Directive.Kind.SET_POWER_CAP, numbers, span)


def _directives(kind: str, numbers: Mapping[int, int], span: Span) -> GpuSpans:
    rows = (
        Directive.objects.filter(
            Q(ended_at=None) | Q(ended_at__gt=span.start_at) | Q(undone_at__gt=span.start_at),
            attempt__in=numbers.keys(), kind=kind, applied_at__lt=span.end_at,
        )
        .order_by()
        .values_list("attempt", "applied_at", "undone_at", "ended_at")
    )  # fmt: skip
    return spans_of(
        (
            (numbers[attempt], begun, undone or ended)
            for attempt, begun, undone, ended in rows
            if begun is not None
        ),
        span,
    )


def throttle(ids: Ints, span: Span, *, is_fleet: bool = False) -> list[Shares]:
    """Return what throttling took of parts, by cause; ``ids`` are those of the parts' GPUs.

    One query. ``is_fleet``: all GPUs are meant, so that they need not be named.
    """
    events = ThrottleEvent.objects.filter(opened_at__lt=span.end_at).touching_since(span.start_at)
    if not is_fleet:
        events = events.filter(gpu__in=np.unique(ids).tolist())
    by_cause: dict[str, list[tuple[int, float, float, int]]] = {}
    for gpu, cause, expected, begun, over, lost, usual in events.order_by().values_list(
        "gpu", "cause", "expected", "opened_at", "updated_at", "lost_mhz_s", "usual_mhz"
    ):
        name = throttled(ThrottleCause(cause), expected=expected)
        start, end = begun.timestamp(), over.timestamp()
        ppm = _lost_ppm(lost / usual if lost and usual else 0.0, end - start)
        by_cause.setdefault(name, []).append((gpu, start, end, ppm))
    by_gpu = [
        Shares(cause=name, ppm=np.array(ppm), **times_us(gpu, start, end))
        for name, found in by_cause.items()
        for gpu, start, end, ppm in (zip(*found, strict=True),)
    ]
    return [*map(Onto(ids).put, by_gpu)]


def _lost_ppm(lost_s: float, length_s: float) -> int:
    """Return the share of its clock that a GPU lost over an event; 0 where it is not known."""
    return round(min(max(lost_s / max(length_s, 1e-6), 0.0), 1.0) * PPM)
