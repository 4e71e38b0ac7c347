"""What was recorded of the whole fleet in a span of time: one query for each kind of record.

The inventory is that of now: a GPU that has come since then was silent, and one that is gone counts
for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from django.db.models import Q

from admission.bookings.models import Booking
from admission.core.account import PPM, GpuSpans, Ints
from admission.core.at_work import at_work, least_at_work_w
from admission.core.baselines import Working
from admission.core.fleet_account import Onto, Parts
from admission.core.request import rows_on
from admission.core.restricted import Restricted
from admission.cycle.cordoning import OWNER as OF_SCHEDULERS
from admission.goodput import draws, records, stated, steps
from admission.goodput.draws import GangDraws
from admission.goodput.fleet import Bools, Readings, Records
from admission.goodput.records import Standing
from admission.goodput.steps import Attempts, Floats, Reports, times_us
from admission.jobs.models import Attempt
from fleet.slicing import sliced
from fleet.tables import FleetArrays
from headroom.jobs.array import name_in_spec
from policies.restrictions.kinds import RestrictionKind
from policies.scopes import Scope, ScopeKind
from telemetry.models import ReportedJob
from telemetry.rollups.spec import HOUR_S, HOURS, MAX_GAP_S, MINUTE_S, MINUTES
from telemetry.samples import GPU, JOB
from telemetry.spans import Span
from telemetry.store.columns import US, Columns, Window, is_null
from telemetry.store.hot import IdRange
from telemetry.store.reading import read

__all__ = ["Gathered", "Held", "Places", "gather", "held_in", "held_parts", "parts_of"]

#: Ids of GPUs whose readings are looked at together: an hour of them is some 10 MB.
_IDS_AT_ONCE = 8_192
#: What is read of a GPU.
_OF_GPU = ("util", "power_w", "power_limit_w", "temp_c")


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt that held GPUs, and whose it is. Times are Unix s; NaN: not yet."""

    pk: int
    #: job/phase/number: a loop may report as each of the three
    key: str
    number: int
    phase_id: int
    job: str
    project: str
    job_class: str
    phase: str
    dispatched: float
    began: float
    ended: float
    phase_began: float
    gpus: Mapping[str, Sequence[int]]
    slices: Mapping[str, Any]
    is_capped: bool
    #: FLOPs of a step, and their precision, as the phase states them
    said: tuple[float | None, str | None]
    #: between two saves, s; None: it makes none
    save_every_s: float | None


@dataclass(frozen=True, eq=False)
class Places:
    """Where gangs were: attempts by number and racks by row, and what their GPUs did while working.

    ``gpus`` is how many parts of the rack the attempt held.
    """

    gang: Ints
    rack: Ints
    gpus: Ints
    working: Working


@dataclass(frozen=True, eq=False)
class Gathered:
    """Records of a fleet, whose the attempts in them are, and the sites and racks of scopes."""

    records: Records
    attempts: Sequence[Held]
    fleet: FleetArrays
    places: Places


def gather(span: Span, fleet: FleetArrays) -> Gathered:
    """Read all that was recorded in ``span``. Some ten queries, and readings by ranges of ids."""
    held = held_in(span)
    parts, ids = parts_of(fleet)
    on_parts = Onto(parts.gpu)
    attempts = _attempts(held)
    part, gang = held_parts(held, sliced(fleet))
    numbers = {each.pk: at for at, each in enumerate(held)}
    reports, heard, reached = _reports(held, attempts, span)
    held_spans = GpuSpans(**times_us(part, attempts.dispatched[gang], attempts.ended[gang]))
    drawn = GangDraws(len(held), span.start, MINUTE_S, round((span.end - span.start) / MINUTE_S))
    places, place = _places(gang, parts.scope[part])
    seen = _Seen(gang, drawn, place, places.working)
    holders = partial(draws.holders, held=held_spans, gang=np.arange(gang.size))
    busy, idle = _readings(fleet, ids, span, seen, holders)
    is_told = np.isin(attempts.job, reports.job) & attempts.counts
    by_placement = [(at, each) for at, each in enumerate(held) if each.is_capped]
    whole = times_us(
        [at for at, _ in by_placement],
        [each.dispatched for _, each in by_placement],
        [each.ended for _, each in by_placement],
    )
    orders = _orders(fleet, span)
    found = Records(
        start=span.start,
        end=span.end,
        parts=parts,
        attempts=attempts,
        numbers=np.array([each.number for each in held], dtype=np.int64),
        phases=np.array([each.phase_id for each in held], dtype=np.int64),
        held=held_spans,
        gang=gang,
        reports=reports,
        heard=heard,
        reached=reached,
        pauses=records.pauses(numbers, span),
        caps=records.joined([records.caps_of_attempts(numbers, span), GpuSpans(**whole)]),
        part_caps=on_parts.put(records.joined([orders.caps, orders.beside_caps])),
        throttle=records.throttle(ids, span, is_fleet=True),
        low_draw=drawn.shares(~is_told),
        busy=busy,
        idle=idle,
        drained=on_parts.put(records.joined([orders.drains, orders.beside_drains])),
        restricted=replace(
            orders, **{name: on_parts.put(getattr(orders, name)) for name in _OF_ORDERS}
        ),
        stated=stated.stated([each.said for each in held], _whole(parts)[part], gang, fleet),
    )
    return Gathered(found, held, fleet, places)


# --- Parts and who held them ---------------------------------------------------------------------


def parts_of(fleet: FleetArrays) -> tuple[Parts, Ints]:
    """Return what can be held, by rack, and the ids of the GPUs of it."""
    by_part = sliced(fleet)
    scope = by_part.nodes.rack[by_part.gpus.node]
    if by_part.parts is None:
        return Parts.whole(scope), by_part.gpus.ids
    gpu, share = by_part.parts.gpu, by_part.parts.share
    # Rounded so that the parts of a GPU add up to all of it.
    ran = np.rint(np.cumsum(share) * PPM).astype(np.int64)
    return Parts(gpu, np.diff(ran, prepend=0), scope), by_part.gpus.ids


def _whole(parts: Parts) -> Ints:
    """Return the row of the GPU of each part, -1 of one that is less than that."""
    return np.where(parts.ppm == PPM, parts.gpu, -1)


def held_in(span: Span) -> list[Held]:
    """Return the attempts that held GPUs in ``span``. One query."""
    rows = (
        Attempt.objects.overlapping(span.start_at, span.end_at)
        .order_by("pk")
        .values_list(
            "pk", "key", "number", "phase", "phase__job__name", "phase__job__project__name",
            "phase__job__job_class", "phase__name", "phase__element", "dispatched_at", "started_at",
            "ended_at", "phase__started_at", "placement__gpus", "placement__slices",
            "placement__power_cap_w", "phase__request__checkpoint_interval_s", *stated.OF_ATTEMPT,
        )
    )  # fmt: skip
    return [
        Held(
            pk, key, number, phase_id, job, project, job_class,
            phase if element is None else name_in_spec(phase),
            dispatched.timestamp(),
            began.timestamp() if began else np.nan,
            ended.timestamp() if ended else span.end + MAX_GAP_S,
            (first or dispatched).timestamp(),
            gpus or {}, slices or {}, cap is not None, (flop, precision), save_every_s,
        )
        for pk, key, number, phase_id, job, project, job_class, phase, element, dispatched, began,
        ended, first, gpus, slices, cap, save_every_s, flop, precision in rows
    ]  # fmt: skip


def _attempts(held: Sequence[Held]) -> Attempts:
    jobs = {name: at for at, name in enumerate(dict.fromkeys(each.job for each in held))}
    job = np.array([jobs[each.job] for each in held], dtype=np.int64)
    dispatched = np.array([each.dispatched for each in held])
    ended = np.array([each.ended for each in held])
    began = np.array([each.began for each in held])
    return Attempts(job, dispatched, began, ended, steps.alone(job, dispatched, ended))


def held_parts(held: Sequence[Held], fleet: FleetArrays) -> tuple[Ints, Ints]:
    """Return which parts attempts hold, and the number of the attempt of each."""
    rows = [
        [
            row
            for node in each.gpus
            for row in rows_on(node, {"gpus": each.gpus, "slices": each.slices}, fleet)
        ]
        for each in held
    ]
    part = np.array([row for of_one in rows for row in of_one], dtype=np.int64)
    return part, np.repeat(np.arange(len(held)), [len(of_one) for of_one in rows])


def _places(gang: Ints, rack: Ints) -> tuple[Places, Ints]:
    """Return where gangs were, and which of these places each part that is held is of."""
    key, place, count = np.unique(
        np.stack([gang, rack]), axis=1, return_inverse=True, return_counts=True
    )
    return Places(key[0], key[1], count.astype(np.int64), Working(count.size)), place


# --- What loops reported -------------------------------------------------------------------------


def _reports(held: Sequence[Held], attempts: Attempts, span: Span) -> tuple[Reports, Bools, Floats]:
    """Return reports, and which attempts had reported, and reached what, before."""
    jobs = {
        name: int(at)
        for each, at in zip(held, attempts.job, strict=True)
        for name in (each.job, each.key.rpartition("/")[0], each.key)
    }
    rows = ReportedJob.objects.filter(name__in=jobs).values_list("pk", "name")
    number_of = {pk: jobs[name] for pk, name in rows}
    window = Window(span.start - MAX_GAP_S, span.end + MAX_GAP_S)
    known = np.array(sorted(number_of), dtype=np.int64)
    job_of = np.array([number_of[pk] for pk in known.tolist()], dtype=np.int64)
    found = _steps_of(known, job_of, window, None, steps.FIELDS)
    # Those that began earlier and are not in what was read at the start of it: were they silent?
    near = found.at < span.start
    silent = ~np.isin(attempts.job, found.job[near]) & (attempts.began < window.start)
    again = np.array([each.number > 1 for each in held], dtype=np.bool_)
    asked = np.isin(job_of, attempts.job[(silent | again) & attempts.counts])
    first = min((each.phase_began for each in held), default=span.start)
    before = Window(first // HOUR_S * HOUR_S, span.start)
    hours = _steps_of(known[asked], job_of[asked], before, HOUR_S, ("step",))
    heard = steps.told(hours, attempts).reached(len(held)) >= 0.0
    return (
        found,
        heard | (attempts.began < window.start) & ~silent,
        _reached(held, attempts, hours),
    )


def _steps_of(
    known: Ints, job_of: Ints, window: Window, width_s: int | None, fields: Sequence[str]
) -> Reports:
    """Return reports of jobs, by the ids that telemetry has for them, in order of job and time.

    As they came, for time that was told of together is not to be spread over a minute; or, of an
    hour each (``width_s``), their means.
    """
    table = JOB if width_s is None else HOURS[JOB.name]
    if not known.size or window.end <= window.start:
        nothing = dict.fromkeys(fields, np.empty(0))
        return Reports(np.empty(0, np.int64), np.empty(0), width_s, nothing)
    found = read(table, fields, window, known.tolist())
    told = np.any([~is_null(found[name]) for name in fields], axis=0)
    job = job_of[np.searchsorted(known, found["job_id"][told])]
    order = np.lexsort((found["ts"][told], job))
    values = {name: _floats(found[name][told])[order] for name in fields}
    return Reports(job[order], found["ts"][told][order] / US, width_s, values)


def _floats(values: Any) -> Floats:
    return np.where(is_null(values), np.nan, values.astype(np.float64))


def _reached(held: Sequence[Held], attempts: Attempts, hours: Reports) -> Floats:
    """Return the step that phases had reached before each attempt that is not their first.

    Of the hour in which an attempt began, what it has made itself may be the greatest step: it
    counts less one, since a step is made again where it is no greater.
    """
    found = np.full(len(held), -1.0)
    for at, each in enumerate(held):
        if each.number == 1 or not hours.at.size:
            continue
        of_job = slice(*np.searchsorted(hours.job, [attempts.job[at], attempts.job[at] + 1]))
        when, step = hours.at[of_job], hours.fields["step"][of_job]
        began = each.dispatched if np.isnan(each.began) else each.began
        is_before = (when + HOUR_S > each.phase_began) & (when <= began)
        step = step - ((when + HOUR_S) > began)
        found[at] = np.nanmax(step[is_before], initial=-1.0)
    return found


# --- What readings show --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Seen:
    """What readings are added to. ``gang`` and ``place`` are those of each span that is held."""

    gang: Ints
    drawn: GangDraws
    place: Ints
    working: Working

    def add(self, held: Ints, readings: Readings, found: Columns, supply_c: Floats) -> None:
        """Add readings of what each of ``held``, a span or -1, held then."""
        gang, place = (np.append(each, -1)[held] for each in (self.gang, self.place))
        self.drawn.add(gang, readings.at, readings.draw, readings.at_limit)
        # The draw of a partitioned GPU is nobody's in particular.
        counts = readings.works & ~np.isnan(readings.draw)
        power_w, temp_c = (found[name].astype(np.float64) for name in ("power_w", "temp_c"))
        self.working.add(np.where(counts, place, -1), power_w, temp_c, supply_c)


def _readings(
    fleet: FleetArrays,
    ids: Ints,
    span: Span,
    seen: _Seen,
    holders: Callable[[Ints, Ints], Ints],
) -> tuple[GpuSpans, GpuSpans]:
    """Return when parts were read, and their GPUs worked, and did not.

    Readings are added to ``seen``; ``holders`` says by which span parts are held at moments, µs.
    """
    onto, order = Onto(ids), np.argsort(ids, kind="stable")
    busy, idle = [records.NO_SPANS], [records.NO_SPANS]
    zone = fleet.racks.zone[fleet.nodes.rack]
    supply_c = np.append(fleet.zones.supply_c, np.nan)[zone]
    for found, row in _by_minute(fleet, span):
        readings = _shown(fleet, found, row)
        busy.append(onto.put(readings.spans(works=True)))
        idle.append(onto.put(readings.spans(works=False)))
        # Of a partitioned GPU, whose draw is not known, any part will do.
        part = order[np.searchsorted(ids[order], readings.gpu)]
        held = holders(part, readings.middle_us)
        seen.add(held, readings, found, supply_c[fleet.gpus.node[row]])
    return records.joined(busy), records.joined(idle)


def _by_minute(fleet: FleetArrays, span: Span) -> Iterator[tuple[Columns, Ints]]:
    """Yield readings of GPUs by the minute, by their ids, and the rows of their GPUs."""
    gpus = fleet.gpus
    order = np.argsort(gpus.ids)
    last = int(gpus.ids.max(initial=-1))
    for first in range(int(gpus.ids.min(initial=0)), last + 1, _IDS_AT_ONCE):
        some = IdRange(first, first + _IDS_AT_ONCE)
        window = Window(span.start, span.end)
        found = read(MINUTES[GPU.name], _OF_GPU, window, some)
        place = np.searchsorted(gpus.ids[order], found["gpu_id"])
        row = order[np.minimum(place, len(gpus) - 1)]
        is_read = ~(np.isnan(found["util"]) & np.isnan(found["power_w"]))
        keep = is_read & (gpus.ids[row] == found["gpu_id"])
        yield {name: values[keep] for name, values in found.items()}, row[keep]


def _shown(fleet: FleetArrays, found: Columns, row: Ints) -> Readings:
    """Return what readings show of the GPUs in ``row``."""
    gpus = fleet.gpus
    idle_w, rated_w = gpus.idle_w[row], gpus.rated_w[row]
    is_split = np.isin(row, list(fleet.slices))
    # The use of a partitioned GPU tells nothing: its draw does.
    util = np.where(is_split, np.nan, found["util"])
    power_w = found["power_w"].astype(np.float64)
    drawn = np.where(is_split, np.nan, draws.draw(power_w, idle_w, rated_w))
    return Readings(
        found["gpu_id"].astype(np.int64),
        found["ts"] / US,
        MINUTE_S,
        at_work(util, power_w, least_at_work_w(idle_w, rated_w)),
        drawn,
        draws.is_at_limit(power_w, found["power_limit_w"]),
    )


# --- What was in force ---------------------------------------------------------------------------


#: A drain is ours or a scheduler's.
_IS_DRAIN = Q(kind=RestrictionKind.DRAIN) | Q(
    kind=RestrictionKind.NO_NEW_LAUNCHES, owner__startswith=OF_SCHEDULERS
)


def _maintenance(fleet: FleetArrays, span: Span) -> GpuSpans:
    """Return when maintenance kept gangs off GPUs, by row. One query."""
    kept = Booking.objects.filter(
        project=None, starts_at__lt=span.end_at, ends_at__gt=span.start_at
    )
    booked = (
        (Scope(ScopeKind.NODE, node), start.timestamp(), (over or end).timestamp())
        for nodes, start, end, over in kept.values_list("nodes", "starts_at", "ends_at", "ended_at")
        for node in nodes
    )
    return records.on_scopes(booked, fleet)


#: Spans of :class:`Restricted`, by row of a GPU until they are put onto its parts.
_OF_ORDERS = ("caps", "beside_caps", "drains", "beside_drains")


def _orders(fleet: FleetArrays, span: Span) -> Restricted:
    """Return what was asked of GPUs, by row. Four queries.

    Of caps on power the lowest counts, of drains the first. A cap on clocks is beside: what it
    takes is no throttling at a power limit.
    """
    limits, drains = records.in_force(records.IS_LIMIT, span), records.in_force(_IS_DRAIN, span)
    is_cap = RestrictionKind.POWER_CAP_W
    caps = sorted((each for each in limits if each.kind == is_cap), key=_loosest_first)
    drains.sort(key=lambda each: (each.where[1], each.id), reverse=True)
    clocks = records.on_scopes((each.where for each in limits if each.kind != is_cap), fleet)
    return Restricted(
        ids=[each.id for each in (*caps, *drains)],
        caps=records.claims(caps, fleet),
        beside_caps=records.joined([clocks, records.controller_caps(fleet, span)]),
        drains=records.claims(drains, fleet, len(caps)),
        beside_drains=_maintenance(fleet, span),
    )


def _loosest_first(one: Standing) -> tuple[float, int]:
    return -(one.value or 0.0), -one.id
