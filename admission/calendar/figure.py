"""The calendar of a site as a figure: what it is committed to, its budget, and what is planned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from admission.calendar.planned import Kind, Planned
from admission.core.ahead import Ahead
from telemetry.figures.model import Figure, Lane, Line, Mark, Role, Row
from telemetry.series import Column
from telemetry.spans import Span

__all__ = ["committed_row", "figure"]

#: What has a lane, from the top, and as what it is drawn.
_LANES = {
    Kind.RESERVATION: "info",
    Kind.MAINTENANCE: "pending",
    Kind.CURTAILMENT: "warning",
    Kind.RESTRICTION: "restriction",
}


def figure(span: Span, found: Ahead, planned: Sequence[Planned]) -> Figure:
    """Return the figure of one site; ``planned`` is what is planned there."""
    return Figure(
        start=span.start,
        end=span.end,
        live=False,
        rows=(committed_row(found),),
        lanes=[lane for kind in _LANES if (lane := _lane(kind, planned)).spans],
        marks=[
            Mark(each.begin_at, "deadline", each.what)
            for each in planned
            if each.kind is Kind.DEADLINE
        ],
    )


def committed_row(found: Ahead) -> Row:
    """Return what is committed beside the budget, W."""
    return Row(
        key="committed",
        title="Committed",
        unit="W",
        lines=(
            Line("committed_w", "committed at most"),
            Line("budget_w", "budget", Role.LIMIT),
        ),
        columns={
            "t": _column(found.at),
            "committed_w": _column(found.committed),
            "budget_w": _column(found.budget),
        },
        step_s=found.step_s,
        note="what runs until its walltime is up, what is booked, and all else as now",
    )


def _column(values: Iterable[float]) -> Column:
    return [None if math.isnan(value) else float(value) for value in values]


def _lane(kind: Kind, planned: Sequence[Planned]) -> Lane:
    mine = [each for each in planned if each.kind is kind]
    return Lane(
        key=kind,
        kind=_LANES[kind],
        spans=[(each.begin_at, each.end_at) for each in mine],
        texts=[_told(each) for each in mine],
    )


def _told(each: Planned) -> str:
    whose = f" for {each.project}" if each.project else ""
    if each.end_at is None:
        return f"{each.what}{whose}"
    return f"{each.what}{whose} until {datetime.fromtimestamp(each.end_at, UTC):%Y-%m-%d %H:%M} UTC"
