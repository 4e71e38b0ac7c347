"""What was recorded of GPUs and attempts besides reports, as spans of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

import numpy as np
from django.db.models import Q

from admission.core.account import PPM, Cause, GpuSpans, Ints, Shares, Whole, throttled
from admission.core.fleet_account import Onto
from admission.core.restricted import Claims
from admission.directives.models import Directive
from admission.goodput.steps import times_us
from fleet.tables import FleetArrays
from headroom.contracts import LimitState, ThrottleCause
from policies.caps.orders import OWNER as CONTROLLER
from policies.restrictions.kinds import LIMITS, gpus_in
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind, UnknownScope
from telemetry.limits.models import LimitReport
from telemetry.models import ThrottleEvent
from telemetry.spans import Span

__all__ = [
    "IS_LIMIT", "NO_SPANS", "Standing", "Where", "caps_of_attempts", "caps_of_gpus", "claims",
    "controller_caps", "in_force", "joined", "on_scopes", "pauses", "spans_of", "throttle",
]  # fmt: skip

NO_SPANS = GpuSpans(**times_us((), (), ()))
#: Restrictions that agents set on GPUs.
IS_LIMIT = Q(kind__in=LIMITS)


#: A scope, and from when to when something held there, Unix s.
Where: TypeAlias = tuple[Scope, float, float]


class Standing(NamedTuple):
    """A restriction that was in force."""

    id: int
    kind: str
    value: float | None
    where: Where


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


# --- What was in force ---------------------------------------------------------------------------


def caps_of_gpus(fleet: FleetArrays, span: Span) -> GpuSpans:
    """Return when GPUs were under a cap of ours, by row. Two queries."""
    limits = on_scopes((each.where for each in in_force(IS_LIMIT, span)), fleet)
    return joined([limits, controller_caps(fleet, span)])


def in_force(which: Q, span: Span) -> list[Standing]:
    """Return restrictions that were in force in a span. One query."""
    rows = Restriction.objects.filter(
        which, Q(ended_at=None) | Q(ended_at__gt=span.start_at), effect_at__lt=span.end_at,
        expires_at__gt=span.start_at,
    ).order_by()  # fmt: skip
    return [
        Standing(
            pk, kind, value,
            (Scope(ScopeKind(place), name), begun.timestamp(), min(over or ends, ends).timestamp()),
        )
        for pk, kind, value, place, name, begun, over, ends in rows.values_list(
            "pk", "kind", "value", "scope_kind", "scope_name", "effect_at", "ended_at", "expires_at"
        )
        if begun is not None
    ]  # fmt: skip


def on_scopes(found: Iterable[Where], fleet: FleetArrays) -> GpuSpans:
    """Return spans of scopes as spans of the GPUs that are there now, by row."""
    return joined([NO_SPANS, *(_on_scope(each, fleet) for each in found)])


def claims(found: Sequence[Standing], fleet: FleetArrays, first: int = 0) -> Claims:
    """Return the same of restrictions, each numbered by its place, from ``first`` on."""
    spans = [_on_scope(each.where, fleet) for each in found]
    numbers = np.arange(first, first + len(found), dtype=np.int64)
    number = np.repeat(numbers, [each.gpu.size for each in spans])
    return Claims(number=number, **vars(joined([NO_SPANS, *spans])))


def _on_scope(where: Where, fleet: FleetArrays) -> GpuSpans:
    scope, start, end = where
    try:
        there = np.flatnonzero(gpus_in(fleet, scope))
    except UnknownScope:
        return NO_SPANS
    return GpuSpans(**times_us(there, [start] * there.size, [end] * there.size))


def joined(all_: Sequence[GpuSpans]) -> GpuSpans:
    """Return all of several spans."""
    return GpuSpans(
        gpu=np.concatenate([each.gpu for each in all_]),
        start_us=np.concatenate([each.start_us for each in all_]),
        end_us=np.concatenate([each.end_us for each in all_]),
    )


def controller_caps(fleet: FleetArrays, span: Span) -> GpuSpans:
    """Return since when GPUs have the caps of the controller that they have, as agents tell.

    Of caps that were lifted or changed since, agents' last reports do not tell. One query.
    """
    rows = LimitReport.objects.filter(
        limit__startswith=CONTROLLER, state=LimitState.APPLIED, at__lt=span.end_at
    ).values_list("node__name", "gpu_index", "at")
    places = fleet.gpu_index_by_node
    named = ((places.get((node, -1 if gpu is None else gpu)), at) for node, gpu, at in rows)
    return spans_of(((gpu, at, None) for gpu, at in named if gpu is not None), span)
