"""Reconciliation: the statuses of executors compared with our own state, again and again.

Each cycle takes what has changed, and every half minute all there is: an attempt that its executor
does not know is dispatched, or was lost; work that no attempt asks for is stopped. What is found
is written down attempt by attempt, so that whatever dies on the way is found again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

import msgspec
import structlog
from django.db import transaction

from admission.core.response.shedding import lost_gpu_s
from admission.core.said import Output, said_of
from admission.cycle import unheard
from admission.cycle.dispatch import dispatch
from admission.cycle.restarting import After, Terms, after
from admission.executors.node_queue import moment
from admission.executors.protocol import (
    Executor,
    SignalKind,
    WorkOutcomeKind,
    WorkStatus,
    WorkStatusState,
)
from admission.executors.registry import all_executors
from admission.jobs import artifacts, catalog, checkpoints, history, progress
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Attempt, JobEvent, Phase
from admission.jobs.resolution import terms_of_phase
from telemetry.models import CheckpointFact
from telemetry.placed import job_of

__all__ = ["Reconciled", "reconcile", "withdraw"]

log = structlog.get_logger(__name__)

_State = WorkStatusState
#: How often everything is compared, s.
_ALL_EVERY_S = 30.0
_AT_ONCE = 1000
#: Attempts that one transaction closes, each under the lock of its job.
_CLOSED_AT_ONCE = 50
#: Kinds of events.
STARTED, REQUEUED = "started", "requeued"


@dataclass
class Reconciled:
    """The results of one reconciliation, in attempts."""

    dispatched: int = 0
    began: int = 0
    ended: int = 0
    requeued: int = 0
    #: work of no open attempt, which was told to stop
    orphans: int = 0
    failed: list[str] = field(default_factory=list)


class _LastLook:
    """The time at which this process last compared everything: at its start, it never has.

    ``offered``: by executor, the attempts that have not begun, and that it has known since then.
    """

    at = -float("inf")
    offered: ClassVar[dict[str, set[str]]] = {}


def reconcile(now: float, *, is_whole: bool = True) -> Reconciled:
    """Bring attempts to the states that their executors report at ``now`` (Unix s).

    Only one process does so at a time: that of the cycle, under its lock. Where it is not
    ``is_whole``, it takes what executors say has changed, and looks for nothing else.
    """
    done = Reconciled()
    if not is_whole:
        for executor in all_executors().values():
            if changed := executor.changes():
                _take_up(executor, changed, (), now, done)
        return done
    looks_at_all = not 0 <= now - _LastLook.at < _ALL_EVERY_S
    for name, executor in all_executors().items():
        executor.follow(now)
        _reconcile(name, executor, now, done, looks_at_all=looks_at_all)
    unheard.note(moment(now))
    if looks_at_all:
        _LastLook.at = now
    return done


def _reconcile(
    name: str, executor: Executor, now: float, done: Reconciled, *, looks_at_all: bool
) -> None:
    changed = executor.changes()
    told = {status.key for status in changed}
    mine = Attempt.objects.open().filter(executor=name).order_by("pk")
    if looks_at_all:
        _LastLook.offered.pop(name, None)
        keys = set(mine.values_list("key", flat=True))
    else:
        dispatched = mine.filter(state=Attempt.State.DISPATCHED, room_by=None)
        to_stop = mine.filter(outcome__in=Attempt.SETTLED)
        keys = _missing(name, executor, set(dispatched.values_list("key", flat=True)))
        keys |= set(to_stop.values_list("key", flat=True))
    _take_up(executor, changed, sorted(keys - told), now, done)
    if looks_at_all:
        _stop_orphans(executor, now, done)


def _missing(name: str, executor: Executor, dispatched: set[str]) -> set[str]:
    """Return which of ``dispatched`` an executor does not have: only of new ones it is asked."""
    known = _LastLook.offered.get(name, set()) & dispatched
    asked = sorted(dispatched - known)
    missing = set(executor.missing(asked)) if asked else set()
    # It tells a bounded number: where it tells any, there may be others.
    _LastLook.offered[name] = known if missing else dispatched
    return missing


def _take_up(
    executor: Executor,
    changed: Sequence[WorkStatus],
    asked: Sequence[str],
    now: float,
    done: Reconciled,
) -> None:
    """Write down what has ``changed``, and what is so of the attempts with the keys ``asked``."""
    statuses = {status.key: status for status in [*changed, *executor.status(asked)]}
    rows = _rows(statuses)
    _dispatch(statuses, rows, now, done)
    _began(statuses, rows, moment(now), done)
    _follow(statuses, rows, executor, now)
    _close(statuses, rows, now, done)
    # Last, and only what was written down: the rest is told again.
    executor.note([status for status in changed if status.key not in done.failed])


def _rows(statuses: Mapping[str, WorkStatus]) -> dict[str, Attempt]:
    """Return the open attempts with the keys of ``statuses``, with their phases. One query."""
    found = Attempt.objects.open().filter(key__among=statuses).select_related("phase")
    found = found.defer("phase__request")
    return {row.key: row for row in found}


# --- Dispatched, begun ---------------------------------------------------------------------------


def _dispatch(
    statuses: Mapping[str, WorkStatus], rows: Mapping[str, Attempt], now: float, done: Reconciled
) -> None:
    """Dispatch attempts that a crash has left between their admission and their executor."""
    left = [
        row
        for key, row in rows.items()
        if statuses[key].state in (_State.UNKNOWN, _State.HELD)
        and row.state == Attempt.State.DISPATCHED
        and not row.outcome
        # What waits for room is handed over by the controller.
        and row.room_by is None
    ]
    if left:
        done.dispatched += dispatch(left, now)


def _began(
    statuses: Mapping[str, WorkStatus],
    rows: Mapping[str, Attempt],
    at: datetime,
    done: Reconciled,
) -> None:
    """Write down which attempts run now, all at once."""
    running = [
        row
        for key, row in rows.items()
        if row.state == Attempt.State.DISPATCHED and statuses[key].started_at is not None
    ]
    if not running:
        return
    with transaction.atomic():
        locked = Attempt.objects.select_for_update().filter(pk__among=[row.pk for row in running])
        still = set(
            locked.filter(state=Attempt.State.DISPATCHED)
            .order_by("pk")
            .values_list("pk", flat=True)
        )
        begun = [row for row in running if row.pk in still]
        for row in begun:
            row.state = Attempt.State.RUNNING
            row.started_at = moment(statuses[row.key].started_at or at.timestamp())
        Attempt.objects.bulk_update(begun, ["state", "started_at"], _AT_ONCE)
        phases = Phase.objects.filter(pk__among=[row.phase_id for row in begun])
        phases.filter(state=Phase.State.STARTING).update(state=Phase.State.RUNNING)
        JobEvent.objects.bulk_create([_started(row, at) for row in begun], _AT_ONCE)
    done.began += len(begun)


def _started(row: Attempt, at: datetime) -> JobEvent:
    nodes = row.placement["nodes"]
    where = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    text = f"{row.phase.name} runs on {where} (attempt {row.number})"
    return history.event(
        row.phase.job_id, STARTED, text, row.started_at or at, phase=row.phase.name, attempt=row.key
    )


# --- On the way -----------------------------------------------------------------------------------


def _follow(
    statuses: Mapping[str, WorkStatus],
    rows: Mapping[str, Attempt],
    executor: Executor,
    now: float,
) -> None:
    saved = []
    told = checkpoints.of_jobs({job_of(key) for key in rows}, moment(now)) if rows else {}
    for key, row in rows.items():
        status = statuses[key]
        saved_at = _saved_at(row, status, told.get(job_of(key), ()))
        if saved_at != row.checkpoint_at:
            row.checkpoint_at = saved_at
            saved.append(row)
        _follow_pause(row, status)
        if row.outcome in Attempt.SETTLED and status.state in _TO_STOP:
            executor.signal(key, SignalKind.STOP, now, why=row.why)
    Attempt.objects.bulk_update(saved, ["checkpoint_at"], _AT_ONCE)


_TO_STOP = (_State.HELD, _State.STARTING, _State.RUNNING, _State.PAUSED)
_PAUSES = {
    _State.PAUSED: ((Phase.State.RUNNING, Phase.State.PAUSING), Phase.State.PAUSED),
    _State.RUNNING: ((Phase.State.PAUSED,), Phase.State.RUNNING),
}


def _saved_at(row: Attempt, status: WorkStatus, facts: Sequence[CheckpointFact]) -> datetime | None:
    """Return when the last checkpoint of an attempt was saved: as verified, else as it says."""
    verified = checkpoints.verified_of(row, facts)
    if verified is not None:
        return verified.saved_at
    known = row.checkpoint_at
    if status.checkpoint_at is None:
        return known
    said = moment(status.checkpoint_at)
    return said if known is None else max(said, known)


def _follow_pause(row: Attempt, status: WorkStatus) -> None:
    before, now_is = _PAUSES.get(status.state, ((), None))
    if now_is is not None and row.phase.state in before:
        Phase.objects.filter(pk=row.phase_id, state__in=before).update(state=now_is)


# --- Ended ----------------------------------------------------------------------------------------


def _close(
    statuses: Mapping[str, WorkStatus], rows: Mapping[str, Attempt], now: float, done: Reconciled
) -> None:
    over = [(row, statuses[key]) for key, row in rows.items() if _is_over(row, statuses[key])]
    if not over:
        return
    classes = catalog.current()
    over.sort(key=lambda each: each[0].phase.job_id)
    for first in range(0, len(over), _CLOSED_AT_ONCE):
        some = dict(over[first : first + _CLOSED_AT_ONCE])
        # One commit for some: each waits for the disk.
        with transaction.atomic():
            locked = _locked(list(some))
            for row, status in some.items():
                if row.pk in locked:
                    _close_or_leave(locked[row.pk], status, classes, now, done)


def withdraw(rows: Iterable[Attempt], why: str, now: float) -> None:
    """End attempts that were never handed to an executor: their phases wait again."""
    classes = catalog.current()
    for row in rows:
        ended, kind = WorkStatusState.ENDED, WorkOutcomeKind.WITHDRAWN
        status = WorkStatus(key=row.key, state=ended, outcome=kind, why=why)
        with transaction.atomic():
            for each in _locked([row]).values():
                _close_one(each, status, classes, now, Reconciled())


def _locked(rows: Sequence[Attempt]) -> dict[int, Attempt]:
    """Return those of ``rows`` that are open, as they are now, their jobs locked. Two queries.

    What was asked of them may have changed while we looked.
    """
    jobs = progress.lock_all({row.phase.job_id for row in rows})
    still = Attempt.objects.open().filter(pk__among=[row.pk for row in rows])
    found = {row.pk: row for row in still.select_related("phase")}
    for row in found.values():
        row.phase.job = jobs[row.phase.job_id]
    return found


def _close_or_leave(
    row: Attempt,
    status: WorkStatus,
    classes: Mapping[str, SchedulingClass],
    now: float,
    done: Reconciled,
) -> None:
    try:
        with transaction.atomic():
            _close_one(row, status, classes, now, done)
    except Exception:
        # One job that cannot be followed must not hold up the others.
        log.exception("attempt_not_closed", attempt=row.key)
        done.failed.append(row.key)
        # What was changed of it is undone; others of it may follow.
        row.phase.job.refresh_from_db()


def _is_over(row: Attempt, status: WorkStatus) -> bool:
    """Say whether the work is over; unknown work is if it had begun, or was to end anyway."""
    if status.state is _State.ENDED:
        return True
    return status.state is _State.UNKNOWN and (
        row.state == Attempt.State.RUNNING or bool(row.outcome)
    )


def _close_one(
    row: Attempt,
    status: WorkStatus,
    classes: Mapping[str, SchedulingClass],
    now: float,
    done: Reconciled,
) -> None:
    kind = status.outcome or WorkOutcomeKind.LOST
    follows = after(
        kind,
        row.outcome,
        _terms(row.phase, classes),
        restarts=row.phase.restarts,
        withdrawn=_withdrawn(row) if kind == WorkOutcomeKind.WITHDRAWN else 0,
    )
    at = moment(now)
    _end(row, status, follows, at)
    done.ended += 1
    if follows.outcome == Attempt.Outcome.SUCCEEDED:
        artifacts.record(row, status.outputs, at)
    if follows.phase == Phase.State.QUEUED:
        _requeue(row, follows, at)
        done.requeued += 1
    else:
        progress.phase_ended(row.phase, follows.phase, at, row.why, job=row.phase.job)


def _end(row: Attempt, status: WorkStatus, follows: After, at: datetime) -> None:
    said = status.why or ("" if status.outcome else "its executor does not know of it any more")
    row.why = row.why if row.outcome and row.why else said[:500]
    row.state, row.outcome = Attempt.State.ENDED, follows.outcome
    row.told = _told(status)
    if row.exit_code is None:
        row.exit_code = status.exit_code
    row.ended_at = at if status.ended_at is None else min(moment(status.ended_at), at)
    if row.started_at is None and status.started_at is not None:
        row.started_at = moment(status.started_at)
    if follows.outcome != Attempt.Outcome.SUCCEEDED and row.started_at is not None:
        row.lost_gpu_s = lost_gpu_s(
            gpus=sum(map(len, row.placement["gpus"].values())),
            started_at=row.started_at.timestamp(),
            last_checkpoint_at=row.checkpoint_at.timestamp() if row.checkpoint_at else None,
            now=row.ended_at.timestamp(),
        )
    row.save(
        update_fields=[
            "why", "state", "outcome", "exit_code", "told", "ended_at", "started_at", "lost_gpu_s",
        ]
    )  # fmt: skip


def _told(status: WorkStatus) -> dict[str, Any] | None:
    """Return what output says of how work failed: what its machines keep of it is gone in a week.

    Work whose walltime was up has been stopped, and what it says is of that.
    """
    if status.outcome not in (WorkOutcomeKind.FAILED, WorkOutcomeKind.LOST):
        return None
    nodes = sorted(status.nodes, key=lambda each: (each.ended_at or math.inf, each.rank))
    said = said_of(Output(each.node, each.log_tail, each.is_lost) for each in nodes)
    return None if said is None else dataclasses.asdict(said)


def _requeue(row: Attempt, follows: After, at: datetime) -> None:
    phase = row.phase
    wait = timedelta(seconds=follows.wait_s)
    changed: dict[str, Any] = {
        "state": Phase.State.QUEUED,
        "queued_at": at,
        "not_before": at + wait if wait else None,
        "expected_end_at": None,
        "reason": "",
        "reason_since": None,
        "restarts": phase.restarts + follows.is_restart,
    }
    Phase.objects.open().filter(pk=phase.pk).update(**changed)
    outcome = follows.outcome.label.lower()
    text = f"{phase.name} waits again: attempt {row.number} was {outcome}" + (
        f" ({row.why})" if row.why else ""
    )
    history.event(
        phase.job_id, REQUEUED, text, at, phase=phase.name, attempt=row.key, wait_s=follows.wait_s
    ).save()


def _terms(phase: Phase, classes: Mapping[str, SchedulingClass]) -> Terms:
    try:
        restart = terms_of_phase(phase, classes).restart
    except (msgspec.ValidationError, IndexError, KeyError):
        # Of another version of the format: nothing says that it may be run again.
        return Terms()
    defaults = Terms()
    return Terms(
        restart.tolerance or defaults.tolerance,
        restart.max_restarts or defaults.max_restarts,
        restart.backoff_s or defaults.backoff_s,
    )


def _withdrawn(row: Attempt) -> int:
    """Return how many attempts before this one were withdrawn in a row. One query."""
    before: Iterable[str] = (
        Attempt.objects.filter(phase=row.phase_id, number__lt=row.number)
        .order_by("-number")
        .values_list("outcome", flat=True)[:20]
    )
    count = 0
    for outcome in before:
        if outcome != Attempt.Outcome.WITHDRAWN:
            break
        count += 1
    return count


# --- What nobody has asked for --------------------------------------------------------------------


def _stop_orphans(executor: Executor, now: float, done: Reconciled) -> None:
    """Stop work whose attempt is over, or does not exist: nothing counts its draw."""
    ours = Attempt.objects.open().values_list("key", flat=True)
    for status in executor.adopt(besides=set(ours)):
        # Others may have come since.
        if status.state is not _State.STOPPING and not ours.filter(key=status.key).exists():
            log.warning("work_of_no_attempt", attempt=status.key, state=status.state)
            executor.signal(status.key, SignalKind.STOP, now, why="no attempt asks for it")
            done.orphans += 1
