"""What was read at a place over a span, and what its GPUs went through meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet.tables import FleetArrays
from headroom.contracts import ThrottleCause
from telemetry import samples, series
from telemetry.faults import xids
from telemetry.faults.models import EccEvent
from telemetry.figures.model import Absent, Lane, Line, Mark, Role, Row
from telemetry.models import Mount, ThrottleEvent, XidEvent
from telemetry.samples import Table
from telemetry.series import Column, Kind, Method, SeriesRequest
from telemetry.spans import ParameterError, Span
from telemetry.throttle.rules import Severity
from telemetry.timeline.fields import TABLES

__all__ = ["Look", "Place", "RowSpec", "lanes", "marks", "read_rows", "rows"]

#: So many errors are told of each kind, the newest ones.
_MOST_ERRORS = 500


@dataclass(frozen=True, slots=True)
class Look:
    """How a figure is looked at: its span, and how finely.

    ``since``: readings from before are not wanted, Unix s.
    """

    span: Span
    points: int
    now: float
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs, and the nodes whose links and mounts they use, by id."""

    gpus: Sequence[int]
    nodes: Sequence[int]


@dataclass(frozen=True, slots=True)
class RowSpec:
    """A row that a figure has where its readings are there."""

    key: str
    title: str
    unit: str
    kind: Kind
    lines: tuple[Line, ...]
    table: Table | None = None
    note: str = ""


def _over_gpus(field: str) -> tuple[Line, ...]:
    return (Line(field, "mean"), Line(field, "least to greatest", Role.BAND))


_GPU_ROWS = (
    RowSpec(
        "power", "Power of a GPU", "W", Kind.GPU,
        (*_over_gpus("power_w"), Line("power_limit_w_min", "lowest cap", Role.LIMIT)),
    ),
    RowSpec(
        "temperature", "GPU temperature", "°C", Kind.GPU,
        (*_over_gpus("temp_c"), Line("temp_limit_c_min", "slowdown", Role.LIMIT)),
    ),
    RowSpec("clock", "SM clock", "MHz", Kind.GPU, _over_gpus("sm_mhz")),
    RowSpec(
        "memory_bandwidth", "Memory bandwidth in use", "%", Kind.GPU, _over_gpus("mem_bw_util")
    ),
    RowSpec("fan", "Fan speed", "%", Kind.GPU, _over_gpus("fan")),
)  # fmt: skip
_NETWORK = RowSpec(
    "retransmits", "Network retransmits", "1/s", Kind.LINK, _over_gpus("retransmits_per_s"),
    note="of the links of its nodes",
)  # fmt: skip
_STORAGE = RowSpec(
    "storage", "Storage latency", "s", Kind.HOST,
    (
        Line("fsync_s", "write"), Line("fsync_s", "write, least to greatest", Role.BAND),
        Line("read_s", "read"),
    ),
    table=samples.STORAGE, note="as probed on the mounts of its nodes",
)  # fmt: skip


def rows(place: Place, fleet: FleetArrays, look: Look) -> list[Row | Absent]:
    """Return what was read of a place: GPUs, links, storage. Four queries for each of the three."""
    of_nodes = np.isin(fleet.links.node, [fleet.nodes.index_by_id.get(n, -2) for n in place.nodes])
    links = [int(each) for each in fleet.links.ids[of_nodes]]
    mounts = list(Mount.objects.filter(node__in=place.nodes).values_list("pk", flat=True))
    return [
        *(_with_rating(row, place, fleet) for row in read_rows(_GPU_ROWS, place.gpus, look)),
        *read_rows((_NETWORK,), links, look),
        *read_rows((_STORAGE,), mounts, look),
    ]


def read_rows(specs: Sequence[RowSpec], ids: Sequence[int], look: Look) -> list[Row | Absent]:
    """Return rows of the same things. Four queries for each tier that answers."""
    if not ids:
        return [Absent(spec.title) for spec in specs]
    fields = {_field_of(line) for spec in specs for line in spec.lines if line.value is None}
    wanted = SeriesRequest(
        kind=specs[0].kind, id=0, fields=tuple(sorted(fields)), start=look.span.start,
        end=look.span.end, points=look.points, method=Method.MEAN,
    )  # fmt: skip
    table = specs[0].table or TABLES[specs[0].kind]
    try:
        found = series.query_spread(wanted, table, ids, look.now, since=look.since)
    except ParameterError as error:
        return [Absent(spec.title, f"too much to read: {error}") for spec in specs]
    return [_row(spec, found.columns, found.step_s) for spec in specs]


def _field_of(line: Line) -> str:
    return line.field.removesuffix("_min") if line.role is Role.LIMIT else line.field


def _row(spec: RowSpec, columns: Mapping[str, Column], step_s: float | None) -> Row | Absent:
    lines = tuple(line for line in spec.lines if _is_known(line, columns))
    if all(line.role is Role.LIMIT for line in lines):
        return Absent(spec.title)
    names = ["t", *dict.fromkeys(name for line in lines for name in _columns_of(line))]
    kept = {name: columns[name] for name in names}
    return Row(spec.key, spec.title, spec.unit, lines, kept, step_s, spec.note)


def _is_known(line: Line, columns: Mapping[str, Column]) -> bool:
    if line.value is not None:
        return True
    return all(any(v is not None for v in columns[name]) for name in _columns_of(line))


def _columns_of(line: Line) -> tuple[str, ...]:
    if line.value is not None:
        return ()
    is_band = line.role is Role.BAND
    return (f"{line.field}_min", f"{line.field}_max") if is_band else (line.field,)


def _with_rating(row: Row | Absent, place: Place, fleet: FleetArrays) -> Row | Absent:
    """Return a row with the rating of its GPUs as a limit, where readings do not tell one."""
    if isinstance(row, Absent) or any(line.role is Role.LIMIT for line in row.lines):
        return row
    known = [fleet.gpus.index_by_id[gpu] for gpu in place.gpus if gpu in fleet.gpus.index_by_id]
    ratings = {
        "temperature": ("rated slowdown", fleet.gpus.slowdown_c),
        "clock": ("rated highest", fleet.gpus.sm_max_mhz),
    }
    if row.key not in ratings:
        return row
    name, values = ratings[row.key]
    least = float(np.nanmin(values[known], initial=np.inf))
    if not 0.0 < least < np.inf:
        return row
    return replace(row, lines=(*row.lines, Line("", name, Role.LIMIT, value=least)))


# --- What its GPUs went through ------------------------------------------------------------------


def lanes(place: Place, span: Span) -> list[Lane]:
    """Return throttling by cause, that of several GPUs at once as one span. One query."""
    events = ThrottleEvent.objects.filter(gpu__in=place.gpus)
    found = events.spans_by_cause(span.start_at, span.end_at)
    return [
        Lane(
            ThrottleCause(cause).token, "throttle", [(a.timestamp(), b.timestamp()) for a, b in on]
        )
        for cause, on in sorted(found.items())
    ]


def marks(place: Place, span: Span) -> list[Mark]:
    """Return Xid and memory errors of its GPUs. Two queries."""
    within = (span.start_at, span.end_at)
    logged = XidEvent.objects.filter(gpu__in=place.gpus, ts__range=within)
    counted = EccEvent.objects.filter(gpu__in=place.gpus, at__range=within)
    found = []
    for row in logged.select_related("gpu__node")[:_MOST_ERRORS]:
        meaning = xids.meaning_of(row.xid)
        text = f"Xid {row.xid} of {row.gpu}: {meaning.title}"
        found.append(Mark(row.ts.timestamp(), "xid", text, meaning.severity is Severity.CRITICAL))
    for each in counted.select_related("gpu__node")[:_MOST_ERRORS]:
        text = f"{each.count} uncorrected memory error{'s' * (each.count != 1)} of {each.gpu}"
        found.append(Mark(each.at.timestamp(), "ecc", text, is_bad=True))
    return found
