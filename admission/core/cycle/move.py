"""A move of a running job: what it costs, whether it may be, and where the job goes on.

What a job is to have is held for it, beside what it has, from the decision on: so no budget is
exceeded on the way, and it comes back to it before all others. It pays only where what is won is so
many times what saving and starting again costs (:class:`admission.core.moving.MovingPolicy`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.core.cycle.backfill import Moved
from admission.core.cycle.queue import Queue
from admission.core.cycle.quotas import Quotas
from admission.core.moving import MoveKind, MovingPolicy
from admission.core.placement.place import place
from admission.core.reasons import dominant
from admission.core.request import Placement, Refusal, Request
from admission.core.response.shedding import lost_gpu_s
from admission.core.snapshot import Running
from admission.core.throughput import Curve
from headroom.jobs.words import lasting

__all__ = [
    "Move", "Moves", "cost_gpu_s", "curve_of", "left_s", "placed_without", "refused",
    "spent", "why_not",
]  # fmt: skip

_UNKNOWN = Curve()


@dataclass(frozen=True)
class Move:
    """A running job, ``key``, that saves, ends, and starts again at ``placement``.

    ``for_key`` is the job that is made room for; empty: there is none. Costs and what is won are in
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
    """Who moves, and by key why elastic jobs with less than they may have do not grow now."""

    chosen: tuple[Move, ...] = ()
    stays: Mapping[str, str] = field(default_factory=dict)


def cost_gpu_s(queue: Queue, running: Running) -> float:
    """Return what a job loses at most by starting again: the time, and what it has not saved."""
    gpus = len(running.placement.gpus)
    unsaved = lost_gpu_s(
        gpus=gpus,
        started_at=running.started_at,
        last_checkpoint_at=running.last_checkpoint_at,
        now=queue.now,
    )
    return gpus * queue.snapshot.moving.restart_s + unsaved


def why_not(queue: Queue, running: Running) -> str:
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


def curve_of(queue: Queue, request: Request) -> Curve:
    """Return what a job was measured to do by its number of GPUs."""
    return queue.snapshot.curves.get(request.key, _UNKNOWN)


def left_s(queue: Queue, running: Running) -> float:
    """Return for how long a job is expected to go on as it does, as far as that counts, s."""
    return min(max(running.expected_end_at - queue.now, 0.0), queue.snapshot.moving.horizon_s)


def spent(policy: MovingPolicy) -> str:
    """Return why no more jobs move within the hour."""
    return f"as many jobs as may be within an hour, {policy.moves_per_h}, were moved"


def placed_without(queue: Queue, running: Running, asked: Request) -> Placement | str:
    """Return where a job would stand if it had ended, or why it does not stand as it is asked."""
    cluster = queue.cluster.copy()
    cluster.free(running.placement, running.request)
    found = place(cluster, asked)
    if isinstance(found, Refusal):
        return f"more than it has: {dominant(found.reasons).sentence}"
    return found


def refused(
    queue: Queue, quotas: Quotas, running: Running, moved: Moved, end_at: float, but_for: str = ""
) -> str:
    """Return why a job is not moved there; empty: it is. What it has now it holds beside that."""
    request, rank = running.request, len(queue.order)
    ending = queue.endings[request.key]
    if reasons := quotas.refusals(request, moved.placement, end_at, rank):
        return reasons[0].sentence
    if moved.more.gpus and not queue.cluster.admits(moved.more, moved.request):
        return "the fleet has no room for what it has and what it would have at once"
    if queue.reservations.are_put_off_by_move(ending, moved, end_at, but_for):
        return "it would put off a job that room is kept for"
    reason = queue.ramp.refusal(queue.cluster, moved.more)
    return reason.sentence if reason else ""
