"""Choose which running jobs are preempted for a waiting one: those that lose least work."""

from __future__ import annotations

from admission.core.cycle.backfill import held_by
from admission.core.cycle.queue import Queue
from admission.core.placement.place import place
from admission.core.request import Placement, Refusal, Request
from admission.core.response.shedding import rank_by_watts_per_lost_work
from admission.core.snapshot import Running

__all__ = ["preempt_for"]


def preempt_for(queue: Queue, request: Request, rank: int, *, most: int) -> list[Running]:
    """Return the jobs to preempt for one that fits nowhere now, and reserve their places for it.

    Nobody is to where its class may not ask for that, where it will fit as soon without, or where
    all that may be asked, ``most`` of them, do not free enough.
    """
    rules = queue.snapshot.classes.get(request.job_class)
    if most <= 0 or rules is None or not rules.preempts or _fits_soon(queue, request):
        return []
    found = _enough_of(queue, request, _candidates(queue, request))
    if found is None or not 0 < len(found[0]) <= most:
        return []
    leaving, placement = found
    end_at = queue.now + request.walltime_s
    if queue.reservations.in_the_way_of(request, placement, end_at, rank) is not None:
        return []
    queue.make_room([each.request.key for each in leaving], request, rank, placement)
    return leaving


def _fits_soon(queue: Queue, request: Request) -> bool:
    """Say whether it fits once the jobs have ended that end within the grace of a preemption."""
    soon = queue.now + queue.snapshot.tuning.preemption_grace_s
    ending = [each for each in queue.endings.values() if each.at <= soon]
    if not ending:
        return False
    cluster = queue.cluster.copy()
    cluster.free_all(held_by(ending))
    return not isinstance(place(cluster, request), Refusal)


def _candidates(queue: Queue, request: Request) -> list[Running]:
    """Return the jobs that may be preempted, the least work lost for its watts first."""
    snapshot = queue.snapshot
    highest = request.priority - snapshot.tuning.preemption_gap
    might = [
        each
        for each in snapshot.running
        if each.request.preemptible
        and each.request.priority <= highest
        and not each.preempting
        and not _is_leaving(queue, each)
    ]
    return rank_by_watts_per_lost_work(might, snapshot.now)


def _is_leaving(queue: Queue, running: Running) -> bool:
    """Say whether it was preempted in this cycle, or ends as soon by itself."""
    soon = queue.now + queue.snapshot.tuning.preemption_grace_s
    return queue.endings[running.request.key].at <= soon


def _enough_of(
    queue: Queue, request: Request, candidates: list[Running]
) -> tuple[list[Running], Placement] | None:
    """Return the jobs whose end frees enough, the cheapest first, without any that are not needed.

    And where the job stands then. None where all of them do not free enough.
    """
    cluster = queue.cluster.copy()
    found: Placement | None = None
    upto = 0
    while found is None and upto < len(candidates):
        stride = max(1, upto // 4)
        some = candidates[upto : upto + stride]
        cluster.free_all([(each.placement, each.request) for each in some])
        upto = min(upto + stride, len(candidates))
        placed = place(cluster, request)
        found = None if isinstance(placed, Refusal) else placed
    if found is None:
        return None
    cluster.allocate(found, request)
    kept = []
    for each in reversed(candidates[:upto]):
        placement, of = each.placement, each.request
        if cluster.admits(placement, of):
            cluster.allocate(placement, of)
        else:
            kept.append(each)
    return kept[::-1], found
