"""Which running jobs start again on more GPUs, on fewer, or elsewhere so that one that waits fits.

All come last in a cycle, on what all that wait have left, and take what a new job of the last
place in the order could: nobody for whom room is kept is put off. Pure.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from admission.core.cycle.backfill import Moved, Reservation, hold_free_part
from admission.core.cycle.growing import growing
from admission.core.cycle.move import Move, Moves, cost_gpu_s, refused, why_not
from admission.core.cycle.queue import Queue, moved_to
from admission.core.cycle.shrinking import giving_way, shrinking
from admission.core.cycle.victims import Victim, Wanted, cheapest, groups_of
from admission.core.moving import MoveKind
from admission.core.placement.place import place
from admission.core.request import Placement, Refusal, Request
from admission.core.snapshot import Running
from headroom.jobs.words import lasting

__all__ = ["moves"]

#: Jobs that are looked at as ones that might stand elsewhere, for one that waits.
_MOST_IN_THE_WAY = 32


def moves(queue: Queue) -> Moves:
    """Return who moves in a cycle in which all that wait have been tried; hold what they get."""
    policy = queue.snapshot.moving
    left = max(policy.moves_per_h - queue.snapshot.moved, 0)
    chosen: list[Move] = []
    if policy.defragments and left:
        chosen += _making_room(queue, left)
    is_handed_over = False
    if policy.shrinks:
        given, is_handed_over = giving_way(queue, left - len(chosen))
        chosen += given
        chosen += shrinking(queue, left - len(chosen))
    grown, stays = growing(queue, left - len(chosen), is_handed_over=is_handed_over)
    return Moves((*chosen, *grown), stays)


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
    cost = sum(cost_gpu_s(queue, each) for each in leaving)
    if won_gpu_s < policy.least_return * cost:
        return []
    told = (
        f"makes room for a job of {len(placement.gpus)} GPUs that begins {lasting(sooner_s)} sooner"
        f" then: wins {won_gpu_s / 3600.0:.1f} GPU hours, and saving and starting"
        f" again costs up to {cost / 3600.0:.1f}"
    )
    places = _elsewhere(queue, leaving, placement, request)
    chosen: list[Move] = []
    for each, moved in places:
        queue.move(each, moved)
        chosen.append(
            Move(
                key=each.request.key, kind=MoveKind.DEFRAGMENTATION, placement=moved.placement,
                for_key=request.key, won_gpu_s=won_gpu_s / len(places),
                cost_gpu_s=cost_gpu_s(queue, each), sentence=told,
            )
        )  # fmt: skip
    return chosen


def _in_the_way(queue: Queue, request: Request) -> list[Victim]:
    """Return jobs that could stand elsewhere just now: of those where most is free the cheapest."""
    fleet = queue.cluster.fleet
    group = groups_of(queue.cluster, request.required)
    free = np.bincount(group[fleet.gpus.node[queue.cluster.gpu_free]], minlength=group.max() + 1)
    may = [each for each in queue.snapshot.running if not why_not(queue, each)]
    may.sort(
        key=lambda each: (
            -int(free[group[list(each.placement.nodes)]].max(initial=0)),
            cost_gpu_s(queue, each),
            each.request.key,
        )
    )
    return [
        Victim(each, cost_gpu_s(queue, each))
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
        if refused(queue, quotas, each, moved, end_at, but_for=request.key):
            return []
        cluster.allocate(moved.more, moved.request)
        found.append((each, moved))
    return found
