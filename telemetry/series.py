"""Readings of one thing over a span of time, thinned to what a chart can show.

``query`` gives the readings as they are where they are few, and means over buckets of equal width
where they are many. A row of nulls stands where readings are missing, so that a line breaks there
and does not pretend.

Nodes and racks are put together from their parts, always in buckets, wide enough that every part
that reports at all has a reading in each. ``power_w`` of a node is its own power meter's where that
has readings in the bucket, else the sum of its GPUs' and of its host's, where the host reports any.
``power_w`` of a rack is its own meter's, else the sum over its nodes. ``gpus_reporting`` and
``nodes_reporting`` say how many parts a row rests on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from django.db import connection
from django.db.models import Q

from fleet.models import Gpu, Link, Meter, MeterKind, Node, Rack
from telemetry import samples, series_sql
from telemetry.series_sql import Column, PartIds, Window
from telemetry.spans import ParameterError, Span

__all__ = ["FIELDS", "Kind", "NotFound", "Series", "SeriesRequest", "parse", "query"]

DEFAULT_POINTS = 600
MIN_POINTS = 10
MAX_POINTS = 5000
#: Readings of the last moments may still be on their way, s.
_SETTLING_S = 15.0
#: How many rows say how many parts usually report.
_USUAL_ROWS = 10
#: Bucket widths, s: those in which a clock's face can be divided, so that refetching a live span
#: does not move the buckets.
_STEPS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600)


class Kind(StrEnum):
    """What a series is of. ``id`` is that of the GPU, node, rack, link, meter, node or job."""

    GPU = "gpu"
    NODE = "node"
    RACK = "rack"
    LINK = "link"
    METER = "meter"
    HOST = "host"
    JOB = "job"


_TABLES = {
    Kind.GPU: samples.GPU,
    Kind.HOST: samples.HOST,
    Kind.LINK: samples.LINK,
    Kind.METER: samples.METER,
    Kind.JOB: samples.JOB,
}
_GROUP_FIELDS = (*series_sql.POWER_FIELDS, *series_sql.ACROSS)
#: What may be asked for, by kind.
FIELDS: dict[Kind, tuple[str, ...]] = {
    **{
        kind: tuple(c.name for c in table.fields if c.name != "job_id")
        for kind, table in _TABLES.items()
    },
    Kind.NODE: _GROUP_FIELDS,
    Kind.RACK: _GROUP_FIELDS,
}
_MAIN = ("power_w", "power_limit_w", "temp_c", "sm_mhz", "util")
#: What is given when nothing is asked for.
DEFAULT_FIELDS: dict[Kind, tuple[str, ...]] = {
    **FIELDS,
    Kind.GPU: (*_MAIN, "throttle"),
    Kind.NODE: (*_MAIN, "throttle", "nodes_reporting", "gpus_reporting"),
    Kind.RACK: (*_MAIN, "throttle", "nodes_reporting", "gpus_reporting"),
}


class NotFound(LookupError):
    """The inventory has no such thing."""


@dataclass(frozen=True, slots=True)
class SeriesRequest:
    """What is asked for: ``fields`` of one thing from ``start`` up to ``end`` (Unix s)."""

    kind: Kind
    id: int
    fields: tuple[str, ...]
    start: float
    end: float
    points: int = DEFAULT_POINTS
    #: Give least and greatest reading of each bucket too. Only for kinds with one source.
    band: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """Columns of one length: ``t`` (Unix s) and the fields. ``step_s``: bucket width; None: raw."""

    step_s: float | None
    columns: dict[str, Column]


Rows: TypeAlias = list[tuple[float | None, ...]]


# --- What is asked for ---------------------------------------------------------------------------


def parse(params: Mapping[str, str], span: Span) -> SeriesRequest:
    """Read a request from a query string. Raises :class:`ParameterError`."""
    kind = _kind(params.get("kind", ""))
    band = _flag(params.get("band", ""), "band")
    if band and kind in (Kind.NODE, Kind.RACK):
        raise ParameterError("band", f"a {kind} has many sources; ask for a band of one of them")
    return SeriesRequest(
        kind=kind,
        id=_whole(params.get("id", ""), "id", 1, 2**31 - 1),
        fields=_fields(kind, params.get("fields", "")),
        start=span.start,
        end=span.end,
        points=_points(params.get("points", "")),
        band=band,
    )


def _kind(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise ParameterError("kind", f"give one of {', '.join(Kind)}") from None


def _fields(kind: Kind, text: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(name for name in text.split(",") if name))
    for name in chosen:
        if name not in FIELDS[kind]:
            raise ParameterError(
                "fields", f"a {kind} has no {name[:40]!r}; it has {', '.join(FIELDS[kind])}"
            )
    return chosen or DEFAULT_FIELDS[kind]


def _whole(text: str, field: str, least: int, most: int) -> int:
    if re.fullmatch(r"[0-9]{1,12}", text) and least <= int(text) <= most:
        return int(text)
    raise ParameterError(field, f"give a whole number from {least} to {most}")


def _points(text: str) -> int:
    return _whole(text, "points", MIN_POINTS, MAX_POINTS) if text else DEFAULT_POINTS


def _flag(text: str, field: str) -> bool:
    if text not in ("", "0", "1"):
        raise ParameterError(field, "give 0 or 1")
    return text == "1"


# --- What is answered ----------------------------------------------------------------------------


def query(request: SeriesRequest, now: float) -> Series:
    """Read the series. Raises :class:`NotFound`. Two to six queries."""
    if request.kind in (Kind.NODE, Kind.RACK):
        return _query_group(request, now)
    return _query_single(request)


def _query_single(request: SeriesRequest) -> Series:
    _ensure_known(request)
    table = _TABLES[request.kind]
    window = Window(request.start, request.end)
    with connection.cursor() as cursor:
        cadence_s = series_sql.cadence_s(cursor, table, [request.id], window)
        rows = series_sql.raw(cursor, table, request.id, request.fields, window, request.points + 1)
        if len(rows) <= request.points:
            rows, step_s = _with_band(rows, request.band), None
        else:
            step_s = step_for(request.end - request.start, request.points, cadence_s)
            rows = series_sql.bucketed(
                cursor, table, request.id, request.fields, window, step_s, band=request.band
            )
    names = [*request.fields, *(f"{f}_{end}" for f in request.fields for end in _ends(request))]
    return Series(step_s, columns(names, with_gaps(rows, gap_s(step_s, cadence_s))))


def _query_group(request: SeriesRequest, now: float) -> Series:
    parts = _parts(request)
    with connection.cursor() as cursor:
        window = Window(request.start, request.end)
        cadence_s = max(
            series_sql.cadence_s(cursor, table, ids, window) for table, ids in parts.sources()
        )
        # Twice the cadence: parts do not report in step with each other, and a bucket in which
        # one of them has no reading yet would show a dip that never was.
        step_s = step_for(request.end - request.start, request.points, 2 * cadence_s)
        window = Window(math.floor(request.start / step_s) * step_s, request.end)
        across = [name for name in request.fields if name in series_sql.ACROSS]
        by_time = series_sql.group(cursor, parts, across, window, step_s)
    rows = _settled([(t, *row) for t, row in sorted(by_time.items())], step_s, now)
    names = [*series_sql.POWER_FIELDS, *across]
    full = columns(names, with_gaps(rows, gap_s(step_s, cadence_s)))
    return Series(step_s, {name: full[name] for name in ("t", *request.fields)})


def _ends(request: SeriesRequest) -> tuple[str, ...]:
    return ("min", "max") if request.band else ()


def _with_band(rows: Rows, band: bool) -> Rows:
    """A reading is its own least and greatest."""
    if not band:
        return rows
    return [(*row, *(value for value in row[1:] for _ in range(2))) for row in rows]


def step_for(length_s: float, points: int, at_least_s: float) -> float:
    """Return the bucket width (s) that gives ``points`` buckets or fewer, ``at_least_s`` wide."""
    wanted = max(length_s / points, at_least_s)
    return float(next((step for step in _STEPS_S if step >= wanted), math.ceil(wanted)))


def gap_s(step_s: float | None, cadence_s: float) -> float:
    """Return the distance (s) between two rows from which on readings are missing in between."""
    # A reading that comes late, or one that is lost, is no gap.
    return max(1.5 * (step_s or 0.0), 2.5 * cadence_s)


def with_gaps(rows: Sequence[tuple[float | None, ...]], gap: float) -> Rows:
    """Return ``rows`` (time first) with a row of nulls in the middle of every gap."""
    filled: Rows = []
    last = math.inf
    for row in rows:
        t = row[0] or 0.0
        if gap and t - last > gap:
            filled.append(((last + t) / 2, *(None for _ in row[1:])))
        filled.append(row)
        last = t
    return filled


def columns(names: Sequence[str], rows: Rows) -> dict[str, Column]:
    """Turn rows (time first) into columns, ``t`` and ``names``."""
    turned = [list(column) for column in zip(*rows, strict=True)] if rows else []
    return dict(zip(("t", *names), turned or [[] for _ in range(len(names) + 1)], strict=True))


def _settled(rows: Rows, step_s: float, now: float) -> Rows:
    """Leave out rows at the end for which parts have yet to report: a dip that never was."""
    names = ("t", *series_sql.POWER_FIELDS)
    parts = [names.index("nodes_reporting"), names.index("gpus_reporting")]
    usual = [max((row[part] or 0 for row in rows[-_USUAL_ROWS:]), default=0) for part in parts]
    while rows:
        end = (rows[-1][0] or 0.0) + step_s
        fewer = any((rows[-1][p] or 0) < most for p, most in zip(parts, usual, strict=True))
        if not fewer or end <= now - _SETTLING_S:
            break
        rows = rows[:-1]
    return rows


# --- What it is made of --------------------------------------------------------------------------


def _ensure_known(request: SeriesRequest) -> None:
    models = {Kind.GPU: Gpu, Kind.HOST: Node, Kind.LINK: Link, Kind.METER: Meter}
    model = models.get(request.kind)
    # Jobs have no inventory: one that never reported has an empty series.
    if model is not None and not model._default_manager.filter(pk=request.id).exists():
        raise NotFound(f"there is no {request.kind} {request.id}")


def _parts(request: SeriesRequest) -> PartIds:
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
    return PartIds(
        gpus=dict(Gpu.objects.filter(node__in=node_ids).values_list("pk", "node_id")),
        meters={pk: node or 0 for pk, node in meters.values_list("pk", "node_id")},
        nodes=node_ids,
    )
