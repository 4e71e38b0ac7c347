"""One attempt on one time axis: power and heat of its GPUs, throttling, directives, history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from admission.directives.models import Directive
from admission.jobs.models import Attempt, JobEvent
from dashboard import jobs, units
from dashboard.incidents import Chart, ChartRow
from dashboard.svg import axis, spans
from dashboard.svg.axis import Axis, Moment, Span
from fleet.snapshot import FleetArrays
from headroom.contracts import ThrottleCause
from policies.rules.words import spoken
from telemetry import series
from telemetry.models import ThrottleEvent
from telemetry.series import Kind, Members, SeriesRequest, Tier
from telemetry.spans import ParameterError

_POINTS = 240
_LEAST_SPAN = timedelta(minutes=10)
#: Drawn before it was dispatched and after it ended.
_AROUND = timedelta(minutes=1)
#: With more readings than this, roll-ups by the minute are drawn.
_MOST_READINGS = 100_000
_CADENCE_S = 10.0
_MOST_THROTTLES = 2000


@dataclass(frozen=True, slots=True)
class _Measure:
    """A row of readings: a field, the field of its limit or nothing, words, unit and factor."""

    field: str
    limit: str
    words: str
    unit: str
    factor: float = 1.0


_MEASURES = (
    _Measure("gpu_power_w", "power_limit_w", "power of its GPUs", "W"),
    _Measure("temp_c", "temp_limit_c", "hottest GPU", "°C"),
    _Measure("sm_mhz", "", "SM clock, mean", "MHz"),
    _Measure("util", "", "use, mean", "%", 0.01),
    _Measure("nvlink_tx", "", "NVLink sent", "bit/s", 8.0),
    _Measure("pcie_tx", "", "PCIe sent", "bit/s", 8.0),
)


def members(fleet: FleetArrays, gpus: Mapping[str, Sequence[int]]) -> Members:
    """Return the GPUs of a placement, by id, as far as the inventory still has them."""
    found: dict[int, int] = {}
    for node, indexes in gpus.items():
        for index in indexes:
            row = fleet.gpu_index_by_node.get((node, index))
            if row is not None:
                node_id = int(fleet.nodes.ids[fleet.gpus.node[row]])
                found[int(fleet.gpus.ids[row])] = node_id
    return Members(gpus=found)


def chart(
    attempt: Attempt,
    directives: Sequence[Directive],
    events: Sequence[JobEvent],
    fleet: FleetArrays,
    now: datetime,
) -> Chart:
    """Return readings, throttling, directives and history, below each other. Up to ten queries."""
    end = min(now, (attempt.ended_at or now) + _AROUND)
    start = min(attempt.dispatched_at - _AROUND, end - _LEAST_SPAN)
    at = Axis(start.timestamp(), end.timestamp()).steady()
    its = members(fleet, attempt.placement.get("gpus", {}))
    drawn = [
        _attempt_row(attempt, at),
        *_reading_rows(its, at, now),
        *_throttle_row(its, at),
        *_directive_rows([each for each in directives if each.attempt_id == attempt.pk], at),
        *_event_row(events, at),
    ]
    return Chart(at, drawn)


def _attempt_row(attempt: Attempt, at: Axis) -> ChartRow:
    ended = attempt.ended_at.timestamp() if attempt.ended_at else None
    dispatched, started = attempt.dispatched_at.timestamp(), attempt.started_at
    began = started.timestamp() if started else ended
    bars = [Span(dispatched, began, "pending", "let go, not begun everywhere yet")]
    state = attempt.outcome or attempt.state
    if started:
        bars.append(
            Span(started.timestamp(), ended, "active", f"attempt {attempt.number}: {state}")
        )
    label = f"attempt {attempt.number}: {state}"
    return ChartRow(f"attempt {attempt.number}", "", axis.spans(at, bars, label), state)


# --- Readings ------------------------------------------------------------------------------------


def _reading_rows(its: Members, at: Axis, now: datetime) -> list[ChartRow]:
    found = _readings(its, at, now) if its.gpus else {}
    times = [value or 0.0 for value in found.get("t", [])]
    rows = []
    for measure in _MEASURES:
        values = _scaled(found.get(measure.field, []), measure.factor)
        known = [value for value in values if value is not None]
        if not known or max(known) <= 0:
            continue
        limits = _scaled(found.get(measure.limit, []), measure.factor)
        rows.append(_reading_row(measure, at, times, values, limits, known))
    return rows


def _reading_row(
    measure: _Measure,
    at: Axis,
    times: Sequence[float],
    values: Sequence[float | None],
    limits: Sequence[float | None],
    known: Sequence[float],
) -> ChartRow:
    span = " to ".join(dict.fromkeys(spoken(f(known), measure.unit) for f in (min, max)))
    given = [("line", values)]
    caps = [value for value in limits if value is not None]
    if caps:
        given.append(("limit", limits))
        span += f", limit {spoken(caps[-1], measure.unit)}"
    svg = axis.lines(at, times, given, f"{measure.words}: {span}")
    return ChartRow(measure.words, "", svg, span)


def _scaled(values: Sequence[float | None], factor: float) -> list[float | None]:
    return [None if value is None else value * factor for value in values]


def _readings(its: Members, at: Axis, now: datetime) -> Mapping[str, list[float | None]]:
    many = len(its.gpus) * (at.end - at.start) / _CADENCE_S > _MOST_READINGS
    wanted = SeriesRequest(
        kind=Kind.NODE,
        id=0,
        fields=tuple(name for each in _MEASURES for name in (each.field, each.limit) if name),
        start=at.start,
        end=at.end,
        points=_POINTS,
        tier=Tier.MINUTE if many else None,
    )
    try:
        return series.query_members(wanted, its, now.timestamp()).columns
    except ParameterError:
        # So many GPUs for so long: a chart of it would read millions of rows.
        return {}


# --- What was done to it -------------------------------------------------------------------------


def _throttle_row(its: Members, at: Axis) -> Iterator[ChartRow]:
    start, end = (datetime.fromtimestamp(unix, UTC) for unix in (at.start, at.end))
    found = list(
        ThrottleEvent.objects.overlapping(start, end)
        .filter(gpu__in=list(its.gpus))
        .order_by("-opened_at")
        .values_list("cause", "opened_at", "closed_at")[:_MOST_THROTTLES]
    )
    if not found:
        return
    bars = [
        spans.Bar(ThrottleCause(cause), opened.timestamp(), closed.timestamp() if closed else None)
        for cause, opened, closed in found
    ]
    words = ", ".join(sorted({bar.cause.token for bar in bars}))
    count = units.count(len(bars), "event")
    svg = spans.row(bars, at.start, at.end, f"throttling: {count}, {words}")
    yield ChartRow("throttling", "", svg, words)


def _directive_rows(given: Sequence[Directive], at: Axis) -> Iterator[ChartRow]:
    by_kind: dict[str, list[Directive]] = {}
    for row in given:
        by_kind.setdefault(row.get_kind_display().lower(), []).append(row)
    for kind, rows in by_kind.items():
        bars = [_lease(row) for row in rows]
        words = jobs.asked(rows[0])
        svg = axis.spans(at, bars, f"{kind}: {units.count(len(rows), 'directive')}")
        yield ChartRow(kind, "", svg, words)


def _lease(row: Directive) -> Span:
    """Return the span in which a directive was in force; one that is done once is a short bar."""
    end = row.ended_at or (None if row.is_lasting else row.applied_at or row.issued_at)
    title = f"{jobs.asked(row)}, {row.outcome or row.state}, by {row.owner}: {row.reason}"
    return Span(row.issued_at.timestamp(), end.timestamp() if end else None, "restrict", title)


def _event_row(events: Sequence[JobEvent], at: Axis) -> Iterator[ChartRow]:
    here = [event for event in events if at.start <= event.at.timestamp() <= at.end]
    if here:
        marks = [
            Moment(event.at.timestamp(), "step", f"{event.kind}: {event.text[:200]}")
            for event in here
        ]
        size = units.count(len(here), "entry", "entries")
        yield ChartRow("history", "", axis.moments(at, marks, f"history: {size}"), size)
