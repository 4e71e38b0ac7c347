"""The Throttle events page: filters from its URL, counts, the timeline's rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Count, F, Max, Min, QuerySet
from django.urls import reverse
from django.utils.safestring import SafeString

from dashboard import causes, ranges, units
from dashboard.causes import Cause
from dashboard.ranges import RangePicker
from dashboard.svg import spans
from dashboard.svg.spans import Bar
from dashboard.throttle_groups import By
from headroom.contracts import ThrottleCause
from telemetry.lemons.models import LemonFinding
from telemetry.models import ThrottleEvent, ThrottleEventQuerySet
from telemetry.spans import Span
from telemetry.throttle.rules import Severity

DEFAULT_RANGE = "6h"
#: Rows of the timeline, and the events that it draws of them at most.
_ROWS = 12
_MOST_BARS = 5000
#: Racks that the answer names.
_PLACES = 3


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters in the URL. Empty: all. ``by`` filters nothing: it says what a row stands for."""

    picker: RangePicker
    by: By = By.RACK
    cause: ThrottleCause | None = None
    class_: ThrottleEvent.Class | None = None
    severity: Severity | None = None
    site: str = ""
    rack: str = ""
    node: str = ""
    open_only: bool = False
    error: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The filters as a query string, without empty ones."""
        given = {
            **ranges.as_params(self.picker),
            "class": self.class_.value if self.class_ else "",
            "severity": self.severity.token if self.severity else "",
            "cause": self.cause.token if self.cause else "",
            "site": self.site,
            "rack": self.rack,
            "node": self.node,
            "open": "1" if self.open_only else "",
            "by": self.by.value if self.by != _usual(self.node) else "",
        }
        return {name: value for name, value in given.items() if value}

    @property
    def narrowed(self) -> bool:
        """Whether anything but the range is filtered."""
        return bool(self.params.keys() - ranges.as_params(self.picker).keys() - {"by"})


def read(params: Mapping[str, str], now: float) -> Filters:
    """Return the filters of a query string. ``error`` names those that are wrong and left out."""
    picker = ranges.read(params, now, DEFAULT_RANGE)
    cause = causes.by_token(params.get("cause", ""))
    classes = {each.value: each for each in ThrottleEvent.Class}
    class_ = classes.get(params.get("class", ""))
    severity = {each.token: each for each in Severity}.get(params.get("severity", ""))
    node = _name(params, "node")
    by = {each.value: each for each in By}.get(params.get("by", _usual(node)))
    found = {"cause": cause, "class": class_, "severity": severity, "by": by}
    wrong = [
        f"there is no {name} {params[name][:40]!r}"
        for name, value in found.items()
        if value is None and params.get(name)
    ]
    return Filters(
        picker=picker,
        by=by or _usual(node),
        cause=cause,
        class_=class_,
        severity=severity,
        site=_name(params, "site"),
        rack=_name(params, "rack"),
        node=node,
        open_only=params.get("open", "") == "1",
        error=picker.error or ", ".join(wrong),
    )


def _usual(node: str) -> By:
    """Return what a row stands for where the URL does not say: the GPUs of a node are few."""
    return By.EVENT if node else By.RACK


def _name(params: Mapping[str, str], field: str) -> str:
    # Postgres refuses NUL in text, and no name has one.
    return params.get(field, "").replace("\0", "").strip()[:400]


def in_scope(filters: Filters) -> ThrottleEventQuerySet:
    """Return the events that pass all filters but the range."""
    events = ThrottleEvent.objects.all()
    if filters.cause:
        events = events.filter(cause=filters.cause)
    if filters.class_:
        events = events.of_class(filters.class_)
    if filters.severity:
        events = events.at_least(filters.severity)
    if filters.site:
        events = events.filter(gpu__node__rack__site__name=filters.site)
    if filters.rack:
        site, _, name = filters.rack.rpartition("/")
        events = events.filter(gpu__node__rack__name=name)
        if site:
            events = events.filter(gpu__node__rack__site__name=site)
    if filters.node:
        events = events.filter(gpu__node__name=filters.node)
    return events.open() if filters.open_only else events


def in_range(filters: Filters) -> ThrottleEventQuerySet:
    """Return the events that pass all filters."""
    span = filters.picker.span
    return in_scope(filters).overlapping(span.start_at, span.end_at)


def one_by_one(events: ThrottleEventQuerySet) -> QuerySet[ThrottleEvent]:
    """Return the rows of events: open ones first, the worst on top, then the newest."""
    return (
        events.with_xids()
        .select_related("gpu__node__rack__site", "job")
        .order_by(
            F("closed_at").desc(nulls_first=True), "expected", "-severity", "-opened_at", "-pk"
        )
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A rack with GPUs that throttle unexpectedly now."""

    name: str
    url: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Now:
    """The GPUs that throttle now, in numbers.

    ``by_severity``, ``by_cause`` and ``places`` are of the unexpected ones, the worst and most
    frequent first; ``worst`` is the one of them that has gone on for longest.
    """

    unexpected: int
    expected: int
    by_severity: list[tuple[Severity, int]]
    by_cause: list[tuple[Cause, int]]
    places: list[Place]
    worst: ThrottleEvent | None
    lemons: int

    @property
    def alarming(self) -> int:
        """The number of GPUs with more than an informational severity."""
        return sum(gpus for severity, gpus in self.by_severity if severity > Severity.INFO)


_GPUS = Count("gpu", distinct=True)


def throttling_now(filters: Filters) -> Now:
    """Return the throttling GPUs within the filters, whatever the range. Seven queries."""
    events = in_scope(filters).open().order_by()
    unexpected = events.of_class(ThrottleEvent.Class.UNEXPECTED)
    expected = events.of_class(ThrottleEvent.Class.EXPECTED)
    by_severity = unexpected.values_list("severity").annotate(gpus=_GPUS).order_by("-severity")
    by_cause = unexpected.values_list("cause").annotate(gpus=_GPUS).order_by("-gpus", "cause")
    worst = unexpected.select_related("gpu__node").order_by("-severity", "opened_at", "pk")
    return Now(
        unexpected=_count(unexpected),
        expected=_count(expected),
        by_severity=[(Severity(severity), gpus) for severity, gpus in by_severity],
        by_cause=[(causes.of(cause), gpus) for cause, gpus in by_cause],
        places=_places(unexpected),
        worst=worst.first(),
        lemons=LemonFinding.objects.open().lemons(),
    )


def _count(events: ThrottleEventQuerySet) -> int:
    found: int = events.aggregate(gpus=_GPUS)["gpus"]
    return found


def _places(unexpected: ThrottleEventQuerySet) -> list[Place]:
    rack = "gpu__node__rack"
    found = (
        unexpected.values_list(rack, f"{rack}__site__name", f"{rack}__name")
        .annotate(gpus=_GPUS, worst=Max("severity"))
        .order_by("-worst", "-gpus", rack)[:_PLACES]
    )
    return [
        Place(f"{site}/{name}", reverse("rack", args=[pk]), gpus)
        for pk, site, name, gpus, _ in found
    ]


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A rack or GPU with its spans."""

    name: str
    url: str
    events: int
    causes: frozenset[ThrottleCause]
    svg: SafeString


def timeline(filters: Filters) -> list[TimelineRow]:
    """Return the rows with the most events: racks, or GPUs where one rack or node is chosen."""
    filters = replace(filters, picker=replace(filters.picker, span=_steady(filters.picker.span)))
    by_gpu = bool(filters.rack or filters.node)
    key = "gpu" if by_gpu else "gpu__node__rack"
    names = ("gpu__node__name", "gpu__index") if by_gpu else (f"{key}__site__name", f"{key}__name")
    events = in_range(filters).order_by()
    busiest = (
        events.values(key, *names)
        .annotate(events=Count("pk"), first=Min("opened_at"))
        .order_by("-events", "first", key)[:_ROWS]
    )
    rows = list(busiest)
    bars = _bars(events, key, [row[key] for row in rows])
    return [
        _row(row[key], [row[name] for name in names], row["events"], bars, filters, by_gpu=by_gpu)
        for row in rows
    ]


def _steady(span: Span) -> Span:
    """Return the span rounded to steps of the drawing, so that it is not drawn anew each second."""
    unit = span.length_s / spans.WIDTH
    start = math.floor(span.start / unit) * unit
    return replace(span, start=start, end=start + span.length_s + unit)


def _bars(events: ThrottleEventQuerySet, key: str, keys: Sequence[int]) -> dict[int, list[Bar]]:
    """Return the bars of each row; of very many events the newest ones."""
    found = events.filter(**{f"{key}__in": keys}).order_by("-opened_at")
    bars: dict[int, list[Bar]] = defaultdict(list)
    fields = found.values_list(key, "cause", "opened_at", "closed_at")[:_MOST_BARS]
    for row, cause, opened, closed in fields:
        bars[row].append(Bar(ThrottleCause(cause), opened.timestamp(), _unix(closed)))
    return bars


def _unix(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _row(
    key: int,
    names: Sequence[str | int],
    events: int,
    bars: dict[int, list[Bar]],
    filters: Filters,
    *,
    by_gpu: bool,
) -> TimelineRow:
    name = f"{names[0]} GPU {names[1]}" if by_gpu else f"{names[0]}/{names[1]}"
    shown = frozenset(bar.cause for bar in bars[key])
    tokens = ", ".join(cause.token for cause in sorted(shown))
    label = f"{name}: {units.count(events, 'event')}, {tokens}"
    span = filters.picker.span
    svg = spans.row(bars[key], span.start, span.end, label)
    url = reverse("gpu" if by_gpu else "rack", args=[key])
    return TimelineRow(name, url, events, shown, svg)
