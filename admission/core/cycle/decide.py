"""One cycle of admission: a snapshot in, decisions out. Deterministic.

Jobs are tried in order, one after the other, each on what those before it left. Rounds follow until
nothing more starts, so that the next cycle, were nothing to happen, would start nothing either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from admission.core.cycle.entitlement import Ground
from admission.core.cycle.growing import widened
from admission.core.cycle.move import Moves
from admission.core.cycle.moving import moves
from admission.core.cycle.order import Bools, Order, tried
from admission.core.cycle.preemption import preempt_for
from admission.core.cycle.preference import preferring
from admission.core.cycle.queue import Queue, Stage, Verdict
from admission.core.reasons import Reason, ReasonToken, dominant
from admission.core.request import Placement, Request
from admission.core.response.shedding import lost_gpu_s
from admission.core.snapshot import Pending, Running, Snapshot
from policies.headroom.binding import quantity

__all__ = [
    "Admission",
    "Decisions",
    "Preemption",
    "Step",
    "Waiting",
    "decide",
    "placed_in_order",
    "trace_of",
]

#: Rounds in which jobs start. Later ones would find hardly any that fit beside what is kept anew.
_MOST_ROUNDS = 2


@dataclass(frozen=True)
class Step:
    """One check of a job, whether it passed, and why, in a sentence."""

    check: str
    passed: bool
    sentence: str


@dataclass(frozen=True)
class Admission:
    """A job that starts now."""

    request: Request
    placement: Placement
    trace: tuple[Step, ...]


@dataclass(frozen=True)
class Waiting:
    """A job that does not start now; ``position`` is its place among those that wait, from 1.

    ``rank`` is its place in ``order``, from 0, and ``stage`` the check that it did not pass.
    """

    request: Request
    reasons: tuple[Reason, ...]
    dominant: Reason
    position: int
    order: Order
    rank: int
    stage: Stage
    #: why nobody gives way to it; empty: it may not ask, or somebody does
    refused: str = ""

    @property
    def trace(self) -> tuple[Step, ...]:
        """The checks one by one, made when they are asked for: few of a long queue ever are."""
        return trace_of(self.order, self.rank, self.stage, self.dominant, self.refused)


@dataclass(frozen=True)
class Preemption:
    """A running job, ``key``, that is to give way to ``for_key``."""

    key: str
    for_key: str
    freed_w: float
    lost_gpu_s: float
    sentence: str


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of a cycle. ``after`` is the queue that it leaves, for what-if questions."""

    snapshot: Snapshot
    admitted: tuple[Admission, ...]
    #: by key
    waiting: dict[str, Waiting]
    preempt: tuple[Preemption, ...]
    #: who of those that run grows, or moves so that another fits; and who does not grow, and why
    moves: Moves
    after: Queue


def decide(snapshot: Snapshot) -> Decisions:
    """Decide which jobs start, which are preempted, and why the others wait."""
    return _Cycle(snapshot).run()


def placed_in_order(snapshot: Snapshot, key: str, *, most_ahead: int) -> Placement | None:
    """Return where the first round of a cycle would start the job ``key``.

    None where it would not, or where more than ``most_ahead`` jobs are tried before it.
    """
    return _Cycle(snapshot).first_of(key, most_ahead)


class _Cycle:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = preferring(snapshot)
        self._queue = Queue(self._snapshot)
        self._admitted: list[Admission] = []
        self._verdicts: dict[str, Verdict] = {}
        #: by key: behind how many that wait for others' heat a job was tried in the last round
        self._behind: dict[str, int] = {}
        self._leaving: dict[str, Preemption] = {}
        #: by key of a job that has asked others to give way: how many had started by then, and what
        #: was kept for jobs ahead of it
        self._asked: dict[str, tuple[int, list[str]]] = {}
        #: by key of a job that may ask: why nobody gives way to it
        self._refused: dict[str, str] = {}
        self._tried = self._within_depth()

    def _within_depth(self) -> Bools:
        return tried(self._queue.order, self._snapshot.tuning.depth)

    def _tried_before(self) -> Bools:
        """Return which jobs are tried again: of those within the depth the ones that were."""
        found, pending = self._within_depth(), self._queue.order.pending
        for rank in np.flatnonzero(found).tolist():
            found[rank] = pending[rank].request.key in self._verdicts
        return found

    def run(self) -> Decisions:
        for _ in range(_MOST_ROUNDS):
            started = len(self._admitted)
            if not self._round():
                break
            self._prefer_sites(started)
            self._widen(started)
            self._queue.begin_round()
            self._tried = self._tried_before()
        else:
            self._round(may_start=False)
        return Decisions(
            snapshot=self._snapshot,
            admitted=tuple(self._admitted),
            waiting=self._waiting(),
            preempt=tuple(self._leaving.values()),
            moves=moves(self._queue),
            after=self._queue,
        )

    def _round(self, *, may_start: bool = True) -> bool:
        """Try all in order; return whether some started or are to give way."""
        before = len(self._admitted), len(self._leaving)
        pending = self._queue.order.pending
        for rank in np.flatnonzero(self._tried).tolist():
            self._try(pending[rank], rank, may_start=may_start)
        return (len(self._admitted), len(self._leaving)) != before

    def _prefer_sites(self, first: int) -> None:
        """Have those that started, from the one at ``first`` on, stand at sites that they prefer.

        All others were tried by now: what they left is for whoever prefers it.
        """
        for at, each in enumerate(self._admitted[first:], first):
            if not each.request.prefers:
                continue
            rank = self._queue.rank_of(each.request.key)
            place = self._queue.preferred(each.request, each.placement, rank, is_held=True)
            if place != each.placement:
                self._queue.start_instead(each.request, each.placement, place)
                self._admitted[at] = replace(each, placement=place)

    def _widen(self, first: int) -> None:
        """Have those that started, from the one at ``first`` on, have more where nobody waits.

        Where jobs had no turn in the cycle, nobody knows whether these do. One that was moved has
        as many as were decided on then.
        """
        if not self._tried.all():
            return
        order = self._queue.order.pending
        moved = {each.request.key for each in order if each.returns_to is not None}
        starting = [
            (each.request, each.placement)
            for each in self._admitted[first:]
            if each.request.key not in moved
        ]
        wider = dict(widened(self._queue, starting))
        for at, each in enumerate(self._admitted[first:], first):
            if each.request.key in wider:
                placement, sentence = wider[each.request.key]
                trace = (*each.trace, Step("more GPUs", True, sentence))
                self._admitted[at] = replace(each, placement=placement, trace=trace)

    def first_of(self, key: str, most_ahead: int) -> Placement | None:
        """Try all up to the job ``key``; return where it starts, if it does."""
        ahead = 0
        for rank, pending in enumerate(self._queue.order.pending):
            if ahead > most_ahead or (pending.request.key == key and not self._tried[rank]):
                return None
            if not self._tried[rank]:
                ahead += 1
                continue
            verdict = self._try(pending, rank, may_start=True)
            if pending.request.key == key:
                return verdict.placement if verdict.stage is Stage.ADMITTED else None
            ahead += verdict.stage is not Stage.GATES
        return None

    def _try(self, pending: Pending, rank: int, *, may_start: bool) -> Verdict:
        """Start a job, or keep what it needs for it."""
        key = pending.request.key
        before, has_more_room = self._verdicts.get(key), self._has_more_room(key)
        verdict = self._verdict(pending, rank, before if not has_more_room else None)
        self._verdicts[key] = verdict
        if has_more_room and self._refused.pop(key, ""):
            self._asked.pop(key, None)
        self._behind[key] = len(self._queue.staggered)
        may_start = may_start and (before is None or before.may_start_yet)
        if verdict.stage < Stage.RAMP or verdict.placement is None:
            self._keep_for(pending.request, rank, verdict)
        elif verdict.stage is Stage.ADMITTED and may_start:
            self._start(pending, rank, verdict.placement)
        else:
            self._queue.stagger(pending.request, rank, verdict.placement)
        return verdict

    def _has_more_room(self, key: str) -> bool:
        return self._queue.has_more_room(self._behind.get(key, 0))

    def _verdict(self, pending: Pending, rank: int, before: Verdict | None) -> Verdict:
        if before is None:
            return self._queue.verdict(pending, rank)
        return self._queue.again(pending, rank, before)

    def _start(self, pending: Pending, rank: int, placement: Placement) -> None:
        self._queue.start(pending.request, placement)
        verdict = self._verdicts.pop(pending.request.key)
        trace = trace_of(self._queue.order, rank, verdict.stage, None)
        self._admitted.append(Admission(pending.request, placement, trace))

    def _keep_for(self, request: Request, rank: int, verdict: Verdict) -> None:
        if not self._others_give_way(request, rank, verdict):
            self._queue.keep_for(request, rank, verdict)

    def _others_give_way(self, request: Request, rank: int, verdict: Verdict) -> bool:
        """Ask others to give way to a job; return whether they do."""
        if self._queue.reservations.is_full:
            return False
        is_cured = verdict.is_cured_by_ends or verdict.is_cured_by_lenders
        if not is_cured or self._has_asked(request):
            return False
        self._asked[request.key] = len(self._admitted), self._kept_ahead()
        asked = preempt_for(self._queue, request, rank, verdict)
        for each in asked.leaving:
            told = _preemption(each, request, asked.ground, self._queue.now)
            self._leaving[each.request.key] = told
        self._refused.pop(request.key, None)
        if asked.refused:
            self._refused[request.key] = asked.refused
        return bool(asked.leaving)

    def _has_asked(self, request: Request) -> bool:
        """Say whether a job has asked, and would hear the same now.

        It would not where nobody gives way to it, and jobs have started since or something else is
        kept for jobs ahead of it: their projects may hold more now than is due to them, or another
        place, where less is in its way, be left to it.
        """
        if request.key not in self._asked:
            return False
        if any(each.for_key == request.key for each in self._leaving.values()):
            return True
        return self._asked[request.key] == (len(self._admitted), self._kept_ahead())

    def _kept_ahead(self) -> list[str]:
        """Return for whom something is kept when a job has its turn."""
        return [each.request.key for each in self._queue.reservations.kept]

    def _waiting(self) -> dict[str, Waiting]:
        found: dict[str, Waiting] = {}
        order = self._queue.order
        beyond = _beyond(int(order.columns.can_run.sum()), self._snapshot.tuning.depth)
        for rank, (pending, is_tried) in enumerate(
            zip(order.pending, self._tried.tolist(), strict=True)
        ):
            request = pending.request
            verdict = self._verdicts[request.key] if is_tried else beyond
            reasons = verdict.reasons or (_NEXT_CYCLE,)
            first = reasons[0] if len(reasons) == 1 else dominant(reasons)
            refused = self._refused.get(request.key, "")
            found[request.key] = Waiting(
                request, reasons, first, rank + 1, order, rank, verdict.stage, refused
            )
        return found


_NEXT_CYCLE = Reason(
    ReasonToken.BEHIND_HIGHER_PRIORITY, 0.0, 0.0, "", None,
    "fits now that others have started, and begins in the next cycle",
)  # fmt: skip


def _beyond(can_run: int, depth: int) -> Verdict:
    """Return the verdict on all that are not tried; so many ``can_run``."""
    text = (
        f"{can_run:,} jobs can run, and {depth:,} of them are tried in a cycle, shared evenly among"
        " projects and their users: it has used up its part"
    )
    token = ReasonToken.BEHIND_HIGHER_PRIORITY
    reason = Reason(token, float(can_run), float(depth), "jobs", None, text)
    return Verdict(Stage.RESERVATIONS, (reason,))


def _preemption(leaving: Running, request: Request, ground: Ground, now: float) -> Preemption:
    lost = lost_gpu_s(
        gpus=len(leaving.placement.gpus),
        started_at=leaving.started_at,
        last_checkpoint_at=leaving.last_checkpoint_at,
        now=now,
    )
    freed_w = leaving.placement.total_w
    text = (
        f"gives way to another job, {ground.value}: frees {quantity(freed_w, 'W')} and"
        f" loses {lost / 3600.0:.1f} GPU hours of work"
    )
    return Preemption(leaving.request.key, request.key, freed_w, lost, text)


#: What passing each check says.
_PASSED = {
    Stage.GATES: ("gates", "nobody holds it, and no phase is to come before it"),
    Stage.QUOTAS: ("quota and caps", "its project and class may have as much"),
    Stage.FLEET: ("fleet", "fits within all budgets of power, heat, links and storage"),
    Stage.RESERVATIONS: ("reservations", "puts off nobody who is ahead of it"),
    Stage.RAMP: ("thermal ramp", "its cooling zone takes up its heat now"),
}


def trace_of(
    order: Order, rank: int, stage: Stage, why: Reason | None, refused: str = ""
) -> tuple[Step, ...]:
    """Return the checks of a job one by one, up to ``stage``, which it did not pass: ``why``.

    ``refused``: why nobody gives way to it, where it may ask.
    """
    steps = [Step("order", True, order.sentence(rank))]
    for each, (check, passed) in _PASSED.items():
        if each == stage and why is not None:
            steps.append(Step(check, False, why.sentence))
            break
        steps.append(Step(check, True, passed))
    if refused:
        steps.append(Step("giving way", False, refused))
    return tuple(steps)
