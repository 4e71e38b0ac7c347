"""Two attempts on one axis by the step of their loops, and what they were given that differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from django.db.models import Q

from admission.core.differences import Difference, Given, differences
from admission.directives.models import Directive
from admission.jobs.models import Attempt, JobRevision
from admission.learned.energy import gpus_of
from admission.timeline import reading
from fleet.tables import FleetArrays
from policies.restrictions.kinds import LIMITS, gpus_in
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind, UnknownScope
from telemetry.figures.by_step import by_step
from telemetry.figures.model import Figure, Row, row_told, table
from telemetry.figures.place import Look
from telemetry.series import Column

__all__ = ["Compared", "Run", "columns", "compare", "differing", "told"]

#: Of directives and restrictions so many at most are told of.
_MOST = 20


@dataclass(frozen=True, slots=True)
class Run:
    """An attempt by step. ``rows`` have it in the column ``t``; ``why``: why there are none."""

    attempt: str
    rows: Sequence[Row]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs, and what differs in what they were given."""

    this: Run
    other: Run
    differences: Sequence[Difference]


def compare(
    this: Attempt, other: Attempt, points: int, now: datetime, fleet: FleetArrays
) -> Compared:
    """Return two attempts, which come with phase and job, by step. Some 40 queries.

    ``now`` is a moment. Raises :class:`telemetry.spans.ParameterError`.
    """
    found = differing(this, other, now, fleet)
    return Compared(_run(this, points, now, fleet), _run(other, points, now, fleet), found)


def differing(this: Attempt, other: Attempt, now: datetime, fleet: FleetArrays) -> list[Difference]:
    """Return what differs in what two attempts were given. Six queries."""
    return differences(*(_given(each, now, fleet) for each in (this, other)))


def columns(found: Compared) -> dict[str, Column]:
    """Return both runs as one table for a file: ``step``, ``this_FIELD`` and ``other_FIELD``."""
    rows = [
        replace(row, columns={
            name if name == "t" else f"{side}_{name}": values
            for name, values in row.columns.items()
        })
        for side, run in (("this", found.this), ("other", found.other))
        for row in run.rows
    ]  # fmt: skip
    told = table(Figure(0.0, 0.0, live=False, rows=rows))
    return {"step": told.pop("t"), **told}


def told(found: Compared) -> dict[str, Any]:
    """Return both runs for JSON and MessagePack, each row with a column ``step``."""
    return {
        "this": _told(found.this),
        "other": _told(found.other),
        "differences": [dataclasses.asdict(each) for each in found.differences],
    }


def _told(run: Run) -> dict[str, Any]:
    rows = [row_told(row) for row in run.rows]
    for row in rows:
        row["columns"] = {"step" if n == "t" else n: v for n, v in row["columns"].items()}
    return {"attempt": run.attempt, "why": run.why, "rows": rows}


def _run(attempt: Attempt, points: int, now: datetime, fleet: FleetArrays) -> Run:
    look = Look(reading.lived(attempt, now), points, now.timestamp())
    steps = reading.steps(attempt, look)
    if steps is None:
        return Run(attempt.key, (), "its loop has told of no steps")
    read = [row for row in reading.rows(attempt, look, fleet) if isinstance(row, Row)]
    rows = by_step(read, steps)
    return Run(attempt.key, rows, "" if rows else "nothing was read while it made steps")


def _given(attempt: Attempt, now: datetime, fleet: FleetArrays) -> Given:
    rows = [fleet.gpus.index_by_id[gpu] for gpu in gpus_of(attempt, fleet)]
    models = [str(fleet.models.names[model]) for model in fleet.gpus.model[rows]]
    return Given(attempt.placement, _phase(attempt), models, _limits(attempt, rows, now, fleet))


def _phase(attempt: Attempt) -> dict[str, Any]:
    """Return its phase of the specification that was in force when it began."""
    job = attempt.phase.job
    later = JobRevision.objects.filter(job=job, replaced_at__gt=attempt.dispatched_at)
    first = later.order_by("replaced_at").first()
    spec = job.spec if first is None else first.spec
    phases = [each for each in spec.get("phases", ()) if each["name"] == attempt.phase.name_in_spec]
    return dict(phases[0]) if phases else {}


def _limits(attempt: Attempt, rows: Sequence[int], now: datetime, fleet: FleetArrays) -> list[str]:
    """Return the limits that were in force for an attempt at some time, in words."""
    until = attempt.ended_at or now
    told = Directive.objects.filter(attempt=attempt, applied_at__isnull=False)
    limiting = told.filter(kind__in=_LIMITING).order_by("applied_at")[:_MOST]
    lasting = Q(ended_at=None) | Q(ended_at__gt=attempt.dispatched_at)
    restrictions = Restriction.objects.filter(
        lasting, kind__in=LIMITS, effect_at__lt=until, expires_at__gt=attempt.dispatched_at
    ).order_by("effect_at")  # fmt: skip
    here = [each for each in restrictions if _holds(each, rows, fleet)][:_MOST]
    return [
        *(f"{each.get_kind_display()} {_value(each.value)}".strip() for each in limiting),
        *(f"{each.kind} {_value(each.value)}".strip() for each in here),
    ]


_LIMITING = (
    Directive.Kind.SET_POWER_CAP,
    Directive.Kind.SET_BATCH_SCALE,
    Directive.Kind.PAUSE,
)


def _holds(restriction: Restriction, rows: Sequence[int], fleet: FleetArrays) -> bool:
    scope = Scope(ScopeKind(restriction.scope_kind), restriction.scope_name)
    try:
        return bool(np.any(gpus_in(fleet, scope)[list(rows)]))
    except UnknownScope:
        return False


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
