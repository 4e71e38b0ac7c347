"""Reasons for which a job waits, and changes under which it would start with the next cycle.

Every change that is told of was tried on the queue as the cycle left it, by the code that decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from admission.core.cycle.backfill import held_by
from admission.core.cycle.change import Burden, Change, Counterfactual, Price, sentence
from admission.core.cycle.decide import Decisions, Step, placed_in_order, trace_of
from admission.core.cycle.never import Never, is_up_to_its_request, least_speed, never
from admission.core.cycle.order import Order
from admission.core.cycle.preference import with_preference
from admission.core.cycle.queue import Stage, Verdict
from admission.core.cycle.tries import Tries
from admission.core.placement.place import place
from admission.core.reasons import PRECEDENCE, Reason, ReasonToken, dominant
from admission.core.request import Placement, Refusal, Request
from admission.core.snapshot import Pending, Running, Snapshot

__all__ = ["DryRun", "Explanation", "dry_run", "explain", "snapshot_then"]

_MINUTE_S = 60.0
#: A run ends so long before what it takes is kept for others: a change takes a while.
_SPARE_S = 60.0
#: The next cycle comes so long after one, s: who began in that one counts as running by then.
_NEXT_S = 2.0
#: Nobody is offered a run that is shorter.
_LEAST_WALLTIME_S = 300.0
#: Between checkpoints that are offered.
_LEAST_INTERVAL_S, _USUAL_INTERVAL_S = 60.0, 1800.0
#: A start is told of that is so far off at most, and before which so few are tried.
_FARTHEST_S = 86_400.0
_MOST_AHEAD = 32


@dataclass(frozen=True)
class Explanation:
    """Why a job waits: its dominant reason and all reasons, its position, counterfactuals.

    As the queue was after the cycle of ``at``, Unix s.
    """

    key: str
    at: float
    dominant: Reason
    reasons: tuple[Reason, ...]
    position: int
    counterfactuals: tuple[Counterfactual, ...]
    #: why it cannot start as it is, and how it could; None: it can
    never: Never | None = None


@dataclass(frozen=True)
class DryRun:
    """The outcome of the next cycle for a job that were submitted now.

    ``placement`` is where it would start. None: it would wait at ``position``, for ``reasons``. As
    the queue was after the cycle of ``at``, Unix s.
    """

    at: float
    placement: Placement | None
    reasons: tuple[Reason, ...]
    position: int
    trace: tuple[Step, ...]
    counterfactuals: tuple[Counterfactual, ...] = ()
    never: Never | None = None


def explain(decisions: Decisions, key: str) -> Explanation:
    """Say why the job ``key`` waits. Raises KeyError for one that does not."""
    waiting = decisions.waiting[key]
    search = _Search.of_waiting(decisions, key)
    reasons = _all_reasons(decisions, search, waiting.reasons)
    is_up_to_it = is_up_to_its_request(waiting.dominant.token)
    return Explanation(
        key,
        decisions.snapshot.now,
        dominant(reasons),
        reasons,
        waiting.position,
        search.counterfactuals() if is_up_to_it else (),
        search.never() if is_up_to_it else None,
    )


def dry_run(decisions: Decisions, pending: Pending) -> DryRun:
    """Return the outcome of the next cycle for ``pending``, which may but need not be queued."""
    search = _Search.of_new(decisions, with_preference(pending, decisions.snapshot))
    verdict = search.verdict(pending.request)
    starts, why = verdict.stage is Stage.ADMITTED, verdict.reasons
    rank, first = search.place_in_order, dominant(why) if why else None
    placement = verdict.placement if starts else None
    if placement is not None:
        placement = search.queue.preferred(pending.request, placement, search.rank, is_held=False)
    is_up_to_it = not starts and first is not None and is_up_to_its_request(first.token)
    return DryRun(
        decisions.snapshot.now,
        placement,
        why,
        rank + 1,
        trace_of(search.order, rank, verdict.stage, first),
        search.counterfactuals() if is_up_to_it else (),
        search.never() if is_up_to_it else None,
    )


def _all_reasons(
    decisions: Decisions, search: _Search, known: tuple[Reason, ...]
) -> tuple[Reason, ...]:
    """Return the reasons of the cycle, and those of the checks that it did not reach.

    Each token once, in order of precedence.
    """
    request = search.pending.request
    found = list(known)
    here = place(search.queue.cluster, request)
    if isinstance(here, Refusal):
        found += here.reasons
        if not isinstance(place(decisions.snapshot.cluster, request), Refusal):
            found.append(_taken_by_others(len(decisions.admitted)))
    by_token: dict[ReasonToken, Reason] = {}
    for each in found:
        by_token.setdefault(each.token, each)
    return tuple(sorted(by_token.values(), key=lambda each: PRECEDENCE[each.token]))


def _taken_by_others(started: int) -> Reason:
    text = f"would have fitted before this cycle, in which {started} jobs ahead of it began"
    token = ReasonToken.BEHIND_HIGHER_PRIORITY
    return Reason(token, 0.0, 0.0, "", None, text, {"started": started})


class _Search:
    """Changes of one job, tried on the queue as it is when the next cycle comes to the job."""

    def __init__(
        self,
        decisions: Decisions,
        pending: Pending,
        order: Order,
        place_in_order: int,
        rank: int,
    ) -> None:
        self.pending = pending
        self.order = order
        self.place_in_order = place_in_order
        self.rank = rank
        self._decisions = decisions
        self._after = decisions.after
        self.queue = decisions.after.at_turn(rank, pending.request.key)
        share = decisions.snapshot.run_shares.get(pending.request.project)
        self.least_speed = least_speed(pending.request, share)
        self._tries = Tries(pending.request, self._placed, self.least_speed)

    @classmethod
    def of_waiting(cls, decisions: Decisions, key: str) -> _Search:
        order, rank = decisions.after.order, decisions.waiting[key].rank
        return cls(decisions, order.pending[rank], order, rank, rank)

    @classmethod
    def of_new(cls, decisions: Decisions, pending: Pending, after_s: float = 0.0) -> _Search:
        """Search for a job that is not queued, or has another priority in the queue.

        ``after_s``: in the order as it is then.
        """
        return cls(decisions, pending, *decisions.after.order_with(pending, after_s))

    def verdict(self, request: Request) -> Verdict:
        return self.queue.verdict(replace(self.pending, request=request), self.rank)

    def never(self) -> Never | None:
        """Return why it could not start on an empty fleet either, and how it could."""
        return never(self._after.snapshot.cluster, self.pending.request, self.least_speed)

    # --- The changes ------------------------------------------------------------------------------

    def counterfactuals(self) -> tuple[Counterfactual, ...]:
        """Return the changes that hold, one of a kind: those first that cost the team least.

        What costs others comes after all that does not.
        """
        found: list[Counterfactual] = []
        if self._after.is_settled_before(self.rank, _NEXT_S) and not self._after.is_passed(
            self.pending, self.rank, _NEXT_S
        ):
            found = self._starting_now()
        if (later := self._later()) is not None:
            found.append(later)
        return tuple(sorted(found, key=self._cost))

    def _starting_now(self) -> list[Counterfactual]:
        found = [each for change in self._single() if (each := self._tried(change))]
        if not found:
            changes = dict.fromkeys(self._tries.double(self._shorter_walltimes()[-1:]))
            found = [each for change in changes if (each := self._tried(change))]
        return found

    def _cost(self, found: Counterfactual) -> tuple[bool, float, int]:
        delay_s = found.price.delay_s(self.pending.request.walltime_s)
        return found.burden is not None, delay_s, len(found.change.as_json())

    def _single(self) -> Iterator[Change]:
        if self.pending.prefers_later(self.queue.now):
            yield Change(may_wait_s=0.0)
        yield from self._tries.single()
        if (change := self._with_checkpoints_kept_here()) is not None:
            yield change
        yield from self._shorter()
        if self._is_up_to_its_class():
            yield from map(_in_class, self._other_classes())

    def _other_classes(self) -> Iterator[str]:
        """Yield the classes that do the same kind of work, and that its project may use."""
        request, snapshot = self.pending.request, self._decisions.snapshot
        own = snapshot.classes.get(request.job_class)
        if own is None or not own.kind_of_work:
            return
        for name, rules in snapshot.classes.items():
            is_alike = name != own.name and rules.kind_of_work == own.kind_of_work
            if is_alike and snapshot.grants.allows(request.project, rules):
                yield name

    def _is_up_to_its_class(self) -> bool:
        """Say whether caps of its class or jobs ahead of it are in its way, and not the fleet."""
        return not _BY_CLASS.isdisjoint(self._tokens)

    @cached_property
    def _tokens(self) -> frozenset[ReasonToken]:
        """The tokens of the check that it did not pass."""
        waiting = self._decisions.waiting.get(self.pending.request.key)
        now = waiting.reasons if waiting else self.verdict(self.pending.request).reasons
        return frozenset(each.token for each in now)

    def _shorter(self) -> Iterator[Change]:
        """Yield the longest walltime with which it puts off nobody; with checkpoints, too."""
        request, walltimes = self.pending.request, self._shorter_walltimes()
        # Where the shortest does not help, no longer one does.
        if not walltimes or self._placed(_ending_later(request, walltimes[-1])) is None:
            return
        for walltime_s in walltimes:
            if self._placed(_ending_later(request, walltime_s)) is not None:
                yield Change(walltime_s=walltime_s)
                if request.checkpoint_interval_s is None:
                    interval_s = min(max(walltime_s / 4.0, _LEAST_INTERVAL_S), _USUAL_INTERVAL_S)
                    yield Change(walltime_s=walltime_s, checkpoint_interval_s=interval_s)
                return

    def _shorter_walltimes(self) -> list[float]:
        """Return the walltimes after which what it would take is kept for others, longest first."""
        if self._tokens.isdisjoint({ReasonToken.BACKFILL_RESERVATION, ReasonToken.BOOKED}):
            return []
        kept_at = {each.at for each in self.queue.reservations.kept if each.rank < self.rank}
        kept_at |= self.queue.quotas.kept_before(self.pending.request, self.rank)
        cluster = self.queue.cluster
        kept_at |= cluster.bookings.over_by(self.pending.request, cluster.now)
        ends = {_MINUTE_S * ((at - self.queue.now - _SPARE_S) // _MINUTE_S) for at in kept_at}
        longest_s = self.pending.request.walltime_s
        return sorted((s for s in ends if _LEAST_WALLTIME_S <= s < longest_s), reverse=True)

    def _with_checkpoints_kept_here(self) -> Change | None:
        request = self.pending.request
        if not request.cross_site_checkpoint or ReasonToken.RESTRICTED not in self._tokens:
            return None
        return Change(cross_site="optional")

    def _later(self) -> Counterfactual | None:
        """Return when it starts as it is, once enough of what runs has ended as expected.

        Asked of those alone for which room is kept: the cycle has said when that will be free.
        """
        key, now = self.pending.request.key, self.queue.now
        kept = next((e for e in self._after.reservations.kept if e.request.key == key), None)
        if kept is None or kept.request != self.pending.request:
            return None
        at = _MINUTE_S * math.ceil(kept.at / _MINUTE_S)
        if at - now > _FARTHEST_S:
            return None
        then = snapshot_then(self._decisions, at)
        placement = placed_in_order(then, key, most_ahead=_MOST_AHEAD)
        if placement is None:
            return None
        price = Price(slower=placement.slowdown, later_s=at - now)
        return self._told(Change(begin_at=at), placement, price)

    def has_time_to_spare(self, request: Request, placement: Placement) -> bool:
        """Say whether a job that would start at ``placement`` now does so a little later, too."""
        return self._placed(_ending_later(request, request.walltime_s)) == placement

    def _placed(self, request: Request) -> Placement | None:
        """Return the placement with which it would be admitted, if any."""
        verdict = self.verdict(request)
        return verdict.placement if verdict.stage is Stage.ADMITTED else None

    def _tried(self, change: Change) -> Counterfactual | None:
        """Return ``change`` with its placement if the job starts under it; else None."""
        old = self.pending.request
        request = change.apply(old, self._after.snapshot.classes)
        if request == old:
            return None
        search = then = self
        if request.priority != old.priority:
            if not self._might_start(request):
                return None
            changed = replace(self.pending, request=request)
            search = _Search.of_new(self._decisions, changed)
            then = _Search.of_new(self._decisions, changed, _NEXT_S)
            if request.priority < old.priority and self._makes_way(request):
                return None
        verdict = search.verdict(request)
        if verdict.stage is not Stage.ADMITTED or verdict.placement is None:
            return None
        if not then.has_time_to_spare(request, verdict.placement):
            return None
        is_behind = search.is_behind_others_than(self) or then.is_behind_others_than(self)
        if is_behind and not self._stands_anew(request, verdict.placement):
            return None
        speed = (1.0 - verdict.placement.slowdown) * min(request.gpus / old.gpus, 1.0)
        if speed < self.least_speed:
            return None
        price = Price(
            slower=1.0 - speed,
            less_work=1.0 - request.walltime_s / old.walltime_s,
            keeps_work=request.checkpoint_interval_s is not None,
        )
        burden = self._burden(search, request, verdict.placement)
        return self._told(change, verdict.placement, price, burden)

    def is_behind_others_than(self, other: _Search) -> bool:
        """Say whether others are ahead than would be, were the job alone to pass some of them.

        Projects take turns: where a job passes one of its own project, others may do so, too.
        """
        ahead, at = self.order.pending[: self.place_in_order], other.place_in_order
        rest = (*other.order.pending[:at], *other.order.pending[at + 1 :])
        return ahead != rest[: len(ahead)]

    def _stands_anew(self, request: Request, placement: Placement) -> bool:
        """Say whether it starts there, too, when those ahead of it are decided on anew."""
        for at in (self.queue.now, self.queue.now + _NEXT_S):
            then = snapshot_then(self._decisions, at)
            others = [each for each in then.pending if each.request.key != request.key]
            changed = replace(then, pending=(*others, replace(self.pending, request=request)))
            if placed_in_order(changed, request.key, most_ahead=_MOST_AHEAD) != placement:
                return False
        return True

    def _might_start(self, request: Request) -> bool:
        """Say whether it would start if nothing were kept for anybody ahead of it.

        Where it would not, no other place in the order helps, and all others need not be put in
        order with it.
        """
        if self._after.staggered:
            return True
        first = self._after.at_turn(0, request.key)
        verdict = first.verdict(replace(self.pending, request=request), 0)
        return verdict.stage is Stage.ADMITTED

    def _told(
        self, change: Change, placement: Placement, price: Price, burden: Burden | None = None
    ) -> Counterfactual:
        text = sentence(change, self.pending.request, placement, price, burden)
        return Counterfactual(change, text, placement, price, burden)

    def _burden(self, other: _Search, request: Request, placement: Placement) -> Burden | None:
        """Return the cost to those whom it goes ahead of in another order; None: there are none."""
        # By what they are in memory: of tens of thousands, their keys are slow to get.
        ahead = set(map(id, other.order.pending[: other.place_in_order]))
        before = self.order.pending[: self.place_in_order]
        passed = [each.request for each in before if id(each) not in ahead]
        if not passed:
            return None
        end_at = self.queue.now + request.walltime_s
        keys = {each.key for each in passed}
        put_off_s = [
            end_at - each.at
            for each in self._after.reservations.put_off_by(request, placement, end_at)
            if each.request.key in keys
        ]
        return Burden(
            passed=tuple(each.key for each in passed),
            own=sum(each.project == request.project for each in passed),
            gpus=len(placement.gpus),
            hold_s=request.walltime_s,
            put_off_s=max(put_off_s, default=0.0),
        )

    def _makes_way(self, request: Request) -> bool:
        """Say whether other jobs may start or get reservations once the job is further back.

        What would come of that is not known without deciding anew on all.
        """
        key, after = request.key, self._after
        return (
            after.keeps_room_for(key)
            or after.quotas.draws_on_what_is_kept_for(key, request)
            or any(
                reason.evidence.get("kept_for") == key
                for waiting in self._decisions.waiting.values()
                for reason in waiting.reasons
            )
        )


def _ending_later(request: Request, walltime_s: float) -> Request:
    """Return a job that runs for ``walltime_s`` as one that ends when it does if begun later."""
    return replace(request, walltime_s=walltime_s + _SPARE_S)


def _in_class(name: str) -> Change:
    return Change(job_class=name)


def snapshot_then(decisions: Decisions, at: float) -> Snapshot:
    """Return the snapshot of a cycle at ``at`` (Unix s) if nothing happens but expected ends."""
    snapshot, endings = decisions.snapshot, decisions.after.endings
    cluster = snapshot.cluster.copy()
    cluster.now = at
    ran = {each.request.key: each for each in snapshot.running}
    for leaving in decisions.preempt:
        ran[leaving.key] = replace(ran[leaving.key], preempting=True)
    over = [each for key, each in endings.items() if each.at <= at and key in ran]
    cluster.free_all(held_by(over))
    running = [each for key, each in ran.items() if endings[key].at > at]
    for each in decisions.admitted:
        ends_at = endings[each.request.key].at
        if ends_at > at:
            cluster.allocate(each.placement, each.request)
            user = decisions.after.users.get(each.request.key, "")
            running.append(Running(each.request, each.placement, snapshot.now, ends_at, user=user))
    return replace(
        snapshot,
        now=at,
        cluster=cluster,
        pending=tuple(decisions.after.pending_next()),
        running=tuple(running),
    )


#: Reasons that another class may cure: it has caps of its own, and another place in the order.
_BY_CLASS = frozenset(
    {
        ReasonToken.CONCURRENCY_CAP,
        ReasonToken.STAGGERED_START,
        ReasonToken.BEHIND_HIGHER_PRIORITY,
        ReasonToken.BACKFILL_RESERVATION,
    }
)
