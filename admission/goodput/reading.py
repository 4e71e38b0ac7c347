"""The account of a job: by its attempts, pauses, throttle events, and what its loop reported."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from admission.core.account import LEVERS, Cause, GpuSpans, Ints
from admission.core.fleet_account import CAUSES, HELD, Gangs, Onto, Parts, gang_accounts
from admission.core.program import NOTHING, Stated, Work
from admission.goodput import records, steps
from admission.goodput.stated import OF_ATTEMPT, stated
from admission.goodput.steps import times_us
from admission.jobs.models import Attempt, Job
from fleet import snapshot
from fleet.snapshot import FleetArrays
from telemetry import series
from telemetry.models import ReportedJob
from telemetry.rollups.spec import MAX_GAP_S
from telemetry.series import Kind, Method, SeriesRequest
from telemetry.spans import ParameterError, Span

__all__ = ["AttemptAccount", "JobAccount", "lived", "of_job"]

Floats = NDArray[np.float64]

#: Of a job at most so many attempts are added up at once.
MOST_ATTEMPTS = 1000
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
    work: Work

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

    @property
    def work(self) -> Work:
        """What its models took, of those attempts of which that is known."""
        return sum((each.work for each in self.attempts), NOTHING)


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

    Eight queries, and those of one or two series of the job's reports. Raises
    :class:`ParameterError` where that is too much.
    """
    span = Span(span.start, min(span.end, now))
    if span.end <= span.start:
        return JobAccount(span, ())
    attempts_of = Attempt.objects.filter(phase__job=job).select_related("phase__job")
    every = list(attempts_of.order_by("pk"))
    rows = [row for row in every if _end(row, now) > span.start and _start(row) < span.end]
    if len(rows) > MOST_ATTEMPTS:
        raise ParameterError("from", f"more than {MOST_ATTEMPTS} attempts: ask for a shorter span")
    gpus = [sum(map(len, row.placement.get("gpus", {}).values())) for row in rows]
    attempts = _attempts(every, now)
    told = _told(every, steps.FIELDS, _wider(span), attempts, now)
    # The first report that was read is its first: until then it was starting.
    first = told.firsts(len(every))
    first[attempts.began < span.start - MAX_GAP_S] = np.nan
    numbers = np.array([row.number for row in every])
    place = {row.pk: at for at, row in enumerate(every)}
    of_row = np.array([place[row.pk] for row in rows], dtype=np.int64)
    fleet = snapshot.current()
    gpu = _gpus(rows, fleet)
    reached = _reached(every, attempts, told, span, now)
    gangs = Gangs(
        held=GpuSpans(
            **times_us(
                np.arange(sum(gpus)),
                np.repeat([_start(row) for row in rows], gpus),
                np.repeat([_end(row, now) for row in rows], gpus),
            )
        ),
        gang=np.repeat(of_row, gpus),
        spans=[
            *told.steps(reached),
            *steps.starts(attempts, numbers, first),
            records.pauses(place, span),
        ],
        shares=told.shares(),
        caps=[records.caps_of_attempts(place, span), _placed_caps(every, now)],
        part_shares=records.throttle(np.append(fleet.gpus.ids, -1)[gpu], span),
        part_caps=[Onto(gpu).put(records.caps_of_gpus(fleet, span))],
    )
    found = gang_accounts(
        Parts.whole(np.zeros(sum(gpus), dtype=np.int64)),
        gangs,
        start_us=round(span.start * _US),
        end_us=round(span.end * _US),
    )
    by_attempt = dict(zip(found.gang.tolist(), found.us[:, HELD].tolist(), strict=True))
    productive_s = np.zeros(len(every))
    productive_s[found.gang] = found.us[:, CAUSES.index(Cause.PRODUCTIVE)] / _US
    moved, _ = told.made(reached, span.start, span.end)
    stated = _stated(every, fleet).or_told(told.step_flop(len(every)))
    works = stated.works(moved, productive_s)
    nothing = [0] * len(LEVERS)
    has_told = set(told.attempt.tolist())
    return JobAccount(
        span,
        tuple(
            AttemptAccount(
                row.phase.name,
                row.number,
                count,
                dict(zip(LEVERS, by_attempt.get(at, nothing), strict=True)),
                at in has_told,
                works[at],
            )
            for row, count, at in zip(rows, gpus, of_row.tolist(), strict=True)
        ),
    )


def _start(row: Attempt) -> float:
    return row.dispatched_at.timestamp()


def _end(row: Attempt, now: float) -> float:
    return now if row.ended_at is None else row.ended_at.timestamp()


def _attempts(rows: Sequence[Attempt], now: float) -> steps.Attempts:
    """Return the attempts of one job."""
    job = np.zeros(len(rows), dtype=np.int64)
    dispatched, ended = np.array([*map(_start, rows)]), np.array([_end(row, now) for row in rows])
    began = np.array([row.started_at.timestamp() if row.started_at else np.nan for row in rows])
    return steps.Attempts(job, dispatched, began, ended, steps.alone(job, dispatched, ended))


# --- What is read --------------------------------------------------------------------------------


def _wider(span: Span) -> Span:
    """Return a span with the reports that tell of its ends: of the time up to the one before."""
    return Span(span.start - MAX_GAP_S, span.end + MAX_GAP_S)


def _told(
    rows: Sequence[Attempt],
    fields: tuple[str, ...],
    span: Span,
    attempts: steps.Attempts,
    now: float,
) -> steps.Told:
    """Return what the loops of a job's attempts reported, under whichever name.

    A query, and for each name that was used two of a series, or more where it is long ago.
    """
    names = {name for row in rows for name in row.reports_as}
    known = ReportedJob.objects.filter(name__in=names).order_by("pk").values_list("pk", flat=True)
    nothing = dict.fromkeys(fields, np.empty(0))
    none = steps.Reports(np.empty(0, dtype=np.int64), np.empty(0), None, nothing)
    found = [none, *(_read(each, fields, span, now) for each in known)]
    return steps.Told.joined([steps.told(each, attempts) for each in found])


def _read(known: int, fields: tuple[str, ...], span: Span, now: float) -> steps.Reports:
    """Return what was reported under a name. Two queries of a series, or more."""
    found = series.query(
        SeriesRequest(
            kind=Kind.JOB, id=known, fields=fields, start=span.start, end=span.end,
            points=series.MAX_POINTS, method=Method.MEAN,
        ),
        now,
    )  # fmt: skip
    columns = {name: np.array(found.columns[name], dtype=np.float64) for name in ("t", *fields)}
    told = np.any([~np.isnan(columns[name]) for name in fields], axis=0)
    at = columns.pop("t")[told]
    job_numbers = np.zeros(at.size, dtype=np.int64)
    values = {name: values[told] for name, values in columns.items()}
    return steps.Reports(job_numbers, at, found.step_s, values)


def _reached(
    rows: Sequence[Attempt],
    attempts: steps.Attempts,
    told: steps.Told,
    span: Span,
    now: float,
) -> Floats:
    """Return by attempt the step that earlier attempts of its phase had reached, -1: none."""
    top = told.reached(len(rows))
    first = attempts.dispatched[attempts.counts].min(initial=np.inf)
    if first < span.start - 1.0:
        earlier = _told(rows, ("step",), Span(first, span.start), attempts, now)
        top = np.maximum(top, earlier.reached(len(rows)))
    reached = np.full(len(rows), -1.0)
    by_phase: dict[int, float] = defaultdict(lambda: -1.0)
    for at in sorted(np.flatnonzero(attempts.counts).tolist(), key=lambda each: rows[each].number):
        reached[at] = by_phase[rows[at].phase_id]
        by_phase[rows[at].phase_id] = max(reached[at], top[at])
    return reached


def _placed_caps(rows: Sequence[Attempt], now: float) -> GpuSpans:
    """Return when attempts held GPUs that they were placed on under a cap, by their number."""
    capped = [at for at, row in enumerate(rows) if row.placement.get("power_cap_w") is not None]
    start, end = [_start(rows[at]) for at in capped], [_end(rows[at], now) for at in capped]
    return GpuSpans(**times_us(capped, start, end))


def _stated(rows: Sequence[Attempt], fleet: FleetArrays) -> Stated:
    """Return what attempts state of their steps, and the peaks of their GPUs. One query."""
    keys = [row.pk for row in rows]
    told = Attempt.objects.filter(pk__in=keys).order_by().values_list("pk", *OF_ATTEMPT)
    said = {pk: (flop, precision) for pk, flop, precision in told}
    # A slice is less than the GPU that it is named by: its peak is not known.
    gpus = [np.array([-1]) if row.placement.get("slices") else _gpus([row], fleet) for row in rows]
    return stated(
        [said.get(key, (None, None)) for key in keys],
        np.concatenate([np.empty(0, dtype=np.int64), *gpus]),
        np.repeat(np.arange(len(rows)), [len(of_row) for of_row in gpus]),
        fleet,
    )


def _gpus(rows: Sequence[Attempt], fleet: FleetArrays) -> Ints:
    """Return the rows of the GPUs of attempts one after the other, -1 where one is gone."""
    row_of = fleet.gpu_index_by_node
    named = [
        row_of.get((node, index), -1)
        for row in rows
        for node, gpus in row.placement.get("gpus", {}).items()
        for index in gpus
    ]
    return np.array(named, dtype=np.int64)
