"""The executor of machines that ask: a queue of assignments for each node, in Postgres.

Machines with an agent that may run jobs ("local") and those of the twin ("twin") differ in who
asks, and in nothing else. Whoever changes a gang holds the lock of its row, so that of "go" and
"withdrawn" only one is ever said, and what was said is durable before anybody hears of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, QuerySet

from admission import bulk
from admission.executors import runners
from admission.executors.gangs import become, settle
from admission.executors.models import Gang, GangQuerySet, NodeAssignment
from admission.executors.protocol import (
    NodeStatus,
    SignalKind,
    Work,
    WorkOutcomeKind,
    WorkPlacement,
    WorkStatus,
    WorkStatusState,
)
from headroom.work.contract import Measured, WorkOutcome

__all__ = ["NodeQueue", "locked", "moment", "resettle"]

_State = Gang.State
_Part = NodeAssignment.State
#: Gangs that one look at the clock settles at once.
_MOST = 1000
#: Work that is over, with the end of its log, is kept for this long, s.
_KEPT_S = 7 * 86_400.0
_FIELDS = ["outcome", "why", "go_at", "ended_at", "version"]
_SUBMIT = """
INSERT INTO admission_executors_gang
    (key, executor, work, outcome, why, signals, signal_seq, version, noted)
SELECT new.key, %s, new.work::jsonb, '', '', '[]', 0, 1, 0
FROM unnest(%s::text[], %s::text[]) AS new (key, work)
ON CONFLICT DO NOTHING
"""
# Whoever has it offered knows that it is: that is no change to be told.
_OFFER = """
UPDATE admission_executors_gang AS gang
SET offered_at = %s, power_cap_w = new.cap_w, version = gang.version + 1, noted = gang.version + 1
FROM unnest(%s::bigint[], %s::float8[]) AS new (id, cap_w)
WHERE gang.id = new.id
"""
_NOTE = """
UPDATE admission_executors_gang AS gang SET noted = greatest(gang.noted, new.version)
FROM unnest(%s::text[], %s::int[]) AS new (key, version)
WHERE gang.key = new.key AND gang.noted < new.version
"""

_STATES = {
    _State.HELD: WorkStatusState.HELD,
    _State.OFFERED: WorkStatusState.STARTING,
    _State.STOPPING: WorkStatusState.STOPPING,
    _State.ENDED: WorkStatusState.ENDED,
}


class NodeQueue:
    """An :class:`~admission.executors.protocol.Executor` over the tables of this application."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, works: Sequence[Work], now: float) -> None:
        """Write the work down, held."""
        keys, texts = [work.key for work in works], [_stored(work) for work in works]
        with connection.cursor() as cursor:
            cursor.execute(_SUBMIT, [self.name, keys, texts])

    def release(self, placements: Mapping[str, WorkPlacement], now: float) -> None:
        """Offer held work to the nodes of its placement."""
        at = moment(now)
        with transaction.atomic():
            held = _locked(placements).held()
            gangs = dict(held.values_list("pk", "key"))
            bulk.insert(
                [
                    assignment
                    for pk, key in gangs.items()
                    for assignment in _assignments(pk, placements[key])
                ]
            )
            caps = [placements[key].power_cap_w for key in gangs.values()]
            with connection.cursor() as cursor:
                cursor.execute(_OFFER, [at, list(gangs), caps])

    def signal(
        self, key: str, kind: SignalKind, now: float, *, value: float | None = None, why: str = ""
    ) -> int | None:
        """Put a signal into the queue; a stop also ends work that has not begun."""
        with transaction.atomic():
            gang = next(iter(locked([key])), None)
            if gang is None or gang.state == _State.ENDED:
                return None
            assignments = list(gang.assignments.order_by("rank"))
            gang.signal_seq += 1
            if kind == SignalKind.STOP:
                gang.outcome = gang.outcome or WorkOutcomeKind.STOPPED
                gang.why = gang.why or why[:500]
            else:
                seen = min((assignment.signals_seen for assignment in assignments), default=0)
                kept = [each for each in gang.signals if each["seq"] > seen]
                gang.signals = [*kept, {"seq": gang.signal_seq, "kind": kind, "value": value}]
            gang.save(update_fields=["signals", "signal_seq"])
            resettle([gang], {gang.pk: assignments}, now)
            return gang.signal_seq

    def status(self, keys: Sequence[str]) -> list[WorkStatus]:
        """Return how each is. Two queries."""
        asked = Gang.objects.filter(key__among=keys)
        found = {status.key: status for status in _statuses(asked)}
        unknown = WorkStatusState.UNKNOWN
        return [found.get(key) or WorkStatus(key=key, state=unknown) for key in keys]

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return those of ``keys`` that were not offered to any node. One query."""
        offered = Gang.objects.filter(key__among=keys).exclude(offered_at=None, ended_at=None)
        known = set(offered.values_list("key", flat=True)) if keys else set()
        return [key for key in keys if key not in known][:_MOST]

    def changes(self) -> list[WorkStatus]:
        """Return statuses that changed and were not noted, oldest first, bounded. Two queries."""
        moved = Gang.objects.filter(executor=self.name).exclude(version=F("noted"))
        return _statuses(moved.order_by("pk")[:_MOST])

    def note(self, statuses: Sequence[WorkStatus]) -> None:
        """Write down the versions that the caller knows, so that later changes are told again."""
        with connection.cursor() as cursor:
            cursor.execute(_NOTE, [[s.key for s in statuses], [s.version for s in statuses]])

    def adopt(self, besides: Collection[str] = ()) -> list[WorkStatus]:
        """Return the statuses of all work that is not over. Three queries at most."""
        mine = Gang.objects.open().filter(executor=self.name)
        known = set(besides)
        keys = [key for key in mine.values_list("key", flat=True) if key not in known]
        return _statuses(mine.filter(key__among=keys)) if keys else []

    def follow(self, now: float) -> None:
        """Withdraw gangs that have not come together, give up silent machines, drop old work."""
        self._withdraw(now)
        self._give_up(now)
        self._forget(now)

    def _withdraw(self, now: float) -> None:
        late = moment(now - settings.WORK_GATHER_S)
        waiting = Gang.objects.gathering().filter(executor=self.name, offered_at__lt=late)
        keys = list(waiting.values_list("key", flat=True)[:_MOST])
        if keys:
            with transaction.atomic():
                gangs = locked(keys)
                resettle(gangs, assignments_of(gangs), now)

    def _forget(self, now: float) -> None:
        """Drop work that ended long ago, a bounded lot each time. Attempts are kept elsewhere."""
        old = Gang.objects.filter(executor=self.name, ended_at__lt=moment(now - _KEPT_S))
        keys = list(old.filter(version=F("noted")).values_list("pk", flat=True)[:_MOST])
        if keys:
            Gang.objects.filter(pk__in=keys).delete()
            runners.prune(now, _KEPT_S)

    def _give_up(self, now: float) -> None:
        silent = runners.silent(now, executor=self.name)
        if not silent:
            return
        with transaction.atomic():
            keys = NodeAssignment.objects.filter(pk__in=silent).values_list("gang__key", flat=True)
            gangs = locked(set(keys))
            assignments = assignments_of(gangs)
            lost = [
                assignment
                for each in assignments.values()
                for assignment in each
                if assignment.pk in silent and assignment.state != _Part.ENDED
            ]
            for assignment in lost:
                assignment.state, assignment.outcome = _Part.ENDED, WorkOutcome.LOST
                assignment.ended_at = moment(now)
                assignment.text = f"not heard for {silent[assignment.pk]:g} s"
            NodeAssignment.objects.bulk_update(
                lost, ["state", "outcome", "ended_at", "text"], _MOST
            )
            resettle(gangs, assignments, now)


def locked(keys: Iterable[str]) -> list[Gang]:
    """Return the gangs of ``keys`` under their locks, taken in one order everywhere."""
    return list(_locked(keys))


def _locked(keys: Iterable[str]) -> GangQuerySet:
    return Gang.objects.select_for_update().filter(key__among=keys).order_by("pk")


def assignments_of(gangs: Sequence[Gang]) -> dict[int, list[NodeAssignment]]:
    """Return the assignments of gangs that are locked, by gang, in order of rank. One query."""
    found: dict[int, list[NodeAssignment]] = {gang.pk: [] for gang in gangs}
    for assignment in NodeAssignment.objects.filter(gang_id__among=found).order_by("rank"):
        found[assignment.gang_id].append(assignment)
    return found


def resettle(
    gangs: Sequence[Gang], assignments: Mapping[int, list[NodeAssignment]], now: float
) -> None:
    """Bring gangs that are locked, and have changed, to the states that their assignments imply."""
    unstarted: list[NodeAssignment] = []
    for gang in gangs:
        verdict = settle(gang, assignments[gang.pk], moment(now), settings.WORK_GATHER_S)
        become(gang, verdict, moment(now))
        if verdict.never_started:
            unstarted.extend(o for o in assignments[gang.pk] if o.state != _Part.ENDED)
    for assignment in unstarted:
        assignment.state, assignment.outcome = _Part.ENDED, WorkOutcome.NEVER_STARTED
        assignment.ended_at = moment(now)
    NodeAssignment.objects.bulk_update(unstarted, ["state", "outcome", "ended_at"], _MOST)
    Gang.objects.bulk_update(gangs, _FIELDS, _MOST)


def moment(now: float) -> datetime:
    """Return Unix seconds as the database has them."""
    return datetime.fromtimestamp(now, UTC)


def _unix(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _stored(work: Work) -> str:
    return json.dumps({name: value for name, value in vars(work).items() if name != "key"})


def _assignments(gang_id: int, placement: WorkPlacement) -> Iterator[NodeAssignment]:
    for rank, share in enumerate(placement.nodes):
        yield NodeAssignment(
            gang_id=gang_id,
            node_id=share.node_id,
            node=share.node,
            rank=rank,
            gpus=list(share.gpus),
            gpus_of_node=share.gpus_of_node,
        )


# --- How it is ------------------------------------------------------------------------------------


def _statuses(gangs: QuerySet[Gang]) -> list[WorkStatus]:
    found = list(gangs.defer("work"))
    assignments = assignments_of(found)
    return [_status(gang, assignments[gang.pk]) for gang in found]


def _status(gang: Gang, assignments: Sequence[NodeAssignment]) -> WorkStatus:
    starts = [_unix(assignment.started_at) for assignment in assignments]
    begun = [start for start in starts if start is not None]
    saved = [_unix(assignment.checkpoint_at) for assignment in assignments]
    has_saved = [at for at in saved if at is not None]
    return WorkStatus(
        key=gang.key,
        state=_state(gang, assignments),
        outcome=WorkOutcomeKind(gang.outcome) if gang.outcome else None,
        exit_code=_exit_code(assignments),
        why=gang.why,
        started_at=max(begun) if begun and len(begun) == len(assignments) else None,
        ended_at=_unix(gang.ended_at),
        # What one rank has not written, the job does not have.
        checkpoint_at=min(has_saved) if has_saved and len(has_saved) == len(assignments) else None,
        signals_seen=min((assignment.signals_seen for assignment in assignments), default=0),
        signals_done=min((assignment.signals_done for assignment in assignments), default=0),
        done_at_step=max(
            (each.done_at_step for each in assignments if each.done_at_step is not None),
            default=None,
        ),
        outputs=_measured(assignments),
        version=gang.version,
        nodes=tuple(
            NodeStatus(
                o.node,
                o.rank,
                o.state,
                o.exit_code,
                o.text,
                o.log_tail,
                o.outcome == WorkOutcome.LOST,
                _unix(o.ended_at),
            )
            for o in assignments
        ),
    )


def _measured(assignments: Sequence[NodeAssignment]) -> tuple[Measured, ...]:
    """Return the artifacts of a gang: of each what the node found that began last to measure.

    By then no other was at work on it.
    """
    found: dict[str, Measured] = {}
    for assignment in assignments:
        for each in msgspec.convert(assignment.outputs or [], list[Measured]):
            if each.name not in found or found[each.name].at < each.at:
                found[each.name] = each
    return tuple(found.values())


def _state(gang: Gang, assignments: Sequence[NodeAssignment]) -> WorkStatusState:
    if gang.state != _State.GO:
        return _STATES[gang.state]
    if any(assignment.state in (_Part.OFFERED, _Part.CLAIMED) for assignment in assignments):
        return WorkStatusState.STARTING
    running = [assignment.state for assignment in assignments if assignment.state != _Part.ENDED]
    if running and all(state == _Part.PAUSED for state in running):
        return WorkStatusState.PAUSED
    return WorkStatusState.RUNNING


def _exit_code(assignments: Sequence[NodeAssignment]) -> int | None:
    """Return the code of the part that failed first; 0 where all have ended well."""
    codes = [
        (assignment.ended_at, assignment.exit_code)
        for assignment in assignments
        if assignment.exit_code is not None
    ]
    failed = [code for _, code in sorted(codes, key=lambda each: str(each[0])) if code]
    if failed:
        return failed[0]
    return 0 if codes and len(codes) == len(assignments) else None
