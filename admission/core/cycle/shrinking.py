"""Which jobs give GPUs back: what did not pay as measured, and what they have beyond what they ask.

What a job has beyond what it asks for is lent to it while nobody waits. It gives that back to one
that waits, as soon as that wins more than starting again costs; those first whose added GPUs do
least, as measured, and no more than is needed. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from admission.core.cycle.backfill import Moved
from admission.core.cycle.controlled import lowered
from admission.core.cycle.move import (
    Move,
    cost_gpu_s,
    curve_of,
    left_s,
    placed_without,
    refused,
    why_not,
)
from admission.core.cycle.queue import Queue, moved_to
from admission.core.cycle.quotas import Quotas
from admission.core.moving import MoveKind
from admission.core.placement.cluster import Cluster
from admission.core.placement.place import placed
from admission.core.request import Placement, Request
from admission.core.snapshot import Running
from admission.core.throughput import Expected
from headroom.jobs.words import lasting

__all__ = ["giving_way", "shrinking"]

#: Jobs that are looked at as ones that may give GPUs back, for one that waits.
_MOST_LENDERS = 32


def shrinking(queue: Queue, left: int) -> list[Move]:
    """Return the jobs that give back what did not pay, ``left`` at most: most work won first."""
    found: list[tuple[float, Running, Expected]] = []
    for each in queue.snapshot.running:
        if not each.preempting and (undone := _did_not_pay(queue, each)) is not None:
            won = _freed_gpu_s(queue, each, undone)
            if won >= queue.snapshot.moving.least_return * cost_gpu_s(queue, each):
                found.append((won, each, undone))
    found.sort(key=lambda one: (-one[0], one[1].request.key))
    chosen: list[Move] = []
    for won, each, undone in found:
        if len(chosen) < left and not why_not(queue, each):
            shrunk = _shrunk(queue, each, undone, won)
            if shrunk is not None:
                queue.move(each, shrunk[1])
                chosen.append(shrunk[0])
    return chosen


def _did_not_pay(queue: Queue, running: Running) -> Expected | None:
    """Return what a job does now beside a smaller size, where the difference did not pay.

    Both were measured. Of several sizes it is the largest; None: there is none.
    """
    gpus, curve = len(running.placement.gpus), curve_of(queue, running.request)
    if curve.at(gpus) is None:
        return None
    for smaller in curve.below(gpus):
        if smaller.gpus < running.request.min_gpus:
            break
        grown = curve.expected(smaller.gpus, gpus, prior=1.0)
        if grown.added_yield < queue.snapshot.moving.undone_below:
            return grown
    return None


def _freed_gpu_s(queue: Queue, running: Running, grown: Expected) -> float:
    """Return the GPU time that comes free, less what the job did with it, GPU·s of its own."""
    added = grown.gpus - grown.have
    return added * (1.0 - grown.added_yield) * left_s(queue, running)


def _shrunk(
    queue: Queue, running: Running, grown: Expected, won_gpu_s: float
) -> tuple[Move, Moved] | None:
    """Return a job on the size that it had before; None: it has no place to stand so."""
    moved = _back_to(queue, running, grown.have)
    if moved is None:
        return None
    cost = cost_gpu_s(queue, running)
    told = (
        f"gives back {grown.gpus - grown.have} of {grown.gpus} GPUs: on them all it does"
        f" {grown.told()}, each of these {max(grown.added_yield, 0.0):.2f} of what the others do,"
        f" under {queue.snapshot.moving.undone_below:g}; frees {won_gpu_s / 3600.0:.1f} GPU hours"
        f" more than it loses, and saving and starting again costs up to {cost / 3600.0:.1f}"
    )
    move = Move(
        key=running.request.key, kind=MoveKind.SHRINKING, placement=moved.placement, for_key="",
        won_gpu_s=won_gpu_s, cost_gpu_s=cost, sentence=told,
    )  # fmt: skip
    return move, moved


def _back_to(queue: Queue, running: Running, gpus: int, but_for: str = "") -> Moved | None:
    """Return a job on so many of the nodes' GPUs that it has; None: it has no place to stand so.

    ``but_for``: the key of one that it is not kept from putting off.
    """
    request, fleet = running.request, queue.cluster.fleet
    names = tuple(str(fleet.nodes.names[row]) for row in running.placement.nodes)
    asked = replace(request, gpus=gpus, min_gpus=gpus, nodes=names)
    if queue.snapshot.starts_low:
        asked = lowered(queue.cluster, asked)
    found = placed_without(queue, running, asked)
    if isinstance(found, str):
        return None
    moved = moved_to(fleet, running, found)
    quotas = queue.quotas.without([(request, running.placement, queue.endings[request.key].at)])
    end_at = queue.now + request.walltime_s
    return None if refused(queue, quotas, running, moved, end_at, but_for) else moved


# --- For one that waits ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wanting:
    """A job that waits, its place in the order, and when it begins at the latest, Unix s."""

    request: Request
    rank: int
    #: None: when a quota is given back
    at: float | None


@dataclass(frozen=True)
class _Then:
    """The fleet and the quotas once jobs have moved."""

    cluster: Cluster
    quotas: Quotas

    def with_moved(self, queue: Queue, running: Running, target: Placement | None) -> _Then:
        """Return both once a running job has ended, and stands at ``target`` where it goes on."""
        request, end_at = running.request, queue.endings[running.request.key].at
        cluster = self.cluster.copy()
        cluster.free(running.placement, request)
        quotas = self.quotas.without([(request, running.placement, end_at)])
        if target is not None and cluster.admits(target, request):
            cluster.allocate(target, request)
            quotas = quotas.beside(request, target, end_at)
        return _Then(cluster, quotas)

    def with_started(self, request: Request, placement: Placement, now: float) -> _Then:
        """Return both once one that waits has started, too."""
        cluster = self.cluster.copy()
        cluster.allocate(placement, request)
        end_at = now + request.walltime_s
        return _Then(cluster, self.quotas.beside(request, placement, end_at))

    def place(self, wanting: _Wanting, now: float) -> Placement | None:
        """Return where one that waits would stand; None: nowhere."""
        request, end_at = wanting.request, now + wanting.request.walltime_s
        fitted = self.quotas.fitted(request, end_at, wanting.rank)
        if isinstance(fitted, tuple):
            return None
        found = self.quotas.narrowed(
            fitted, end_at, wanting.rank, lambda asked: placed(self.cluster, asked)
        )
        if found is None or self.quotas.refusals(request, found, end_at, wanting.rank):
            return None
        return found


@dataclass(frozen=True)
class _Given:
    """A job that gives GPUs back, where it stands then, and the fleet then."""

    running: Running
    moved: Moved
    then: _Then


def giving_way(queue: Queue, left: int) -> tuple[list[Move], bool]:
    """Return the jobs that give back what they have beyond what they ask for, ``left`` at most.

    They do for the first that waits and does not fit once all that are told to move have moved.
    Beside them: whether somebody that waits fits then, or once they have given back.
    """
    waiting = _waiting(queue)
    lenders = _lenders(queue) if waiting else []
    if not waiting or not (lenders or _is_any_moving(queue)):
        return [], False
    then, fits = _once_moved(queue), 0
    for each in waiting:
        found = then.place(each, queue.now)
        if found is None:
            given = _giving_way_to(queue, each, then, lenders, left)
            return given, bool(given or fits)
        then, fits = then.with_started(each.request, found, queue.now), fits + 1
    return [], True


def _is_any_moving(queue: Queue) -> bool:
    return bool(queue.moved) or any(each.returns_to is not None for each in queue.snapshot.running)


def _waiting(queue: Queue) -> list[_Wanting]:
    """Return those that room or quotas are kept for, in order."""
    kept = [_Wanting(each.request, each.rank, each.at) for each in queue.reservations.kept]
    kept += [_Wanting(request, rank, None) for request, rank in queue.short_of_quota]
    return sorted(kept, key=lambda each: each.rank)


def _once_moved(queue: Queue) -> _Then:
    """Return fleet and quotas once all that are about to end have ended, and go on elsewhere."""
    then = _Then(queue.cluster.copy(), queue.quotas)
    for each in queue.snapshot.running:
        moved = queue.moved.get(each.request.key)
        if moved is not None:
            # Its quotas count it as it is to be already.
            if moved.more.gpus:
                then.cluster.free(moved.more, moved.request)
            then.cluster.free(each.placement, each.request)
            then.cluster.allocate(moved.placement, each.request)
        elif each.preempting or each.request.key in queue.leaving:
            then = then.with_moved(queue, each, each.returns_to)
    return then


def _giving_way_to(
    queue: Queue, wanting: _Wanting, then: _Then, lenders: Sequence[Running], left: int
) -> list[Move]:
    """Return the jobs that give back so much that the one that waits fits, where that pays."""
    policy, given = queue.snapshot.moving, _enough(queue, wanting, then, lenders, left)
    found = given[-1].then.place(wanting, queue.now) if given else None
    if found is None:
        return []
    sooner_s = _sooner_s(queue, wanting, given)
    won_gpu_s = len(found.gpus) * sooner_s
    costs = [cost_gpu_s(queue, each.running) for each in given]
    if won_gpu_s < policy.least_return * sum(costs):
        return []
    for each in given:
        queue.move(each.running, each.moved)
    told = (
        f"to a job that waits and begins up to {lasting(sooner_s)} sooner then: that wins"
        f" {won_gpu_s / 3600.0:.1f} GPU hours, and saving and starting again costs up to"
        f" {sum(costs) / 3600.0:.1f}"
    )
    return [
        Move(
            key=each.running.request.key, kind=MoveKind.SHRINKING, placement=each.moved.placement,
            for_key=wanting.request.key, won_gpu_s=won_gpu_s / len(given), cost_gpu_s=cost,
            sentence=f"gives back {_fewer(each)}, {told}",
        )
        for each, cost in zip(given, costs, strict=True)
    ]  # fmt: skip


def _sooner_s(queue: Queue, wanting: _Wanting, given: Sequence[_Given]) -> float:
    """Return how much sooner one that waits begins, as far as that counts, s."""
    ends_at = min(queue.endings[each.running.request.key].at for each in given)
    at = ends_at if wanting.at is None else wanting.at
    soon = queue.now + queue.snapshot.tuning.preemption_grace_s
    return min(max(at - soon, 0.0), queue.snapshot.moving.horizon_s)


def _fewer(given: _Given) -> str:
    """Return what a job gives back, in words."""
    request, have = given.running.request, len(given.running.placement.gpus)
    fewer = have - len(given.moved.placement.gpus)
    return f"{fewer} of {have} GPUs, of which it asks for {request.gpus}"


def _enough(
    queue: Queue, wanting: _Wanting, then: _Then, lenders: Sequence[Running], left: int
) -> list[_Given]:
    """Return jobs that give back enough for one that waits, as few as will do; none: all cannot.

    The last of them gives back no more than is needed.
    """
    given: list[_Given] = []
    for each in lenders:
        if len(given) >= left:
            break
        one = _given(queue, each, each.request.gpus, then, wanting)
        if one is None:
            continue
        if one.then.place(wanting, queue.now) is not None:
            return [*given, _least(queue, one, then, wanting)]
        given.append(one)
        then = one.then
    return []


def _given(
    queue: Queue, running: Running, gpus: int, then: _Then, wanting: _Wanting
) -> _Given | None:
    """Return a job that goes back to so many GPUs; None: it cannot."""
    moved = _back_to(queue, running, gpus, but_for=wanting.request.key)
    if moved is None:
        return None
    return _Given(running, moved, then.with_moved(queue, running, moved.placement))


def _least(queue: Queue, given: _Given, then: _Then, wanting: _Wanting) -> _Given:
    """Return a job that gives back no more than one that waits needs of it: ``given`` is enough."""
    running, step = given.running, given.running.request.gpus_per_node or 1
    enough, too_large = len(given.moved.placement.gpus) // step, len(running.placement.gpus) // step
    while too_large - enough > 1:
        middle = (enough + too_large) // 2
        one = _given(queue, running, middle * step, then, wanting)
        if one is not None and one.then.place(wanting, queue.now) is not None:
            given, enough = one, middle
        else:
            too_large = middle
    return given


def _lenders(queue: Queue) -> list[Running]:
    """Return the jobs with more than they ask for: first those that lose least by a GPU less."""
    may = [
        each
        for each in queue.snapshot.running
        if len(each.placement.gpus) > each.request.gpus and not why_not(queue, each)
    ]
    may.sort(key=lambda each: (_does(queue, each), cost_gpu_s(queue, each), each.request.key))
    return may[:_MOST_LENDERS]


def _does(queue: Queue, running: Running) -> float:
    """Return what each GPU beyond what a job asks for does, of what each of the others does."""
    asked, have = running.request.gpus, len(running.placement.gpus)
    return curve_of(queue, running.request).expected(asked, have, prior=have / asked).added_yield
