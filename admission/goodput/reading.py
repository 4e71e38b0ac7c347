"""What an account of a job goes by: attempts, pauses, throttle events, and what its loop reported.

Reports are by job, not by attempt. They count for an attempt that had the job to itself.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from admission.core.account import PPM, Cause, GpuSpans, Ints, Shares, Whole, account, throttled
from admission.directives.models import Directive
from admission.jobs.models import Attempt, Job
from admission.learned.energy import gpus_of
from fleet import snapshot
from headroom.contracts import ThrottleCause
from telemetry import series
from telemetry.models import ReportedJob, ThrottleEvent
from telemetry.rollups.spec import MAX_GAP_S
from telemetry.series import Kind, Method, SeriesRequest
from telemetry.spans import ParameterError, Span

__all__ = ["AttemptAccount", "JobAccount", "lived", "of_job"]

Floats = NDArray[np.float64]

#: Of a job at most so many attempts are added up at once.
MOST_ATTEMPTS = 1000
#: For each GPU each report has a span of its own: at most about so many in all.
_MOST_SPANS = 400_000
_FIELDS = ("step", "step_time_s", "data_wait_s", "sync_s", "lost_share")
_US = 1e6


@dataclass(frozen=True, slots=True)
class AttemptAccount:
    """Where the time of one attempt's GPUs went, µs by cause: they add up to ``held_us``."""

    phase: str
    number: int
    gpus: int
    causes: Mapping[str, int]
    #: whether its loop reported
    told: bool

    @property
    def held_us(self) -> int:
        return sum(self.causes.values())


@dataclass(frozen=True, slots=True)
class JobAccount:
    """Where the time of a job's GPUs went in a span of time."""

    span: Span
    attempts: tuple[AttemptAccount, ...]

    @property
    def causes(self) -> dict[str, int]:
        """µs by cause, over all attempts."""
        total: dict[str, int] = defaultdict(int)
        for cause, us in itertools.chain.from_iterable(a.causes.items() for a in self.attempts):
            total[cause] += us
        return dict(total)


@dataclass(frozen=True, eq=False)
class _Reports:
    """What a loop reported, one element for each report: its time ``at``, Unix s.

    ``step_s``: they are means over buckets of that width, which begin at ``at``. None: reports as
    they came, which tell of the time before them.
    """

    at: Floats
    step_s: float | None
    fields: Mapping[str, Floats]

    def within(self, start: float, end: float) -> _Told:
        """Return the reports of a span of time, and of which time each of them tells."""
        middle = self.at + 0.5 * (self.step_s or 0.0)
        which = (middle >= start) & (middle <= end)
        at = self.at[which]
        gap_s = np.diff(at)
        if self.step_s is None:
            # The first tells of nothing: the time before it is that of the start.
            first, last = np.concatenate([at[:1], at[:-1]]), at
            first = np.where(last - first <= MAX_GAP_S, first, last)
        else:
            # What has no report of its own is as long as usual between two, or nothing is known.
            joined = np.where(gap_s <= MAX_GAP_S, np.maximum(gap_s, self.step_s), self.step_s)
            first, last = at, at + np.concatenate([joined, np.full(at[-1:].size, self.step_s)])
        fields = {name: values[which] for name, values in self.fields.items()}
        return _Told(np.maximum(first, start), np.minimum(last, end), fields)


@dataclass(frozen=True, eq=False)
class _Told:
    """Reports of one attempt, and the spans of time that they tell of, Unix s."""

    start: Floats
    end: Floats
    fields: Mapping[str, Floats]


def lived(job: Job, now: float) -> Span | None:
    """Return from when to when a job held GPUs, or holds them. None: it never did. One query."""
    rows = Attempt.objects.filter(phase__job=job).order_by()
    held = [(a.timestamp(), b) for a, b in rows.values_list("dispatched_at", "ended_at")]
    if not held:
        return None
    ends = [now if end is None else end.timestamp() for _, end in held]
    start = min(begin for begin, _ in held)
    return Span(start, max(*ends, start + 1.0))


def of_job(job: Job, span: Span, now: float) -> JobAccount:
    """Return where the time of a job's GPUs went in ``span``, as far as it is over.

    Four queries, and those of one or two series of the job's reports. Raises
    :class:`ParameterError` where that is too much.
    """
    span = Span(span.start, min(span.end, now))
    if span.end <= span.start:
        return JobAccount(span, ())
    every = list(Attempt.objects.filter(phase__job=job).select_related("phase").order_by("pk"))
    rows = [row for row in every if _end(row, now) > span.start and _start(row) < span.end]
    if len(rows) > MOST_ATTEMPTS:
        raise ParameterError("from", f"more than {MOST_ATTEMPTS} attempts: ask for a shorter span")
    gpus = {row.pk: sum(map(len, row.placement.get("gpus", {}).values())) for row in rows}
    alone = _alone(every, now)
    has_reports = {row.pk for row in alone}
    reports = _reports(job, span, max([*gpus.values(), 1]), now)
    reached = _reached(job, alone, reports, span, now)
    throttle = _throttle(rows, span)
    pauses = _pauses(rows, span)
    told = {row.pk: _of_attempt(reports, row, now) for row in rows if row.pk in has_reports}
    accounts = [
        _account(
            row, span, now, gpus[row.pk], throttle[row.pk], pauses[row.pk], told.get(row.pk),
            reached.get(row.pk, -1.0),
        )
        for row in rows
    ]  # fmt: skip
    return JobAccount(span, tuple(accounts))


def _start(row: Attempt) -> float:
    return row.dispatched_at.timestamp()


def _end(row: Attempt, now: float) -> float:
    return now if row.ended_at is None else row.ended_at.timestamp()


def _alone(every: Sequence[Attempt], now: float) -> list[Attempt]:
    """Return the attempts that no other one of the job overlaps: what it reports is of them."""
    rows = sorted(every, key=_start)
    starts = np.array([*map(_start, rows), np.inf])
    ends = np.array([-np.inf, *(_end(row, now) for row in rows)])
    after_all = starts[:-1] >= np.maximum.accumulate(ends)[:-1]
    return list(itertools.compress(rows, after_all & (ends[1:] <= starts[1:])))


# --- What is read --------------------------------------------------------------------------------


def _reports(job: Job, span: Span, gpus: int, now: float) -> _Reports:
    points = min(max(_MOST_SPANS // gpus, series.MIN_POINTS), series.MAX_POINTS)
    # A report tells of the time before it, and from the one before that on.
    wider = Span(span.start - MAX_GAP_S, span.end + MAX_GAP_S)
    return _read(job, _FIELDS, wider, points, now)


def _read(job: Job, fields: tuple[str, ...], span: Span, points: int, now: float) -> _Reports:
    known = ReportedJob.objects.filter(name=job.name).values_list("pk", flat=True).first()
    if known is None:
        return _Reports(np.empty(0), None, dict.fromkeys(fields, np.empty(0)))
    found = series.query(
        SeriesRequest(
            kind=Kind.JOB, id=known, fields=fields, start=span.start, end=span.end, points=points,
            method=Method.MEAN,
        ),
        now,
    )  # fmt: skip
    columns = {name: np.array(found.columns[name], dtype=np.float64) for name in ("t", *fields)}
    told = np.any([~np.isnan(columns[name]) for name in fields], axis=0)
    at = columns.pop("t")[told]
    return _Reports(at, found.step_s, {name: values[told] for name, values in columns.items()})


def _of_attempt(reports: _Reports, row: Attempt, now: float) -> _Told | None:
    if row.started_at is None:
        return None
    own = reports.within(row.started_at.timestamp(), _end(row, now))
    return own if own.end.size else None


def _reached(
    job: Job, alone: Sequence[Attempt], reports: _Reports, span: Span, now: float
) -> dict[int, float]:
    """Return by attempt the step that earlier attempts of its phase had reached, -1: none."""
    earlier = None
    if alone and (first := min(map(_start, alone))) < span.start - 1.0:
        before = Span(first, span.start)
        earlier = _read(job, ("step",), before, series.MAX_POINTS, now)
    reached: dict[int, float] = {}
    by_phase: dict[int, float] = defaultdict(lambda: -1.0)
    for row in sorted(alone, key=lambda each: each.number):
        reached[row.pk] = by_phase[row.phase_id]
        for each in (earlier, reports):
            own = None if each is None else _of_attempt(each, row, now)
            if own is not None and not np.isnan(own.fields["step"]).all():
                top = float(np.nanmax(own.fields["step"]))
                by_phase[row.phase_id] = max(by_phase[row.phase_id], top)
    return reached


def _throttle(rows: Sequence[Attempt], span: Span) -> dict[int, list[Shares]]:
    """Return by attempt what throttling took of its GPUs. One query."""
    fleet = snapshot.current()
    places = {row.pk: {gpu: at for at, gpu in enumerate(gpus_of(row, fleet))} for row in rows}
    ids = set(itertools.chain.from_iterable(places.values()))
    events = ThrottleEvent.objects.filter(
        gpu__in=ids, opened_at__lt=span.end_at, updated_at__gt=span.start_at
    ).order_by()
    by_gpu: dict[int, list[ThrottleEvent]] = defaultdict(list)
    for event in events:
        by_gpu[event.gpu_id].append(event)
    return {
        pk: _shares([(at, event) for gpu, at in own.items() for event in by_gpu[gpu]])
        for pk, own in places.items()
    }


def _shares(events: Iterable[tuple[int, ThrottleEvent]]) -> list[Shares]:
    """Return what throttle events took of GPUs, by cause."""
    by_cause: dict[str, list[tuple[int, ThrottleEvent]]] = defaultdict(list)
    for at, event in events:
        name = throttled(ThrottleCause(event.cause), expected=event.expected)
        by_cause[name].append((at, event))
    return [
        Shares(
            cause=cause,
            ppm=np.array([round(_lost_share(event) * PPM) for _, event in found]),
            **_times(
                [at for at, _ in found],
                [event.opened_at.timestamp() for _, event in found],
                [event.updated_at.timestamp() for _, event in found],
            ),
        )
        for cause, found in by_cause.items()
    ]


def _lost_share(event: ThrottleEvent) -> float:
    """Return the share of its clock that a GPU lost over an event; 0 where it is not known."""
    span_s = max((event.updated_at - event.opened_at).total_seconds(), 1e-6)
    return min(max((event.lost_s or 0.0) / span_s, 0.0), 1.0)


def _pauses(rows: Sequence[Attempt], span: Span) -> dict[int, list[tuple[float, float]]]:
    """Return by attempt when it stood still since it was told to. One query."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    asked = Directive.objects.filter(
        attempt__in=[row.pk for row in rows], kind=Directive.Kind.PAUSE, applied_at__isnull=False
    )
    times = asked.values_list("attempt", "applied_at", "undone_at", "ended_at")
    for attempt, begun, undone, ended in times:
        over: datetime = undone or ended or span.end_at
        if begun is not None:
            found[attempt].append((begun.timestamp(), over.timestamp()))
    return found


# --- What it comes to ----------------------------------------------------------------------------


def _account(
    row: Attempt,
    span: Span,
    now: float,
    gpus: int,
    throttle: Sequence[Shares],
    pauses: Iterable[tuple[float, float]],
    reports: _Told | None,
    reached: float,
) -> AttemptAccount:
    spans = [_on_all(Cause.PAUSED, gpus, *zip(*pauses, strict=True))] if pauses else []
    shares = [*throttle]
    begun = row.started_at.timestamp() if row.started_at else _end(row, now)
    if reports is not None:
        if begun >= span.start - MAX_GAP_S:
            # The first report that was read is its first: until then it was starting.
            begun = float(reports.start[0])
        spans += _steps(reports, gpus, reached)
        shares += _told(reports, gpus)
    spans.append(
        _on_all(
            Cause.STARTING if row.number == 1 else Cause.RESTARTING, gpus, [_start(row)], [begun]
        )
    )
    held = GpuSpans(**_on_each(gpus, [_start(row)], [_end(row, now)]))
    causes = account(
        held, spans, shares, start_us=round(span.start * _US), end_us=round(span.end * _US)
    )
    return AttemptAccount(row.phase.name, row.number, gpus, causes, reports is not None)


def _steps(reports: _Told, gpus: int, reached: float) -> list[Whole]:
    again = reports.fields["step"] <= reached
    return [
        _on_all(cause, gpus, reports.start[which], reports.end[which])
        for cause, which in ((Cause.PRODUCTIVE, ~again), (Cause.REPEATED, again))
    ]


def _told(reports: _Told, gpus: int) -> list[Shares]:
    """Return the shares that a loop tells of, each of what those before it left."""
    field = {name: np.nan_to_num(values) for name, values in reports.fields.items()}
    step_s = np.where(field["step_time_s"] > 0.0, field["step_time_s"], np.inf)
    data = np.clip(field["data_wait_s"] / step_s, 0.0, 1.0)
    left = np.where(data < 1.0, 1.0 - data, np.inf)
    sync = np.clip(field["sync_s"] / step_s / left, 0.0, 1.0)
    where = _on_each(gpus, reports.start, reports.end)
    by_cause = {
        Cause.OUTSIDE_STEPS: np.clip(field["lost_share"], 0.0, 1.0),
        Cause.DATA_WAIT: data,
        Cause.SYNCHRONIZATION: sync,
    }
    return [
        Shares(cause=cause, ppm=np.tile(np.rint(part * PPM).astype(np.int64), gpus), **where)
        for cause, part in by_cause.items()
    ]


def _on_all(
    cause: Cause, gpus: int, start: Sequence[float] | Floats, end: Sequence[float] | Floats
) -> Whole:
    return Whole(cause=cause, **_on_each(gpus, start, end))


def _on_each(
    gpus: int, start: Sequence[float] | Floats, end: Sequence[float] | Floats
) -> dict[str, Ints]:
    """Return the same spans, Unix s, for each GPU."""
    return _times(np.repeat(np.arange(gpus), len(start)), np.tile(start, gpus), np.tile(end, gpus))


def _times(
    gpu: Sequence[int] | Ints, start: Sequence[float] | Floats, end: Sequence[float] | Floats
) -> dict[str, Ints]:
    return {
        "gpu": np.asarray(gpu, dtype=np.int64),
        "start_us": np.rint(np.asarray(start, dtype=np.float64) * _US).astype(np.int64),
        "end_us": np.rint(np.asarray(end, dtype=np.float64) * _US).astype(np.int64),
    }
