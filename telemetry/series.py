"""Readings of one thing over a span of time, thinned to the resolution of a chart.

``query`` picks the tier: readings where few are asked for, roll-ups by minute or hour where many
are, and for each part of the span what is there, in Postgres or in the cold tier. A row of nulls
stands where readings are missing, so that a line breaks there and does not pretend.

Nodes, racks, jobs and places are put together from their parts: see
:mod:`telemetry.timeline.groups`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias, TypeVar

import numpy as np
from django.db import connection
from django.db.models import Q

from fleet import snapshot
from fleet.feeds import carried_share
from fleet.models import Gpu, Link, Meter, MeterKind, Node, Rack
from fleet.tables import FleetArrays
from telemetry import frame
from telemetry.rollups import carriers
from telemetry.rollups.spec import MAX_GAP_S, ROLLUPS
from telemetry.samples import Array, Table
from telemetry.spans import ParameterError, Span
from telemetry.store.columns import Window
from telemetry.timeline import extents, groups, thin
from telemetry.timeline.extents import Energy, Extent
from telemetry.timeline.fields import (
    ACROSS,
    COVERED,
    DEFAULT_FIELDS,
    FIELDS,
    PLACES,
    POWER_FIELDS,
    SUMS,
    TABLES,
    USED,
    Kind,
    Over,
    is_single,
    is_whole,
    over_time,
)
from telemetry.timeline.groups import Members, Sources
from telemetry.timeline.points import Points, chosen, in_buckets
from telemetry.timeline.reading import Found, fetch
from telemetry.timeline.thin import Method
from telemetry.timeline.tiers import (
    LIKELY_CADENCE_S,
    MOST_ROWS,
    Part,
    Tier,
    affordable,
    coarsest_for,
)

__all__ = [
    "FIELDS", "PLACES", "Column", "Kind", "Members", "Method", "NotFound", "Series",
    "SeriesRequest", "Tier", "parse", "points_of", "query", "query_members", "query_spread",
]  # fmt: skip

DEFAULT_POINTS = 600
MIN_POINTS = 10
MAX_POINTS = 5000
#: Readings of the last moments may still be on their way, s.
_SETTLING_S = 15.0
#: How many rows say how many parts usually report.
_USUAL_ROWS = 10
#: Of a group at most so many readings are read for a chart that would do with roll-ups.
_READINGS_FOR_A_CHART = 150_000
#: A place of more things than this is too large to sum up: the last hour and a half is not rolled
#: up by the hour yet.
MOST_SUMMED = MOST_ROWS // 90
#: Over so long the readings of one thing are looked at for extremes that roll-ups do not keep, s.
_READINGS_OF_ONE_S = 3 * 86_400
#: Bucket widths, s: those in which a clock's face and a week can be divided, so that refetching a
#: live span does not move the buckets.
_STEPS_S = (
    1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200,
    86_400, 172_800, 604_800,
)  # fmt: skip

#: The values of a column. None: missing.
Column: TypeAlias = list[float | None]

Choice = TypeVar("Choice", bound=StrEnum)

_BAND, _P95 = ("min", "max"), ("p95",)


class NotFound(LookupError):
    """The inventory has no such thing."""


@dataclass(frozen=True, slots=True)
class SeriesRequest:
    """A request for a series: ``fields`` of one thing from ``start`` up to ``end`` (Unix s)."""

    kind: Kind
    id: int
    fields: tuple[str, ...]
    start: float
    end: float
    points: int = DEFAULT_POINTS
    method: Method = Method.MEAN
    #: Give least and greatest reading of each bucket too, of what is averaged. Only for kinds with
    #: one source.
    band: bool = False
    #: And the 95th percentile.
    p95: bool = False
    #: None: as fine as the points can show.
    tier: Tier | None = None
    #: Give least, mean and greatest value of the whole span too, of what is averaged; and energy,
    #: where ``fields`` has ``used_j``.
    extents: bool = False

    @property
    def stats(self) -> tuple[str, ...]:
        """The statistics that are given of each field besides itself."""
        return (*(_BAND if self.band else ()), *(_P95 if self.p95 else ()))

    @property
    def is_group(self) -> bool:
        """Whether the answer is put together from parts."""
        if self.kind is not Kind.JOB:
            return self.kind in (Kind.NODE, Kind.RACK, *PLACES)
        return bool({*POWER_FIELDS, *ACROSS} & {*self.fields})


@dataclass(frozen=True, slots=True)
class Series:
    """Columns of one length: ``t`` (Unix s) and the fields.

    ``step_s`` is the distance of two rows; None: readings as they are. ``parts`` says which tier
    answered for which part of the span, ``newest_at`` how far the newest row reaches (Unix s).
    """

    step_s: float | None
    columns: dict[str, Column]
    parts: tuple[Part, ...] = ()
    newest_at: float | None = None
    extents: Mapping[str, Extent] = field(default_factory=dict)
    energy: Energy | None = None


# --- What is asked for ---------------------------------------------------------------------------


def parse(params: Mapping[str, str], span: Span) -> SeriesRequest:
    """Read a request from a query string. Raises :class:`ParameterError`."""
    kind = _choice(Kind, params.get("kind", ""), "kind")
    fields = _fields(kind, params.get("fields", ""))
    request = SeriesRequest(
        kind=kind,
        id=_whole(params.get("id", ""), "id", 1, 2**31 - 1),
        fields=fields,
        start=span.start,
        end=span.end,
        points=points_of(params.get("points", "")),
        method=_method(params, fields),
        band=_flag(params.get("band", ""), "band"),
        p95=_flag(params.get("p95", ""), "p95"),
        tier=_choice(Tier, params["tier"], "tier") if params.get("tier") else None,
        extents=_flag(params.get("extents", ""), "extents"),
    )
    _check(request)
    return request


def _check(request: SeriesRequest) -> None:
    given = "band" if request.band else "p95"
    if request.stats and request.is_group:
        raise ParameterError(
            given, f"a {request.kind} has many sources; ask for a {given} of one of them"
        )
    if request.stats and request.method is not Method.MEAN:
        raise ParameterError("method", f"{given}=1 stands beside means: leave method out")
    if request.method is Method.LTTB and (len(request.fields) != 1 or request.is_group):
        raise ParameterError("method", "lttb is for one field of one source; minmax is for more")
    if request.method is not Method.MEAN and (summed := SUMS.intersection(request.fields)):
        raise ParameterError("method", f"{min(summed)} is a sum over each row: leave method out")


def _method(params: Mapping[str, str], fields: Sequence[str]) -> Method:
    if text := params.get("method", ""):
        return _choice(Method, text, "method")
    has_stats = params.get("band") == "1" or params.get("p95") == "1"
    return Method.MEAN if has_stats or SUMS.intersection(fields) else Method.MINMAX


def _choice(kind: type[Choice], text: str, field: str) -> Choice:
    try:
        return kind(text)
    except ValueError:
        raise ParameterError(field, f"give one of {', '.join(kind)}") from None


def _fields(kind: Kind, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    for name in names:
        if name not in FIELDS[kind]:
            raise ParameterError(
                "fields", f"a {kind} has no {name[:40]!r}; it has {', '.join(FIELDS[kind])}"
            )
    return names or DEFAULT_FIELDS[kind]


def _whole(text: str, field: str, least: int, most: int) -> int:
    if re.fullmatch(r"[0-9]{1,12}", text) and least <= int(text) <= most:
        return int(text)
    raise ParameterError(field, f"give a whole number from {least} to {most}")


def points_of(text: str) -> int:
    """Read how many rows are wanted. Raises :class:`ParameterError`."""
    return _whole(text, "points", MIN_POINTS, MAX_POINTS) if text else DEFAULT_POINTS


def _flag(text: str, field: str) -> bool:
    if text not in ("", "0", "1"):
        raise ParameterError(field, "give 0 or 1")
    return text == "1"


# --- What is answered ----------------------------------------------------------------------------


def query(request: SeriesRequest, now: float) -> Series:
    """Read the series. Raises :class:`NotFound`, or :class:`ParameterError` where it is too much.

    Four queries for each kind of source and part of the span.
    """
    if not request.is_group:
        return _query_single(request, now)
    return query_members(request, _members(request), now)


def _query_single(request: SeriesRequest, now: float) -> Series:
    _ensure_known(request)
    window = Window(request.start, request.end)
    stats = _BAND if request.extents or request.method is Method.MINMAX else request.stats
    stats = tuple(dict.fromkeys((*stats, *request.stats)))
    tier = _tier(request, 1)
    table = TABLES[request.kind]
    with_energy = request.extents and USED in request.fields
    names = tuple(dict.fromkeys((*request.fields, *([COVERED] if with_energy else []))))
    found = fetch(table, [request.id], names, window, tier, now, stats=stats)
    points = chosen(found.points, request.fields)
    if request.method is Method.LTTB:
        answer = _answer(request, None, _by_triangles(request, points), [found])
    else:
        step_s, thinned = _thinned(request, points)
        answer = _answer(request, step_s, thinned, [found])
    if not request.extents:
        return answer
    return replace(
        answer,
        extents=_extents_of_one(request, found, now),
        energy=extents.energy(found.points) if with_energy and len(found.points) else None,
    )


def _extents_of_one(request: SeriesRequest, found: Found, now: float) -> dict[str, Extent]:
    """Return the extents of one thing. Where a roll-up keeps but means, readings are asked."""
    table = TABLES[request.kind]
    names = [name for name in request.fields if over_time(name) is Over.MEAN]
    are_readings = all(part.tier is Tier.RAW for part in found.parts)
    kept = ROLLUPS[table.name].gauges
    lacking = [] if are_readings else [n for n in names if not {*_BAND} <= {*kept[n]}]
    points = dict.fromkeys(names, found.points)
    exact = dict.fromkeys(names, True) | dict.fromkeys(lacking, False)
    if lacking and (request.end - request.start) <= _READINGS_OF_ONE_S:
        window = Window(request.start, request.end)
        finer = fetch(table, [request.id], lacking, window, Tier.RAW, now)
        if all(part.tier is Tier.RAW for part in finer.parts):
            points |= dict.fromkeys(lacking, finer.points)
            exact |= dict.fromkeys(lacking, True)
    each = {n: extents.extent(points[n], points[n].fields[n], exact=exact[n]) for n in names}
    return {name: extent for name, extent in each.items() if extent is not None}


def query_members(request: SeriesRequest, members: Members, now: float) -> Series:
    """Read the series of a group that the caller names. Raises :class:`ParameterError`.

    ``request.id`` is not looked at, unless the kind is that of a job.
    """
    # The step is known once the readings are; its first bucket is to be whole. But a sum is one
    # over the span.
    is_sum = bool(SUMS.intersection(request.fields))
    lead_s = 0.0 if is_sum else 120.0 + 3 * (request.end - request.start) / request.points
    window = Window(request.start - lead_s, request.end)
    tier = _tier(request, len(members))
    bin_s = _bin_s(request, tier)
    sources = groups.read(members, request.fields, window, tier, now, bin_s=bin_s)
    most = request.points if request.method is Method.MEAN else MAX_POINTS
    step_s = step_for(request.start, request.end, most, sources.least_step_s)
    if bin_s and step_s != bin_s:  # some part reports too rarely
        sources = groups.read(members, request.fields, window, tier, now)
        step_s = step_for(request.start, request.end, most, sources.least_step_s)
    start = math.floor(request.start / step_s) * step_s
    points = groups.combine(members, sources.since(start), request.fields, start, step_s)
    points = _settled(points, now)
    points, is_exact = _with_extremes(request, members, sources, points, step_s, now)
    if request.kind is Kind.JOB:
        points = _with_own(request, points, step_s, now)
    points = chosen(points, request.fields)
    if request.method is Method.MEAN or _fits(request, points):
        answer = _answer(request, step_s, _as_they_are(points), sources.all())
    else:
        step_s = step_for(request.start, request.end, request.points // 2, step_s)
        answer = _answer(request, step_s, thin.minmax(points, step_s), sources.all())
    if not request.extents:
        return answer
    names = [name for name in request.fields if over_time(name) is Over.MEAN]
    whole = points.at(points.t >= request.start) if len(points) else points
    each = {n: extents.extent(whole, whole.fields[n], exact=is_exact) for n in names}
    return replace(answer, extents={n: extent for n, extent in each.items() if extent is not None})


def query_spread(
    request: SeriesRequest, table: Table, ids: Sequence[int], now: float, *, since: float = 0.0
) -> Series:
    """Read things side by side: the mean over all of them, and the extremes of any.

    Columns are ``FIELD``, ``FIELD_min`` and ``FIELD_max``; ``request.kind`` says what their digits
    are like, ``request.id`` is not looked at. Nothing from before or after the span is in them: of
    roll-ups across its ends what lies outside is not known, so that they are left out. Rows from
    ``since`` (Unix s) on are given, in the buckets of the whole span. Four queries for each part of
    the span. Raises :class:`ParameterError` where it is too much.
    """
    tier = _tier(request, len(ids))
    step_s = step_for(request.start, request.end, request.points, tier.width_s)
    # How wide buckets are is known once readings are, and the first one is to be whole.
    start = max(request.start, math.floor(since / step_s) * step_s - MAX_GAP_S)
    window = Window(start, request.end)
    found = fetch(table, ids, request.fields, window, tier, now, stats=_BAND, exact=True)
    inside = (found.points.t >= start) & (found.points.t + found.points.width_s <= request.end)
    order = np.flatnonzero(inside)[np.argsort(found.points.t[inside], kind="stable")]
    points, stood_s = found.points.at(order), found.stood_s[order]
    least_s = max(points.widest_s, float(points.cadence_s.max(initial=0.0)), tier.width_s)
    step_s = step_for(request.start, request.end, request.points, least_s)
    buckets = chosen(in_buckets(points, step_s, stood_s), request.fields)
    wanted = buckets.at(buckets.t >= math.floor(since / step_s) * step_s)
    return _answer(request, step_s, _as_they_are(wanted, _BAND), [found])


def _bin_s(request: SeriesRequest, tier: Tier) -> int:
    """Return how wide buckets of roll-ups may be where only means over them are given; 0: none."""
    if request.method is not Method.MEAN or tier is Tier.RAW or request.kind is Kind.JOB:
        return 0
    step_s = step_for(request.start, request.end, request.points, tier.width_s)
    return int(step_s) if step_s > tier.width_s and step_s % tier.width_s == 0 else 0


def _with_extremes(
    request: SeriesRequest,
    members: Members,
    sources: Sources,
    points: Points,
    step_s: float,
    now: float,
) -> tuple[Points, bool]:
    """Return the rows of a group with their extremes, and whether those are of readings.

    They cost the readings of all parts: for a chart few are read, for extents as many as may be,
    and of places none.
    """
    is_wanted = request.extents or request.method is Method.MINMAX
    if not len(points) or not is_wanted or request.kind in PLACES:
        return points, False
    if not sources.are_readings:
        most = MOST_ROWS if request.extents else _READINGS_FOR_A_CHART
        length_s = request.end - request.start
        if len(members) * length_s / LIKELY_CADENCE_S > most:
            return groups.with_metered_extremes(members, sources, points), False
        names = [name for name in request.fields if name not in SUMS]
        window = Window(request.start - MAX_GAP_S, request.end)
        finer = groups.read(members, names, window, Tier.RAW, now)
        if not finer.are_readings:
            return groups.with_metered_extremes(members, sources, points), False
        sources = finer
    return groups.with_extremes(members, sources, points, step_s), True


def _tier(request: SeriesRequest, sources: int) -> Tier:
    """Return the tier that is asked for, or the one that the points can show and we can read."""
    length_s = request.end - request.start
    rows = request.points if request.method is Method.MEAN else request.points // 2
    # A place has many things: roll-ups by the minute are as fine as its chart needs.
    step_s = max(length_s / rows, 60.0) if request.kind in PLACES else length_s / rows
    wanted = request.tier or coarsest_for(step_s)
    found = affordable(wanted, sources, length_s)
    if found is None or (request.tier and found is not request.tier):
        raise ParameterError(
            "tier" if found else "range",
            f"{length_s / 86_400:.3g} days of {sources} sources are too many rows: "
            + ("choose a coarser tier" if found else "ask for a shorter span"),
        )
    return found


# --- Thinning ------------------------------------------------------------------------------------

#: Times, columns, and the places of the rows before which readings are missing.
_Thinned: TypeAlias = tuple[Array, dict[str, Array], Array]


def _fits(request: SeriesRequest, points: Points) -> bool:
    return len(points) + len(points.gaps()) <= request.points


def _as_they_are(points: Points, stats: Sequence[str] = ()) -> _Thinned:
    columns = {name: each.value for name, each in points.fields.items()}
    for stat in stats:
        attribute = {"min": "least", "max": "greatest", "p95": "p95"}[stat]
        for name, each in points.fields.items():
            if over_time(name) is Over.MEAN:
                columns[f"{name}_{stat}"] = getattr(each, attribute)
    return points.t, columns, points.gaps()


def _thinned(request: SeriesRequest, points: Points) -> tuple[float | None, _Thinned]:
    """Return the step and the rows by ``minmax`` or ``mean``."""
    widest_s = points.widest_s
    if not widest_s and _fits(request, points):
        return None, _as_they_are(points, request.stats)
    rows = request.points if request.method is Method.MEAN else request.points // 2
    cadence_s = float(points.cadence_s.max(initial=0.0))
    step_s = widest_s
    if not widest_s or buckets_in(request.start, request.end, widest_s) > rows:
        step_s = step_for(request.start, request.end, rows, max(widest_s, cadence_s))
    if request.method is Method.MINMAX:
        return step_s, thin.minmax(points, step_s)
    return step_s, _as_they_are(in_buckets(points, step_s), request.stats)


def _by_triangles(request: SeriesRequest, points: Points) -> _Thinned:
    (name,) = request.fields
    values = points.fields[name].value
    known = np.flatnonzero(~np.isnan(values))
    gaps = points.gaps()
    count = max(3, request.points - len(gaps))
    places = known[thin.lttb(points.t[known], values[known], count)] if len(known) else known
    # A gap stands between two rows that are left where there was one between them.
    before = np.searchsorted(gaps, places, side="right")
    kept = np.flatnonzero(np.diff(before) > 0) + 1
    return points.t[places], {name: values[places]}, kept


def buckets_in(start: float, end: float, step_s: float) -> int:
    """Return how many buckets of ``step_s`` the span touches."""
    return math.ceil(end / step_s) - math.floor(start / step_s)


def step_for(start: float, end: float, points: int, at_least_s: float) -> float:
    """Return the least bucket width (s) that gives ``points`` or fewer, ``at_least_s`` wide."""
    for step_s in _STEPS_S:
        if step_s >= at_least_s and buckets_in(start, end, step_s) <= points:
            return float(step_s)
    return float(math.ceil(max((end - start) / (points - 1), at_least_s)))


def _settled(points: Points, now: float) -> Points:
    """Leave out rows at the end for which parts have yet to report: a dip that never was."""
    parts = [points.fields[name].value for name in ("nodes_reporting", "gpus_reporting")]
    usual = [part[-_USUAL_ROWS:].max(initial=0) for part in parts]
    end = len(points)
    while end:
        fewer = any(part[end - 1] < most for part, most in zip(parts, usual, strict=True))
        if not fewer or points.t[end - 1] + points.width_s[end - 1] <= now - _SETTLING_S:
            break
        end -= 1
    return points.at(slice(end))


# --- The answer ----------------------------------------------------------------------------------


def _answer(
    request: SeriesRequest, step_s: float | None, thinned: _Thinned, sources: Iterable[Found]
) -> Series:
    """Return the answer; the first of ``sources`` says which tiers it is from."""
    t, columns, gaps = thinned
    read = list(sources)
    parts = (
        Part(part.tier, max(part.start, request.start), part.end)
        for part in (read[0].parts if read else ())
        if part.end > request.start
    )
    newest_at = max((each.points.newest_at for each in read if len(each.ids)), default=None)
    with_gaps = np.insert(t, gaps, (t[gaps - 1] + t[gaps]) / 2)
    listed: dict[str, Column] = {"t": with_gaps.tolist()}
    for name, values in columns.items():
        field = name.removesuffix("_min").removesuffix("_max").removesuffix("_p95")
        field = name if name in request.fields else field
        listed[name] = _listed(request.kind, field, np.insert(values, gaps, np.nan))
    return Series(step_s, listed, tuple(parts), newest_at)


def _listed(kind: Kind, name: str, values: Array) -> Column:
    """Return a column with as many digits as its readings have, and None where one is missing."""
    missing = np.isnan(values)
    exact: list[float]
    if is_whole(kind, name):
        exact = np.where(missing, 0, values).round().astype("i8").tolist()
    elif is_single(kind, name):
        # By way of text: the shortest that is the same number in 24 bits.
        exact = values.astype("f4").astype(str).astype("f8").tolist()
    else:
        exact = values.tolist()
    if not missing.any():
        return [*exact]
    return [None if gone else value for gone, value in zip(missing.tolist(), exact, strict=True)]


# --- What it is made of --------------------------------------------------------------------------


def _ensure_known(request: SeriesRequest) -> None:
    models = {Kind.GPU: Gpu, Kind.HOST: Node, Kind.LINK: Link, Kind.METER: Meter}
    model = models.get(request.kind)
    # Jobs have no inventory: one that never reported has an empty series.
    if model is not None and not model._default_manager.filter(pk=request.id).exists():
        raise NotFound(f"there is no {request.kind} {request.id}")


def _members(request: SeriesRequest) -> Members:
    if request.kind is Kind.JOB:
        return _carriers(request)
    if request.kind in PLACES:
        return _of_place(request)
    of_rack = request.kind is Kind.RACK
    if of_rack and not Rack.objects.filter(pk=request.id).exists():
        raise NotFound(f"there is no rack {request.id}")
    nodes = Node.objects.filter(**{"rack_id" if of_rack else "pk": request.id})
    node_ids = list(nodes.values_list("pk", flat=True))
    if not of_rack and not node_ids:
        raise NotFound(f"there is no node {request.id}")
    measured = Q(node__in=node_ids)
    if of_rack:
        measured |= Q(rack_id=request.id)
    meters = Meter.objects.filter(measured, kind=MeterKind.POWER)
    return Members(
        gpus=dict(Gpu.objects.filter(node__in=node_ids).values_list("pk", "node_id")),
        meters={pk: node or 0 for pk, node in meters.values_list("pk", "node_id")},
        nodes=node_ids,
    )


def _of_place(request: SeriesRequest) -> Members:
    """Return the nodes of a place, with the share of each that it carries. Two queries."""
    fleet = snapshot.current()
    table = {Kind.ZONE: fleet.zones, Kind.POWER_DOMAIN: fleet.domains, Kind.SITE: fleet.sites}[
        request.kind
    ]
    row = table.index_by_id.get(request.id)
    if row is None:
        raise NotFound(f"there is no {request.kind.replace('_', ' ')} {request.id}")
    share = _share(fleet, request.kind, row)[fleet.nodes.rack]
    nodes = np.flatnonzero(share)
    gpus = np.flatnonzero(share[fleet.gpus.node])
    if len(nodes) + len(gpus) > MOST_SUMMED:
        raise ParameterError(
            "id",
            f"{len(gpus)} GPUs are too many to sum up at once: ask for the racks of this place",
        )
    ids = fleet.nodes.ids[nodes].tolist()
    meters = Meter.objects.filter(node__in=ids, kind=MeterKind.POWER)
    of_gpus = fleet.nodes.ids[fleet.gpus.node[gpus]].tolist()
    return Members(
        gpus=dict(zip(fleet.gpus.ids[gpus].tolist(), of_gpus, strict=True)),
        meters=dict(meters.values_list("pk", "node_id")),
        nodes=ids,
        shares=dict(zip(ids, share[nodes].tolist(), strict=True)),
    )


def _share(fleet: FleetArrays, kind: Kind, row: int) -> Array:
    """Return the share of each rack's draw that a place carries."""
    if kind is Kind.POWER_DOMAIN:
        return carried_share(fleet, row)
    here = fleet.racks.zone if kind is Kind.ZONE else fleet.racks.site
    return np.asarray((here == row).astype("f8"))


def _carriers(request: SeriesRequest) -> Members:
    """Return the GPUs that carried the job: those of past hours, and those that carry it now."""
    with connection.cursor() as cursor:
        window = Window(request.start, request.end)
        gpus = carriers.of_job(cursor.cursor, request.id, window)
    now = np.flatnonzero(frame.read().gpu["job_id"] == request.id)
    ids = np.union1d(gpus, now).tolist()
    return Members(
        gpus=dict(Gpu.objects.filter(pk__in=ids).values_list("pk", "node_id")), job=request.id
    )


def _with_own(request: SeriesRequest, points: Points, step_s: float, now: float) -> Points:
    """Add the job's own reports to the fields of its GPUs."""
    names = [name for name in request.fields if name not in points.fields]
    if not names:
        return points
    window, tier = Window(request.start, request.end), _tier(request, 1)
    own = fetch(TABLES[Kind.JOB], [request.id], names, window, tier, now)
    return points.joined(in_buckets(own.points, step_s))
