"""The figure of one attempt: of its own GPUs, from when it was let go until it ended.

What is read of a GPU before or after is another's. Reports of training loops count where they name
the attempt or its phase; those that name the job alone only where no other attempt of it overlaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from accounts.visibility import Visibility
from admission.directives.models import Directive
from admission.directives.visible import directives
from admission.jobs.models import Attempt, JobEvent
from admission.learned.energy import gpus_of
from fleet.tables import FleetArrays
from policies import scoped
from policies.restrictions import spans as restricted
from policies.scopes import Scope, ScopeKind
from telemetry.figures import place as places
from telemetry.figures.model import Absent, Figure, Lane, Line, Mark, Role, Row
from telemetry.figures.place import Look, Place, RowSpec
from telemetry.models import CheckpointFact, ReportedJob
from telemetry.series import Kind
from telemetry.spans import Span

__all__ = ["figure", "lived", "reporting", "rows", "steps"]

_JOB_ROWS = (
    RowSpec("loss", "Training loss", "", Kind.JOB, (Line("loss", "loss"),)),
    RowSpec(
        "step_time", "Time of a step", "s", Kind.JOB,
        (
            Line("step_time_s", "step"), Line("step_time_s", "least to greatest", Role.BAND),
            Line("data_wait_s", "waits for data"), Line("sync_s", "waits for gradients"),
        ),
    ),
)  # fmt: skip
_STEP_ROW = RowSpec("step", "Step", "", Kind.JOB, (Line("step", "step"),))
#: Of events and directives so many are told of, the newest.
_MOST = 500
#: Events that tell why it waited: an attempt does not wait any more.
_WAITING = "reason"


def lived(attempt: Attempt, now: datetime) -> Span:
    """Return the time in which an attempt held its GPUs, so far: a second at least."""
    start = attempt.dispatched_at.timestamp()
    end = (attempt.ended_at or now).timestamp()
    return Span(start, max(end, start + 1.0), live=attempt.ended_at is None)


def figure(attempt: Attempt, look: Look, fleet: FleetArrays, visibility: Visibility) -> Figure:
    """Return the figure of an attempt within ``look``, which lies in its life. Some 25 queries.

    ``attempt`` comes with its phase and job. Raises :class:`telemetry.spans.ParameterError`.
    """
    read = rows(attempt, look, fleet)
    place = _place(attempt, fleet)
    return Figure(
        start=look.span.start,
        end=look.span.end,
        live=look.span.live,
        rows=[row for row in read if isinstance(row, Row)],
        absent=[each for each in read if isinstance(each, Absent)],
        lanes=_lanes(attempt, place, look, fleet, visibility),
        marks=[*places.marks(place, look.span), *_marks(attempt, look.span, visibility)],
        since=look.since or None,
    )


def rows(attempt: Attempt, look: Look, fleet: FleetArrays) -> list[Row | Absent]:
    """Return what was read of an attempt, by row. Raises as :func:`figure` does."""
    read = [
        *places.read_rows(_JOB_ROWS, reporting(attempt, look.span), look),
        *places.rows(_place(attempt, fleet), fleet, look),
    ]
    return [_with_cap(row, attempt) if isinstance(row, Row) else row for row in read]


def steps(attempt: Attempt, look: Look) -> Row | None:
    """Return the step that an attempt had reached, by time; None: its loop told of none."""
    (found,) = places.read_rows((_STEP_ROW,), reporting(attempt, look.span), look)
    return found if isinstance(found, Row) else None


def _place(attempt: Attempt, fleet: FleetArrays) -> Place:
    gpus = gpus_of(attempt, fleet)
    return Place(gpus, _nodes_of(gpus, fleet))


def _nodes_of(gpus: Sequence[int], fleet: FleetArrays) -> list[int]:
    rows = {int(fleet.gpus.node[fleet.gpus.index_by_id[gpu]]) for gpu in gpus}
    return sorted(int(fleet.nodes.ids[row]) for row in rows)


def reporting(attempt: Attempt, span: Span) -> list[int]:
    """Return the ids under which its training loop reports, and nobody else's. Two queries."""
    overlapping = Attempt.objects.overlapping(span.start_at, span.end_at)
    others = overlapping.filter(phase__job=attempt.phase.job_id).exclude(pk=attempt.pk)
    job, *names = attempt.reports_as
    if not others.exists():
        names.append(job)
    return list(ReportedJob.objects.filter(name__in=names).values_list("pk", flat=True))


def _with_cap(row: Row, attempt: Attempt) -> Row:
    """Add the cap under which it was placed to its power."""
    cap_w = attempt.placement.get("power_cap_w")
    if row.key != "power" or not cap_w:
        return row
    placed = Line("", "placed at", Role.LIMIT, value=float(cap_w))
    return replace(row, lines=(*row.lines, placed))


# --- What was done to it -------------------------------------------------------------------------


def _lanes(
    attempt: Attempt, place: Place, look: Look, fleet: FleetArrays, visibility: Visibility
) -> list[Lane]:
    now = datetime.fromtimestamp(look.now, UTC)
    scopes = restricted.around(fleet, place.gpus)
    scopes |= {
        Scope(ScopeKind.JOB, attempt.phase.job.name),
        Scope(ScopeKind.CLASS, attempt.phase.job.job_class),
    }
    return [
        *_own(attempt),
        *places.lanes(place, look.span),
        *_directives(attempt, visibility),
        *restricted.lanes(scoped.on(scopes), look.span, visibility, now),
    ]


def _own(attempt: Attempt) -> list[Lane]:
    """Return when it was starting, or starting again, and when it ran."""
    dispatched = attempt.dispatched_at.timestamp()
    began, ended = (
        None if at is None else at.timestamp() for at in (attempt.started_at, attempt.ended_at)
    )
    starting = "starting" if attempt.number == 1 else "restarting"
    why = "let go, not begun everywhere yet"
    found = [Lane(starting, "attempt", [(dispatched, began or ended)], [why])]
    if began is not None:
        state = attempt.outcome or attempt.state
        found.append(
            Lane("running", "attempt", [(began, ended)], [f"attempt {attempt.number}: {state}"])
        )
    return found


def _directives(attempt: Attempt, visibility: Visibility) -> list[Lane]:
    rows = Directive.objects.filter(attempt=attempt).order_by("-issued_at", "-pk")
    seen = rows.prefetch_related("events").select_related("attempt")[:_MOST]
    by_kind: dict[str, list[Directive]] = defaultdict(list)
    for row in directives(seen, visibility):
        by_kind[row.kind].append(row)
    return [
        Lane(kind, "directive", [_lease(row) for row in rows], [_said(row) for row in rows])
        for kind, rows in by_kind.items()
    ]


def _lease(row: Directive) -> tuple[float, float | None]:
    """Return the span in which a directive was in force; of one that is done once a short one."""
    end = row.ended_at or (None if row.is_lasting else row.applied_at or row.issued_at)
    return row.issued_at.timestamp(), None if end is None else end.timestamp()


def _said(row: Directive) -> str:
    value = "" if row.value is None else f" {row.value:g}"
    kind = row.get_kind_display().lower()
    return f"{kind}{value}, {row.outcome or row.state}, by {row.owner}: {row.reason}"


def _marks(attempt: Attempt, span: Span, visibility: Visibility) -> list[Mark]:
    """Return its history, its checkpoints as far as they are known, and how it ended."""
    within = (span.start_at, span.end_at)
    events = attempt.phase.job.events.filter(
        phase__in=("", attempt.phase.name), at__range=within
    ).exclude(kind=_WAITING)
    seen = visibility.veiled(events.order_by("-at", "-id")[:_MOST], "text")
    return [*map(_event, seen), *_checkpoints(attempt, span), *_ending(attempt, span)]


def _event(row: JobEvent) -> Mark:
    return Mark(row.at.timestamp(), "history", f"{row.kind}: {row.text[:200]}")


def _checkpoints(attempt: Attempt, span: Span) -> list[Mark]:
    """Return the last checkpoint that is known at each site, and the last that it told of."""
    facts = CheckpointFact.objects.filter(
        job=attempt.phase.job.name, saved_at__range=(span.start_at, span.end_at)
    ).select_related("site")
    found = {
        fact.saved_at: f"step {fact.step}, whole at {fact.site}" for fact in facts if fact.saved_at
    }
    if attempt.checkpoint_at and span.start <= attempt.checkpoint_at.timestamp() <= span.end:
        found.setdefault(attempt.checkpoint_at, "the last one")
    return [_checkpoint(at, text) for at, text in found.items()]


def _checkpoint(at: datetime, text: str) -> Mark:
    return Mark(at.timestamp(), "checkpoint", f"checkpoint: {text}")


def _ending(attempt: Attempt, span: Span) -> Iterable[Mark]:
    failed = (Attempt.Outcome.FAILED, Attempt.Outcome.LOST)
    if attempt.ended_at is not None and attempt.outcome in failed:
        at = attempt.ended_at.timestamp()
        if span.start <= at <= span.end:
            yield Mark(at, "failure", f"{attempt.outcome}: {attempt.why}", is_bad=True)
