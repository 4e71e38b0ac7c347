"""A figure as the API and pages have it: columns throughout, in base units. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from telemetry.series import Column

__all__ = ["Absent", "Figure", "Lane", "Line", "Mark", "Role", "Row", "row_told", "table", "told"]


class Role(StrEnum):
    """What a line is: it decides how it is drawn."""

    MEAN = "mean"
    BAND = "band"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a row. Of a band the columns are ``FIELD_min`` and ``FIELD_max``.

    ``value``: a limit that is known without readings, such as a rating; it has no column.
    """

    field: str
    name: str
    role: Role = Role.MEAN
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Readings of one kind. ``columns`` have ``t`` (Unix s) and one list for each field."""

    key: str
    title: str
    unit: str
    lines: tuple[Line, ...]
    columns: Mapping[str, Column]
    #: s; None: readings as they are
    step_s: float | None = None
    #: what is to be known of where the readings are from
    note: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A row that is not drawn, and why."""

    title: str
    why: str = "not reported"


@dataclass(frozen=True, slots=True)
class Lane:
    """Spans of one kind, Unix s. ``end`` None: it goes on. ``texts`` has one for each, or none."""

    key: str
    kind: str
    spans: Sequence[tuple[float, float | None]]
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at once, Unix s."""

    at: float
    kind: str
    text: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """Rows, lanes and marks between ``start`` and ``end``, Unix s. ``live``: it goes on."""

    start: float
    end: float
    live: bool
    rows: Sequence[Row] = ()
    absent: Sequence[Absent] = ()
    lanes: Sequence[Lane] = field(default=())
    marks: Sequence[Mark] = field(default=())
    #: readings from before are not in it: who asked has them
    since: float | None = None


def told(figure: Figure) -> dict[str, Any]:
    """Return the figure for JSON and MessagePack."""
    marks = sorted(figure.marks, key=lambda mark: mark.at)
    return {
        "start": figure.start,
        "end": figure.end,
        "live": figure.live,
        "since": figure.since,
        "rows": [row_told(row) for row in figure.rows],
        "absent": [{"title": each.title, "why": each.why} for each in figure.absent],
        "lanes": [_lane(lane) for lane in figure.lanes],
        "marks": {
            "t": [mark.at for mark in marks],
            "kind": [mark.kind for mark in marks],
            "text": [mark.text for mark in marks],
            "bad": [mark.is_bad for mark in marks],
        },
    }


def row_told(row: Row) -> dict[str, Any]:
    """Return a row for JSON and MessagePack."""
    lines = [
        {"field": each.field, "name": each.name, "role": each.role, "value": each.value}
        for each in row.lines
    ]
    return {
        "key": row.key, "title": row.title, "unit": row.unit, "note": row.note,
        "step_s": row.step_s, "lines": lines, "columns": row.columns,
    }  # fmt: skip


def _lane(lane: Lane) -> dict[str, Any]:
    return {
        "key": lane.key,
        "kind": lane.kind,
        "start": [start for start, _ in lane.spans],
        "end": [end for _, end in lane.spans],
        "text": list(lane.texts),
    }


def table(figure: Figure) -> dict[str, Column]:
    """Return all rows as one table for a CSV file: ``t`` and the fields, None where missing.

    Rows have times of their own: each moment of any of them is one line.
    """
    times = sorted({t for row in figure.rows for t in row.columns["t"] if t is not None})
    place = {t: at for at, t in enumerate(times)}
    out: dict[str, Column] = {"t": [*times]}
    for row in figure.rows:
        for name, values in row.columns.items():
            if name == "t":
                continue
            column: Column = [None] * len(times)
            for t, value in zip(row.columns["t"], values, strict=True):
                column[place[t or 0.0]] = value
            out[name] = column
    return out
