"""Follows directives from issue to verdict, and writes down each step once.

What is written rests on what the executor says (acknowledged, applied, undone) and on what was
measured (measured, verdict). All of it is stored, so a step that died is made good by the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction

from admission.directives import store
from admission.directives.effects import Effect, effect_of, outcome_of, words_of
from admission.directives.models import Directive, DirectiveEvent
from admission.directives.readings import trace_of
from admission.executors.protocol import WorkStatus
from admission.jobs.models import Attempt
from fleet.snapshot import FleetArrays

__all__ = ["FIRST_LOOK", "LAST_LOOK", "SETTLED", "follow"]

#: When what a directive did is looked at for the first time, and for the verdict.
FIRST_LOOK = timedelta(seconds=45)
LAST_LOOK = timedelta(seconds=180)
#: After an attempt has ended its GPUs are soon another's.
ENDED_LOOK = timedelta(seconds=25)
#: A gang's GPUs settle at idle within so long after its end, s.
_FALLS_WITHIN_S = 5.0
#: Readings are stored by then.
SETTLED = timedelta(seconds=15)
#: Looks at readings that one step makes; the next goes on.
_MOST_LOOKS = 50
_FIELDS = [
    "state", "applied_at", "undone_at", "outcome", "note", "is_closed", "ended_at", "ended_by",
    "ended_why",
]  # fmt: skip

#: How an attempt ends that was told to.
_ENDED_SO = (Attempt.Outcome.PREEMPTED, Attempt.Outcome.LOST)

_Line = DirectiveEvent.Kind
_State = Directive.State
_Kind = Directive.Kind


@dataclass
class _Work:
    """The fleet, the time, and the lines and changes gathered in one call."""

    fleet: FleetArrays
    now: datetime
    events: list[DirectiveEvent] = field(default_factory=list)
    changed: dict[int, Directive] = field(default_factory=dict)
    looks: int = 0

    def note(self, row: Directive, line: str, text: str, at: datetime, **data: object) -> None:
        row.note = text[:1000]
        self.events.append(store.note(row, line, at=at, text=text, **data))
        self.changed[row.pk] = row

    def may_look(self) -> bool:
        self.looks += 1
        return self.looks <= _MOST_LOOKS


@transaction.atomic
def follow(
    rows: Sequence[Directive],
    statuses: Mapping[str, WorkStatus],
    fleet: FleetArrays,
    *,
    now: datetime,
) -> int:
    """Write down the steps that are due for unfinished directives; return how many these were."""
    work = _Work(fleet, now)
    for row in rows:
        _progress(work, row, statuses.get(row.attempt.key))
        _looks(work, row)
        _finish(work, row, statuses.get(row.attempt.key))
    Directive.objects.bulk_update(list(work.changed.values()), _FIELDS, batch_size=500)
    store.save(work.events)
    return len(work.events)


# --- What the executor says -----------------------------------------------------------------------


def _progress(work: _Work, row: Directive, status: WorkStatus | None) -> None:
    is_open = row.state in (_State.ISSUED, _State.ACKNOWLEDGED)
    if row.kind in Directive.ENDING:
        # What ended an attempt needs no other answer. One that ended by itself did not do it.
        if is_open and row.attempt.outcome in _ENDED_SO and row.attempt.ended_at is not None:
            _apply(work, row, row.attempt.ended_at)
        return
    is_told = row.signal_seq is not None and status is not None
    if row.state == _State.ISSUED and is_told and _is_seen(row, status):
        row.state = _State.ACKNOWLEDGED
        text = f"{_nodes(row)} have it after {_after_s(row.issued_at, work.now):.0f} s"
        work.note(row, _Line.ACKNOWLEDGED, text, work.now)
    if row.state == _State.ACKNOWLEDGED and _is_done(row, status):
        _apply(work, row, work.now, None if status is None else status.done_at_step)


def _is_seen(row: Directive, status: WorkStatus | None) -> bool:
    return status is not None and status.signals_seen >= (row.signal_seq or 0)


def _is_done(row: Directive, status: WorkStatus | None) -> bool:
    if status is None:
        return False
    saved_at = status.checkpoint_at
    has_saved = saved_at is not None and saved_at >= row.issued_at.timestamp()
    if row.kind == _Kind.CHECKPOINT and has_saved:
        return True
    return status.signals_done >= (row.signal_seq or 0)


def _apply(work: _Work, row: Directive, at: datetime, step: int | None = None) -> None:
    row.state, row.applied_at = _State.APPLIED, at
    text = f"{store.sentence(row)}, done in {_after_s(row.issued_at, at):.0f} s"
    if step is None:
        work.note(row, _Line.APPLIED, text, at)
    else:
        work.note(row, _Line.APPLIED, f"{text}, after step {step}", at, step=step)


def _nodes(row: Directive) -> str:
    count = len(row.attempt.placement.get("nodes", ()))
    return "its node" if count == 1 else f"its {count} nodes"


def _after_s(first: datetime, then: datetime) -> float:
    return max((then - first).total_seconds(), 0.0)


# --- What was measured ----------------------------------------------------------------------------


def _looks(work: _Work, row: Directive) -> None:
    if row.applied_at is None or row.kind in (_Kind.CHECKPOINT, _Kind.RESUME):
        return
    over = _over_at(row)
    last = ENDED_LOOK if row.kind in Directive.ENDING else LAST_LOOK
    until = min(row.applied_at + last, over or work.now)
    if row.state == _State.APPLIED and over is None and row.kind not in Directive.ENDING:
        first = row.applied_at + FIRST_LOOK
        if first + SETTLED <= work.now and work.may_look():
            row.state = _State.MEASURED
            effect = _effect(work.fleet, row, first)
            work.note(row, _Line.MEASURED, _words(row, effect), first, **effect.as_data())
    is_time = until + SETTLED <= work.now and (over is not None or until == row.applied_at + last)
    if row.state in (_State.APPLIED, _State.MEASURED) and is_time and work.may_look():
        effect = _effect(work.fleet, row, until)
        row.state = _State.VERDICT
        row.outcome = outcome_of(
            row.kind, row.value, effect, expected_w=row.evidence.get("change_w")
        )
        data = {**effect.as_data(), "outcome": row.outcome, "lost_gpu_s": row.attempt.lost_gpu_s}
        work.note(row, _Line.VERDICT, _words(row, effect), until, **data)


def _over_at(row: Directive) -> datetime | None:
    """Return when the effect of a lasting directive ended; None: it goes on."""
    if row.kind in Directive.ENDING:
        return None
    ends = [at for at in (row.ended_at, row.attempt.ended_at) if at is not None]
    return min(ends, default=None)


def _effect(fleet: FleetArrays, row: Directive, until: datetime) -> Effect:
    assert row.applied_at is not None  # noqa: S101 - for the type checker: who calls has looked
    ids = _gpu_ids(fleet, row.attempt)
    from_s = _FALLS_WITHIN_S if row.kind in Directive.ENDING else 0.0
    until_s = _after_s(row.applied_at, until)
    if not ids:
        return Effect(0, until_s)
    names = [row.attempt.key, row.attempt.phase.key, row.attempt.phase.job.name]
    # What it did begins when it was told: some nodes have long done it when the last says so.
    begun = row.issued_at if row.kind not in Directive.ENDING else row.applied_at
    lead_s = _after_s(begun, row.applied_at)
    trace = trace_of(ids, names, at=begun, until=until)
    return effect_of(trace, from_s=lead_s + from_s, until_s=lead_s + until_s)


def _gpu_ids(fleet: FleetArrays, attempt: Attempt) -> list[int]:
    held: Mapping[str, list[int]] = attempt.placement.get("gpus", {})
    rows = fleet.gpu_index_by_node
    found = [rows[node, gpu] for node, gpus in held.items() for gpu in gpus if (node, gpu) in rows]
    return [int(each) for each in fleet.gpus.ids[found]]


def _words(row: Directive, effect: Effect) -> str:
    lost = row.attempt.lost_gpu_s
    costs = f", {lost / 3600:.1f} GPU·h of work lost" if row.kind in Directive.ENDING else ""
    return f"{store.sentence(row)}: {words_of(effect)}{costs}"


# --- What is over ---------------------------------------------------------------------------------


def _finish(work: _Work, row: Directive, status: WorkStatus | None) -> None:
    """Close directives that need nothing more, and refuse those that can never be done."""
    if row.attempt.state == Attempt.State.ENDED and row.state in (
        _State.ISSUED,
        _State.ACKNOWLEDGED,
    ):
        _never_applied(work, row, "the job ended before it had done it")
    elif _ended_early(row):
        _never_applied(work, row, "it was over before the job had done it")
    if row.kind in (_Kind.CHECKPOINT, _Kind.RESUME) and row.state == _State.APPLIED:
        row.state, row.outcome = _State.VERDICT, Directive.Outcome.HOLDS
        work.note(row, _Line.VERDICT, row.note, row.applied_at or work.now, outcome=row.outcome)
    _undone(work, row, status)
    if row.is_closed or not _is_over(row):
        return
    store.close(row, now=work.now, why="it was done")
    work.changed[row.pk] = row


def _ended_early(row: Directive) -> bool:
    """Whether it ended before the job had done it, and leaves nothing to be undone."""
    is_early = row.ended_at is not None and row.state in (_State.ISSUED, _State.ACKNOWLEDGED)
    return is_early and (row.signal_seq is None or not row.is_lasting)


def _never_applied(work: _Work, row: Directive, why: str) -> None:
    row.state, row.outcome = _State.VERDICT, Directive.Outcome.NOT_APPLIED
    text = f"{store.sentence(row)}: {why}"
    work.note(row, _Line.VERDICT, text, work.now, outcome=row.outcome)


def _undone(work: _Work, row: Directive, status: WorkStatus | None) -> None:
    """Note that a directive is undone: the job reports so, or it has ended."""
    if not row.is_lasting or row.undone_at is not None or row.signal_seq is None:
        return
    is_over = row.attempt.state == Attempt.State.ENDED
    told = row.ended_at is not None and row.undo_seq is not None
    says_so = told and status is not None and status.signals_done >= (row.undo_seq or 0)
    if not is_over and not says_so:
        return
    row.undone_at = (row.attempt.ended_at if is_over else None) or work.now
    if row.state in (_State.ISSUED, _State.ACKNOWLEDGED):
        _never_applied(work, row, "it was over before the job had done it")
    began = row.ended_at or row.undone_at
    text = "the job has ended" if is_over else f"undone in {_after_s(began, row.undone_at):.0f} s"
    # The verdict, where it is known, is what people are to read first.
    said = row.note
    work.note(row, _Line.UNDONE, text, row.undone_at)
    row.note = said


def _is_over(row: Directive) -> bool:
    if row.state == _State.REFUSED:
        return True
    if row.state != _State.VERDICT:
        return False
    if not row.is_lasting or row.signal_seq is None:
        return True
    return row.undone_at is not None
