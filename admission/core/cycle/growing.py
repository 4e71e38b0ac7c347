"""Which jobs have more GPUs: those that start while nobody waits, and those that run.

A job begins with more than it asks for, up to ``max_gpus``, where nobody waits for them: that costs
no restart. One that runs grows by starting again, where what is won pays for that. What is free is
shared by what an added GPU does: those have it whose own curves (:mod:`admission.core.throughput`)
promise most, and until a job was measured its stated communication counts. Nobody for whom room is
kept is put off, and nobody has so many that a budget would have too little left. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from admission.core.cycle.backfill import Moved
from admission.core.cycle.move import (
    Move,
    cost_gpu_s,
    curve_of,
    left_s,
    placed_without,
    refused,
    spent,
    why_not,
)
from admission.core.cycle.queue import Queue, moved_to
from admission.core.cycle.quotas import Quotas
from admission.core.moving import MoveKind, MovingPolicy
from admission.core.placement.cluster import Cluster
from admission.core.request import Locality, Placement, Request
from admission.core.snapshot import Running
from admission.core.throughput import Curve, Expected
from fleet.tables import FleetArrays
from headroom.jobs.words import lasting
from policies.headroom.binding import quantity
from policies.headroom.reach import Room, reach_of

__all__ = ["growing", "widened"]

#: Jobs that the solver is asked about in one cycle, and on fleets of more than so many GPUs fewer,
#: as each takes longer there. The others have their turn in later cycles.
_TRIES, _GPUS = 8, 2_000
#: Turns by time: multiples of it are spread evenly, however far apart cycles are.
_GOLDEN = (1.0 + 5.0**0.5) / 2.0
#: Sizes of a job that are looked at between what it has and the most.
_SIZES = 16
_HANDED_OVER = "a job that waits has next what others are about to give back, and what is free"


def growing(queue: Queue, left: int, *, is_handed_over: bool) -> tuple[list[Move], dict[str, str]]:
    """Return the jobs that grow, ``left`` at most, and why the other elastic ones do not.

    None does while ``is_handed_over``: what is free then is a part of what one that waits has next.
    """
    policy, stays = queue.snapshot.moving, dict[str, str]()
    may: list[Running] = []
    for each in queue.snapshot.running:
        have, request = len(each.placement.gpus), each.request
        if not request.min_gpus <= have < request.most_gpus or each.preempting:
            continue
        why = why_not(queue, each) if policy.grows else "the admission policy lets no job grow"
        why = why or (_HANDED_OVER if is_handed_over else "")
        why = why or (spent(policy) if left <= 0 else _pays_at_best(queue, each))
        if why:
            stays[request.key] = why
        else:
            may.append(each)
    found: list[tuple[float, Running]] = []
    room = _room_beside_moves(queue)
    for each in _in_turn(queue, may):
        grown = _grown(queue, each, room)
        if isinstance(grown, str):
            stays[each.request.key] = grown
        else:
            found.append((grown[0].won_gpu_s / grown[0].cost_gpu_s, each))
    found.sort(key=lambda one: (-one[0], one[1].request.key))
    shares = _shared(queue, [each for _, each in found])
    chosen: list[Move] = []
    for _, each in found:
        # Beside those that grew before it, it may stand elsewhere than alone, or nowhere.
        most = shares[each.request.key]
        grown = _grown(queue, each, room, most) if len(chosen) < left else spent(policy)
        if isinstance(grown, str):
            stays[each.request.key] = grown
        else:
            room = _beside(queue.cluster, room, _as_it_draws(queue, each, grown[1]))
            queue.move(each, grown[1])
            chosen.append(grown[0])
    return chosen, stays


def _pays_at_best(queue: Queue, running: Running) -> str:
    """Return why it would not pay if it had all that it may; empty: it may."""
    have, most = len(running.placement.gpus), running.request.most_gpus
    curve = curve_of(queue, running.request)
    if curve.is_known:
        return "" if _sizes(queue, running, most) else _too_little(queue, curve, have, most)
    return _Gain.of(queue, running, curve.expected(have, most, prior=most / have)).refusal()


def _too_little(queue: Queue, curve: Curve, have: int, gpus: int) -> str:
    """Return why a job is not to have more, though some is free: too little comes of it."""
    expected = curve.expected(have, gpus, prior=gpus / have)
    return (
        f"on {gpus} GPUs in place of {have} it would do {expected.told()}, each added one"
        f" {max(expected.added_yield, 0.0):.2f} of what each does now: less than"
        f" {queue.snapshot.moving.least_yield:g}"
    )


def _sizes(queue: Queue, running: Running, most: int) -> list[int]:
    """Return sizes up to ``most`` at which each added GPU does enough, the largest first.

    Without a curve all of them may.
    """
    have, step = len(running.placement.gpus), running.request.gpus_per_node or 1
    curve, least = curve_of(queue, running.request), queue.snapshot.moving.least_yield
    sizes = {int(size) // step * step for size in np.linspace(have + step, most, _SIZES)}
    return [
        size
        for size in sorted(sizes, reverse=True)
        if size > have and curve.expected(have, size, prior=size / have).added_yield >= least
    ]


@dataclass(frozen=True)
class _Gain:
    """What a job wins by more GPUs, and what that costs it at most, s."""

    expected: Expected
    left_s: float
    won_s: float
    cost_s: float
    policy: MovingPolicy

    @staticmethod
    def of(queue: Queue, running: Running, expected: Expected) -> _Gain:
        """Return the gain of a job that then does so much as is ``expected``."""
        lasts_s = left_s(queue, running)
        won_s = lasts_s * max(1.0 - 1.0 / max(expected.ratio, 1.0), 0.0)
        cost_s = cost_gpu_s(queue, running) / expected.have
        return _Gain(expected, lasts_s, won_s, cost_s, queue.snapshot.moving)

    def told(self) -> str:
        expected = self.expected
        return (
            f"on {expected.gpus} GPUs in place of {expected.have} it does {expected.told()}:"
            f" what is left, up to {lasting(self.left_s)},"
            f" would take {lasting(self.won_s)} less, and saving and starting again costs up to"
            f" {lasting(self.cost_s)}"
        )

    def refusal(self) -> str:
        """Return why it does not pay; empty: it does."""
        if self.expected.added_yield < self.policy.least_yield:
            return (
                f"{self.told()}: each added GPU does {max(self.expected.added_yield, 0.0):.2f} of"
                f" what each does now, less than {self.policy.least_yield:g}"
            )
        if self.won_s < self.policy.least_return * self.cost_s:
            return f"{self.told()}: less than {self.policy.least_return:g} times that is won"
        return ""


@dataclass(frozen=True, order=True)
class _Step:
    """GPUs that a job may have beside those of the step before; the least is given first."""

    #: less what each of them does, of what one does of those that its job asks for
    less_yield: float
    #: as many each as long as they do the same
    number: int
    key: str
    gpus: int


def _shared(queue: Queue, wanting: Sequence[Running]) -> dict[str, int]:
    """Return by key up to how many GPUs each is to have of what is free: what does most, first."""
    steps = {each.request.key: _steps(queue, each) for each in wanting}
    shares = {each.request.key: len(each.placement.gpus) for each in wanting}
    free = int(queue.cluster.gpu_free.sum())
    heap = [step for each in steps.values() for step in each[:1]]
    heapq.heapify(heap)
    while heap:
        step = heapq.heappop(heap)
        if step.gpus > free:
            continue
        free -= step.gpus
        shares[step.key] += step.gpus
        for after in steps[step.key][step.number : step.number + 1]:
            heapq.heappush(heap, after)
    return shares


def _steps(queue: Queue, running: Running) -> list[_Step]:
    """Return the steps in which a job may have more, the first is numbered 1."""
    request, curve = running.request, curve_of(queue, running.request)
    have = len(running.placement.gpus)
    sizes = np.array([have, *reversed(_sizes(queue, running, request.most_gpus))], dtype=np.float64)
    does = np.array(
        [curve.expected(request.gpus, int(each), prior=each / request.gpus).ratio for each in sizes]
    )
    yields = request.gpus * np.diff(does) / np.diff(sizes)
    return [
        _Step(-round(each, 6), number, request.key, int(gpus))
        for number, (each, gpus) in enumerate(
            zip(yields.tolist(), np.diff(sizes).tolist(), strict=True), 1
        )
    ]


def _in_turn(queue: Queue, may: list[Running]) -> Iterator[Running]:
    """Yield those that the solver is asked about in this cycle: each has its turn."""
    tries = max(1, int(_TRIES * min(_GPUS / max(len(queue.cluster.fleet.gpus), 1), 1.0)))
    first = int(queue.now * _GOLDEN) % len(may) if len(may) > tries else 0
    yield from (*may[first:], *may[:first])[:tries]


def _grown(
    queue: Queue, running: Running, room: Room | None, most: int | None = None
) -> tuple[Move, Moved] | str:
    """Return a job with more GPUs, as many as it may have, ``most`` at most; or why it has none."""
    own, request = running.placement, running.request
    have = len(own.gpus)
    end_at, rank = queue.now + request.walltime_s, len(queue.order)
    quotas = queue.quotas.without([(request, own, queue.endings[request.key].at)])
    if most is not None and most <= have:
        return "what is free does more for others"
    larger = _larger(quotas, request, have, end_at, rank)
    if isinstance(larger, str):
        return larger
    sizes = _sizes(queue, running, min(larger.gpus, most or larger.gpus))
    if not sizes:
        return _too_little(queue, curve_of(queue, running.request), have, larger.gpus)
    refusals: list[str] = []
    for gpus in dict.fromkeys((sizes[0], sizes[len(sizes) // 2], sizes[-1])):
        grown = _grown_to(queue, running, quotas, replace(larger, gpus=gpus), room)
        if not isinstance(grown, str):
            return grown
        refusals.append(grown)
    return refusals[0]


def _grown_to(
    queue: Queue, running: Running, quotas: Quotas, larger: Request, room: Room | None
) -> tuple[Move, Moved] | str:
    """Return a job with up to so many GPUs as ``larger`` asks for, or why it has none."""
    found = _placed(queue, running, quotas, larger)
    if isinstance(found, str):
        return found
    have, request = len(running.placement.gpus), running.request
    gain = _Gain.of(queue, running, _expected(queue, running, found))
    moved = moved_to(queue.cluster.fleet, running, found)
    end_at = queue.now + request.walltime_s
    if why := (
        gain.refusal()
        or _too_spread(queue, larger, found)
        or _too_tight(queue, _as_it_draws(queue, running, moved), room)
        or refused(queue, quotas, running, moved, end_at)
    ):
        return why
    move = Move(
        key=request.key, kind=MoveKind.GROWTH, placement=found, for_key="",
        won_gpu_s=have * gain.won_s, cost_gpu_s=have * gain.cost_s,
        sentence=f"grows from {have} to {len(found.gpus)} of {request.most_gpus} GPUs:"
        f" {gain.told()}",
    )  # fmt: skip
    return move, moved


def _larger(quotas: Quotas, request: Request, have: int, end_at: float, rank: int) -> Request | str:
    """Return the request for more GPUs than it has, as far as its quotas go; or why it has none."""
    most = replace(request, gpus=request.most_gpus, min_gpus=have)
    fitted = quotas.fitted(most, end_at, rank)
    if isinstance(fitted, tuple):
        return fitted[0].sentence
    if fitted.gpus <= have:
        return f"its quotas leave it {fitted.gpus} GPUs"
    return replace(fitted, min_gpus=have + 1)


def _placed(queue: Queue, running: Running, quotas: Quotas, larger: Request) -> Placement | str:
    """Return where a job would stand with as many GPUs as its project has watts for, or why not."""
    end_at, rank = queue.now + larger.walltime_s, len(queue.order)
    return quotas.narrowed(
        _as_it_stands(queue, larger), end_at, rank,
        lambda asked: placed_without(queue, running, asked),
    )  # fmt: skip


def _as_it_stands(queue: Queue, larger: Request) -> Request:
    """Return the request without a cap, in the shape that suits the job.

    One that would have to run under a cap is not to grow: what it and others do then is less.
    """
    request = replace(larger, lowest_cap_w=None, max_slowdown=0.0)
    if not queue.snapshot.moving.packs:
        return request
    return replace(request, preferred=Locality.NODE if _talks(request) else Locality.FLEET)


def _talks(request: Request) -> bool:
    """Say whether its GPUs wait for one another in each step."""
    return bool(request.collective_bytes_per_step)


def _too_spread(queue: Queue, request: Request, found: Placement) -> str:
    """Return why a gang that synchronizes does not stand so; empty: on few enough nodes."""
    topology = queue.cluster.topology
    per_node = int(topology.node_gpus_by_kind[topology.gpu_kind[found.gpus[0]]].max())
    fewest = -(-len(found.gpus) // (request.gpus_per_node or per_node))
    if not queue.snapshot.moving.packs or not _talks(request) or len(found.nodes) <= fewest:
        return ""
    return (
        f"{len(found.gpus)} GPUs are free on {len(found.nodes)} nodes alone, and a gang that"
        f" synchronizes stands on no more than hold it, {fewest}"
    )


def _expected(queue: Queue, running: Running, found: Placement) -> Expected:
    """Return what a job does at a placement beside what it does now.

    Until it was measured that is by its GPUs, less the time in which they wait for the network.
    """
    have, gpus = len(running.placement.gpus), len(found.gpus)
    here, there = (max(each.comm_ratio or 1.0, 1.0) for each in (running.placement, found))
    return curve_of(queue, running.request).expected(have, gpus, prior=gpus / have * here / there)


def _room_beside_moves(queue: Queue) -> Room | None:
    """Return what budgets have left beside what jobs that move are to draw more; None: unknown."""
    room = queue.snapshot.room
    for moved in queue.moved.values():
        room = _beside(queue.snapshot.cluster, room, moved)
    return room


def _beside(cluster: Cluster, room: Room | None, moved: Moved) -> Room | None:
    """Return what is left beside what a job is to draw more on a ``cluster`` without that."""
    if room is None:
        return None
    more_w = _more_w(cluster, moved)
    return room.beside(reach_of(cluster.fleet), moved.more.nodes, more_w)


def _more_w(cluster: Cluster, moved: Moved) -> tuple[float, ...]:
    """Return what each node of a job that moves is to draw more at full draw, W.

    What free GPUs and their hosts draw at rest is drawn already.
    """
    return tuple(cluster.added_w(moved.more).tolist())


def _as_it_draws(queue: Queue, running: Running, moved: Moved) -> Moved:
    """Return what a job that moves is to draw more, if each GPU draws what each of its own does.

    That is without a cap: what it was measured to draw under one is corrected by the law of power.
    Of what nobody may cap it is what it reserves now, by what was measured of it. What it reserves
    anew is more.
    """
    own, target, fleet = running.placement, moved.placement, queue.cluster.fleet
    draws = queue.snapshot.draws.get(running.request.key)
    if draws is None:
        now_w, full_w = own.peak_w, own.total_w / len(own.gpus)
    else:
        now_w, full_w = _on_nodes(fleet, own, draws.now_w), draws.full_w
    then_w = np.minimum(_on_nodes(fleet, target, full_w), target.peak_w)
    drawing = replace(running, placement=replace(own, peak_w=now_w))
    return moved_to(fleet, drawing, replace(target, peak_w=tuple(then_w.tolist())))


def _on_nodes(fleet: FleetArrays, placement: Placement, gpu_w: float) -> tuple[float, ...]:
    """Return what each node of a placement draws whose GPUs draw so much each, W."""
    gpus = np.bincount(fleet.gpus.node[list(placement.gpus)], minlength=len(fleet.nodes))
    return tuple((gpus[list(placement.nodes)] * gpu_w).tolist())


def _too_tight(queue: Queue, moved: Moved, room: Room | None) -> str:
    """Return which budget would have too little left with the job at full draw; empty: none.

    What it draws now counts beside that: it frees no more until it has ended.
    """
    if room is None:
        return ""
    reach, least = reach_of(queue.cluster.fleet), queue.snapshot.moving.least_margin
    more_w = _more_w(queue.cluster, moved)
    tightest = room.tightest(reach, moved.more.nodes, more_w)
    if tightest is None or tightest[1] >= least:
        return ""
    scope, _ = reach.scope_at(tightest[0])
    return (
        f"on {len(moved.placement.gpus)} GPUs it draws up to {quantity(sum(more_w), 'W')} more,"
        f" and {scope} would have {100 * tightest[1]:.1f} % left, less than the"
        f" {100 * least:.1f} % that keep it clear of throttling"
    )


# --- Those that start -----------------------------------------------------------------------------


def widened(
    queue: Queue, starting: Sequence[tuple[Request, Placement]]
) -> Iterator[tuple[str, tuple[Placement, str]]]:
    """Yield those that start with more than they ask for: key, placement and a sentence.

    Only where nobody waits for it, and a job may be asked to give it back: it is preemptible and
    writes checkpoints. The queue holds it from then on.
    """
    policy = queue.snapshot.moving
    if not (policy.grows and policy.starts_wide) or queue.is_wanted:
        return
    may = [
        _as_running(queue, request, placement)
        for request, placement in starting
        if request.most_gpus > len(placement.gpus)
        and request.preemptible
        and request.checkpoint_interval_s is not None
    ][:_TRIES]
    if not may:
        return
    room = _room_beside_moves(queue)
    for request, placement in starting:
        starts = _uncapped(queue, Moved(placement, placement, request))
        room = _beside(queue.snapshot.cluster, room, starts)
    for each, most in zip(may, _shared(queue, may).values(), strict=True):
        wider = _wider(queue, each, room, most)
        if wider is not None:
            room = _beside(queue.cluster, room, _uncapped(queue, wider))
            queue.widen(each, wider)
            yield each.request.key, (wider.placement, _told(each, wider))


def _uncapped(queue: Queue, moved: Moved) -> Moved:
    """Return what a job that starts is to draw more, without the cap that it starts under."""
    more, factor = moved.more, queue.cluster.constants.factor
    gpu_w = queue.snapshot.spared_w.get(moved.request.key, 0.0)
    spared_w = factor[list(more.nodes)] * _on_nodes(queue.cluster.fleet, more, gpu_w)
    peak_w = tuple((np.asarray(more.peak_w) + spared_w).tolist())
    return replace(moved, more=replace(more, peak_w=peak_w))


def _as_running(queue: Queue, request: Request, placement: Placement) -> Running:
    """Return a job that starts now as one that runs."""
    return Running(request, placement, queue.now, queue.now + request.walltime_s)


def _wider(queue: Queue, starting: Running, room: Room | None, most: int) -> Moved | None:
    """Return a job that starts with up to ``most`` GPUs; None: as many as it has are all."""
    request, own = starting.request, starting.placement
    end_at, rank = queue.now + request.walltime_s, len(queue.order)
    quotas = queue.quotas.without([(request, own, end_at)])
    larger = _larger(quotas, request, len(own.gpus), end_at, rank)
    if isinstance(larger, str):
        return None
    if request.prefers:
        larger = replace(larger, sites=own.sites)
    sizes = _sizes(queue, starting, min(larger.gpus, most))
    for gpus in dict.fromkeys((*sizes[:1], *sizes[len(sizes) // 2 :][:1], *sizes[-1:])):
        found = _placed(queue, starting, quotas, replace(larger, gpus=gpus))
        if isinstance(found, str):
            continue
        moved = moved_to(queue.cluster.fleet, starting, found)
        if not (
            _expected(queue, starting, found).added_yield < queue.snapshot.moving.least_yield
            or _too_spread(queue, larger, found)
            or _too_tight(queue, _uncapped(queue, moved), room)
            or quotas.refusals(request, found, end_at, rank)
            or queue.ramp.refusal(queue.cluster, moved.more)
        ):
            return moved
    return None


def _told(starting: Running, wider: Moved) -> str:
    request = starting.request
    return (
        f"begins on {len(wider.placement.gpus)} of up to {request.most_gpus} GPUs in place of"
        f" {len(starting.placement.gpus)}: nobody waits for them, and it gives back what is beyond"
        f" the {request.gpus} that it asks for when somebody does"
    )
