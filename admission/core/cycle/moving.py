"""Which running jobs start again with more GPUs, or elsewhere so that one that waits fits. Pure.

Both come last in a cycle, on what all that wait have left, and take what a new job of the last
place in the order could: nobody for whom room is kept is put off. What a job is to have is held for
it, beside what it has, from the decision on: so no budget is exceeded on the way, and it comes back
to it before all others. It pays only where what is won is so many times what saving and starting
again costs (:class:`admission.core.moving.MovingPolicy`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from admission.core.cycle.backfill import Moved, Reservation, hold_free_part
from admission.core.cycle.controlled import lowered
from admission.core.cycle.queue import Queue, moved_to
from admission.core.cycle.quotas import Quotas
from admission.core.cycle.victims import Victim, Wanted, cheapest, groups_of
from admission.core.moving import MoveKind, MovingPolicy
from admission.core.placement.place import place
from admission.core.reasons import dominant
from admission.core.request import Placement, Refusal, Request
from admission.core.response.shedding import lost_gpu_s
from admission.core.snapshot import Running
from headroom.jobs.words import lasting

__all__ = ["Move", "Moves", "moves"]

#: Jobs that the solver is asked about in one cycle, and on fleets of more than so many GPUs fewer,
#: as each takes longer there. The others have their turn in later cycles.
_TRIES, _GPUS = 8, 2_000
#: Turns by time: multiples of it are spread evenly, however far apart cycles are.
_GOLDEN = (1.0 + 5.0**0.5) / 2.0
#: Jobs that are looked at as ones that might stand elsewhere, for one that waits.
_MOST_IN_THE_WAY = 32


@dataclass(frozen=True)
class Move:
    """A running job, ``key``, that saves, ends, and starts again at ``placement``.

    ``for_key`` is the job that is made room for; empty where it grows. Costs and what is won are in
    GPU seconds, for the sentence and for whoever counts.
    """

    key: str
    kind: MoveKind
    placement: Placement
    for_key: str
    won_gpu_s: float
    cost_gpu_s: float
    sentence: str


@dataclass(frozen=True)
class Moves:
    """Who moves, and by key why elastic jobs with less than they ask for do not grow now."""

    chosen: tuple[Move, ...] = ()
    stays: Mapping[str, str] = field(default_factory=dict)


def moves(queue: Queue) -> Moves:
    """Return who moves in a cycle in which all that wait have been tried; hold what they get."""
    policy = queue.snapshot.moving
    left = max(policy.moves_per_h - queue.snapshot.moved, 0)
    chosen: list[Move] = []
    if policy.defragments and left:
        chosen += _making_room(queue, left)
    grown, stays = _growing(queue, left - len(chosen))
    return Moves((*chosen, *grown), stays)


def _cost_gpu_s(queue: Queue, running: Running) -> float:
    """Return what a job loses at most by starting again: the time, and what it has not saved."""
    gpus = len(running.placement.gpus)
    unsaved = lost_gpu_s(
        gpus=gpus,
        started_at=running.started_at,
        last_checkpoint_at=running.last_checkpoint_at,
        now=queue.now,
    )
    return gpus * queue.snapshot.moving.restart_s + unsaved


def _why_not(queue: Queue, running: Running) -> str:
    """Return why a job is not moved whatever it would win; empty: it may be."""
    policy, request = queue.snapshot.moving, running.request
    if running.preempting or request.key in queue.leaving or request.key in queue.moved:
        return "it is about to end"
    if not request.preemptible:
        return "it may not be stopped (preemptible)"
    if request.checkpoint_interval_s is None:
        return "it writes no checkpoints to go on from"
    since_s = queue.now - running.started_at
    if since_s < policy.least_since_s:
        wait_s = policy.least_since_s - since_s
        return f"it began {lasting(since_s)} ago, and is left alone for another {lasting(wait_s)}"
    return ""


# --- More GPUs ------------------------------------------------------------------------------------


def _growing(queue: Queue, left: int) -> tuple[list[Move], dict[str, str]]:
    """Return the jobs that grow, ``left`` at most, and why the other elastic ones do not."""
    policy, stays = queue.snapshot.moving, dict[str, str]()
    may: list[Running] = []
    for each in queue.snapshot.running:
        is_smaller = each.request.min_gpus <= len(each.placement.gpus) < each.request.gpus
        if not is_smaller or each.preempting:
            continue
        why = _why_not(queue, each) if policy.grows else "the admission policy lets no job grow"
        why = why or (_spent(policy) if left <= 0 else _pays_at_best(queue, each))
        if why:
            stays[each.request.key] = why
        else:
            may.append(each)
    found: list[tuple[float, Running]] = []
    for each in _in_turn(queue, may):
        grown = _grown(queue, each)
        if isinstance(grown, str):
            stays[each.request.key] = grown
        else:
            found.append((grown[0].won_gpu_s / grown[0].cost_gpu_s, each))
    found.sort(key=lambda one: (-one[0], one[1].request.key))
    chosen: list[Move] = []
    for _, each in found:
        # Beside those that grew before it, it may stand elsewhere than alone, or nowhere.
        grown = _grown(queue, each) if len(chosen) < left else _spent(policy)
        if isinstance(grown, str):
            stays[each.request.key] = grown
        else:
            queue.move(each, grown[1])
            chosen.append(grown[0])
    return chosen, stays


def _pays_at_best(queue: Queue, running: Running) -> str:
    """Return why it would not pay if it had all that it asks for; empty: it may."""
    return _Gain.of(queue, running, float(running.request.gpus)).refusal(running.request.gpus)


@dataclass(frozen=True)
class _Gain:
    """What a job on ``have`` GPUs wins by more of them, and what that costs it at most, s."""

    have: int
    left_s: float
    won_s: float
    cost_s: float
    least_return: float

    @staticmethod
    def of(queue: Queue, running: Running, work: float) -> _Gain:
        """Return the gain of a job that then does the ``work`` of so many GPUs at full speed."""
        have = len(running.placement.gpus)
        left_s = max(running.expected_end_at - queue.now, 0.0)
        won_s = left_s * max(1.0 - have / work, 0.0)
        cost_s = _cost_gpu_s(queue, running) / have
        return _Gain(have, left_s, won_s, cost_s, queue.snapshot.moving.least_return)

    def told(self, gpus: int) -> str:
        return (
            f"on {gpus} GPUs in place of {self.have} what is left, up to {lasting(self.left_s)},"
            f" would take {lasting(self.won_s)} less, and saving and starting again costs up to"
            f" {lasting(self.cost_s)}"
        )

    def refusal(self, gpus: int) -> str:
        """Return why it does not pay; empty: it does."""
        if self.won_s >= self.least_return * self.cost_s:
            return ""
        return f"{self.told(gpus)}: less than {self.least_return:g} times that is won"


def _spent(policy: MovingPolicy) -> str:
    return f"as many jobs as may be within an hour, {policy.moves_per_h}, were moved"


def _in_turn(queue: Queue, may: list[Running]) -> Iterator[Running]:
    """Yield those that the solver is asked about in this cycle: each has its turn."""
    tries = max(1, int(_TRIES * min(_GPUS / max(len(queue.cluster.fleet.gpus), 1), 1.0)))
    first = int(queue.now * _GOLDEN) % len(may) if len(may) > tries else 0
    yield from (*may[first:], *may[:first])[:tries]


def _grown(queue: Queue, running: Running) -> tuple[Move, Moved] | str:
    """Return a job with more GPUs, or why it has none."""
    own, request = running.placement, running.request
    have = len(own.gpus)
    if queue.snapshot.starts_low:
        request = lowered(queue.cluster, request)
    end_at, rank = queue.now + request.walltime_s, len(queue.order)
    ending = queue.endings[request.key]
    quotas = queue.quotas.without([(running.request, own, ending.at)])
    larger = _larger(quotas, request, have, end_at, rank)
    if isinstance(larger, str):
        return larger
    found = _placed_without(queue, running, larger)
    if isinstance(found, str):
        return found
    gpus = len(found.gpus)
    gain = _Gain.of(queue, running, larger.gpus * (1.0 - found.slowdown))
    if refused := gain.refusal(gpus):
        return refused
    moved = moved_to(queue.cluster.fleet, running, found)
    if refused := _refused(queue, quotas, running, moved, end_at):
        return refused
    move = Move(
        key=request.key, kind=MoveKind.GROWTH, placement=found, for_key="",
        won_gpu_s=have * gain.won_s, cost_gpu_s=have * gain.cost_s,
        sentence=f"grows from {have} to {gpus} of {request.gpus} GPUs: {gain.told(gpus)}",
    )  # fmt: skip
    return move, moved


def _larger(quotas: Quotas, request: Request, have: int, end_at: float, rank: int) -> Request | str:
    """Return the request for more GPUs than it has, as far as its quotas go; or why it has none."""
    fitted = quotas.fitted(replace(request, min_gpus=have), end_at, rank)
    if isinstance(fitted, tuple):
        return fitted[0].sentence
    if fitted.gpus <= have:
        return f"its quotas leave it {fitted.gpus} GPUs"
    return replace(fitted, min_gpus=have + 1)


def _placed_without(queue: Queue, running: Running, larger: Request) -> Placement | str:
    """Return where a job would stand if it had ended, or why it has no more than now."""
    cluster = queue.cluster.copy()
    cluster.free(running.placement, running.request)
    found = place(cluster, larger)
    if isinstance(found, Refusal):
        return f"more than it has: {dominant(found.reasons).sentence}"
    return found


def _refused(
    queue: Queue, quotas: Quotas, running: Running, moved: Moved, end_at: float, but_for: str = ""
) -> str:
    """Return why a job is not moved there; empty: it is. What it has now it holds beside that."""
    request, rank = running.request, len(queue.order)
    ending = queue.endings[request.key]
    if reasons := quotas.refusals(request, moved.placement, end_at, rank):
        return reasons[0].sentence
    if not queue.cluster.admits(moved.more, moved.request):
        return "the fleet has no room for what it has and what it would have at once"
    if queue.reservations.are_put_off_by_move(ending, moved, end_at, but_for):
        return "it would put off a job that room is kept for"
    reason = queue.ramp.refusal(queue.cluster, moved.more)
    return reason.sentence if reason else ""


# --- Elsewhere ------------------------------------------------------------------------------------


def _making_room(queue: Queue, left: int) -> list[Move]:
    """Return the jobs that stand elsewhere so that one that waits fits: the first for whom it pays.

    Only for one that has enough GPUs free as it is, but not where it may stand.
    """
    for kept in queue.reservations.kept:
        if kept.request.min_gpus <= int(queue.cluster.gpu_free.sum()):
            found = _room_for(queue, kept, left)
            if found:
                return found
    return []


def _room_for(queue: Queue, kept: Reservation, left: int) -> list[Move]:
    request, policy = kept.request, queue.snapshot.moving
    sooner_s = kept.at - queue.now - queue.snapshot.tuning.preemption_grace_s
    if sooner_s <= 0.0:
        return []
    wanted = Wanted(queue, request, kept.rank, by_quota=False)
    found = cheapest(_in_the_way(queue, request), wanted)
    if found is None or len(found[0]) > left:
        return []
    leaving, placement = found
    won_gpu_s = len(placement.gpus) * sooner_s
    cost_gpu_s = sum(_cost_gpu_s(queue, each) for each in leaving)
    if won_gpu_s < policy.least_return * cost_gpu_s:
        return []
    told = (
        f"makes room for a job of {len(placement.gpus)} GPUs that begins {lasting(sooner_s)} sooner"
        f" then: wins {won_gpu_s / 3600.0:.1f} GPU hours, and saving and starting"
        f" again costs up to {cost_gpu_s / 3600.0:.1f}"
    )
    places = _elsewhere(queue, leaving, placement, request)
    chosen: list[Move] = []
    for each, moved in places:
        queue.move(each, moved)
        chosen.append(
            Move(
                key=each.request.key, kind=MoveKind.DEFRAGMENTATION, placement=moved.placement,
                for_key=request.key, won_gpu_s=won_gpu_s / len(places),
                cost_gpu_s=_cost_gpu_s(queue, each), sentence=told,
            )
        )  # fmt: skip
    return chosen


def _in_the_way(queue: Queue, request: Request) -> list[Victim]:
    """Return jobs that could stand elsewhere just now: of those where most is free the cheapest."""
    fleet = queue.cluster.fleet
    group = groups_of(queue.cluster, request.required)
    free = np.bincount(group[fleet.gpus.node[queue.cluster.gpu_free]], minlength=group.max() + 1)
    may = [each for each in queue.snapshot.running if not _why_not(queue, each)]
    may.sort(
        key=lambda each: (
            -int(free[group[list(each.placement.nodes)]].max(initial=0)),
            _cost_gpu_s(queue, each),
            each.request.key,
        )
    )
    return [
        Victim(each, _cost_gpu_s(queue, each))
        for each in may[:_MOST_IN_THE_WAY]
        if not isinstance(place(queue.cluster, _as_it_is(each)), Refusal)
    ]


def _as_it_is(running: Running) -> Request:
    """Return the request of a job for as many GPUs as it has."""
    gpus = len(running.placement.gpus)
    return replace(running.request, gpus=gpus, min_gpus=gpus)


def _elsewhere(
    queue: Queue, leaving: tuple[Running, ...], placement: Placement, request: Request
) -> list[tuple[Running, Moved]]:
    """Return where jobs go on beside one that stands at ``placement``; none: not all of them can.

    What they hold now stays theirs until then, so all of it is found on what is free now.
    """
    cluster, found = queue.cluster.copy(), list[tuple[Running, Moved]]()
    hold_free_part(cluster, placement, request)
    for each in sorted(leaving, key=lambda one: (-len(one.placement.gpus), one.request.key)):
        there = place(cluster, _as_it_is(each))
        if isinstance(there, Refusal):
            return []
        moved = moved_to(cluster.fleet, each, there)
        ending = queue.endings[each.request.key]
        quotas = queue.quotas.without([(each.request, each.placement, ending.at)])
        end_at = queue.now + each.request.walltime_s
        if _refused(queue, quotas, each, moved, end_at, but_for=request.key):
            return []
        cluster.allocate(moved.more, moved.request)
        found.append((each, moved))
    return found
