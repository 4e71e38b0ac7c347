"""Which running jobs start again on more GPUs, on fewer, or elsewhere so that one that waits fits.

All come last in a cycle, on what all that wait have left, and take what a new job of the last
place in the order could: nobody for whom room is kept is put off. What a job is to have is held for
it, beside what it has, from the decision on: so no budget is exceeded on the way, and it comes back
to it before all others. It pays only where what is won is so many times what saving and starting
again costs (:class:`admission.core.moving.MovingPolicy`).

What more GPUs are worth to a job says its own curve (:mod:`admission.core.throughput`), and until
it was measured its stated communication. Pure.
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
from admission.core.request import Locality, Placement, Refusal, Request
from admission.core.response.shedding import lost_gpu_s
from admission.core.snapshot import Running
from admission.core.throughput import Curve, Expected
from headroom.jobs.words import lasting
from policies.headroom.binding import quantity
from policies.headroom.reach import Room, reach_of

__all__ = ["Move", "Moves", "moves"]

#: Jobs that the solver is asked about in one cycle, and on fleets of more than so many GPUs fewer,
#: as each takes longer there. The others have their turn in later cycles.
_TRIES, _GPUS = 8, 2_000
#: Turns by time: multiples of it are spread evenly, however far apart cycles are.
_GOLDEN = (1.0 + 5.0**0.5) / 2.0
#: Sizes of a job that are looked at between what it has and the most.
_SIZES = 16
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
    """Who moves, and by key why elastic jobs with less than they may have do not grow now."""

    chosen: tuple[Move, ...] = ()
    stays: Mapping[str, str] = field(default_factory=dict)


def moves(queue: Queue) -> Moves:
    """Return who moves in a cycle in which all that wait have been tried; hold what they get."""
    policy = queue.snapshot.moving
    left = max(policy.moves_per_h - queue.snapshot.moved, 0)
    chosen: list[Move] = []
    if policy.defragments and left:
        chosen += _making_room(queue, left)
    if policy.shrinks:
        chosen += _shrinking(queue, left - len(chosen))
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
        have, request = len(each.placement.gpus), each.request
        if not request.min_gpus <= have < request.most_gpus or each.preempting:
            continue
        why = _why_not(queue, each) if policy.grows else "the admission policy lets no job grow"
        why = why or (_spent(policy) if left <= 0 else _pays_at_best(queue, each))
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
    chosen: list[Move] = []
    for _, each in found:
        # Beside those that grew before it, it may stand elsewhere than alone, or nowhere.
        grown = _grown(queue, each, room) if len(chosen) < left else _spent(policy)
        if isinstance(grown, str):
            stays[each.request.key] = grown
        else:
            queue.move(each, grown[1])
            room = _beside(queue, room, grown[1])
            chosen.append(grown[0])
    return chosen, stays


def _pays_at_best(queue: Queue, running: Running) -> str:
    """Return why it would not pay if it had all that it may; empty: it may."""
    have, most = len(running.placement.gpus), running.request.most_gpus
    curve = _curve(queue, running)
    if curve.is_known:
        return "" if _sizes(queue, running, most) else _too_little(queue, curve, have, most)
    return _Gain.of(queue, running, curve.expected(have, most, prior=most / have)).refusal()


def _curve(queue: Queue, running: Running) -> Curve:
    return queue.snapshot.curves.get(running.request.key, _UNKNOWN)


_UNKNOWN = Curve()


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
    curve, least = _curve(queue, running), queue.snapshot.moving.least_yield
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
        policy = queue.snapshot.moving
        left_s = _left_s(queue, running)
        won_s = left_s * max(1.0 - 1.0 / max(expected.ratio, 1.0), 0.0)
        cost_s = _cost_gpu_s(queue, running) / expected.have
        return _Gain(expected, left_s, won_s, cost_s, policy)

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


def _left_s(queue: Queue, running: Running) -> float:
    """Return for how long a job is expected to go on as it does, as far as that counts, s."""
    left_s = max(running.expected_end_at - queue.now, 0.0)
    return min(left_s, queue.snapshot.moving.horizon_s)


def _spent(policy: MovingPolicy) -> str:
    return f"as many jobs as may be within an hour, {policy.moves_per_h}, were moved"


def _in_turn(queue: Queue, may: list[Running]) -> Iterator[Running]:
    """Yield those that the solver is asked about in this cycle: each has its turn."""
    tries = max(1, int(_TRIES * min(_GPUS / max(len(queue.cluster.fleet.gpus), 1), 1.0)))
    first = int(queue.now * _GOLDEN) % len(may) if len(may) > tries else 0
    yield from (*may[first:], *may[:first])[:tries]


def _grown(queue: Queue, running: Running, room: Room | None) -> tuple[Move, Moved] | str:
    """Return a job with more GPUs, as many as it may have; or why it has none."""
    own, request = running.placement, running.request
    have = len(own.gpus)
    end_at, rank = queue.now + request.walltime_s, len(queue.order)
    quotas = queue.quotas.without([(request, own, queue.endings[request.key].at)])
    larger = _larger(quotas, request, have, end_at, rank)
    if isinstance(larger, str):
        return larger
    sizes = _sizes(queue, running, larger.gpus)
    if not sizes:
        return _too_little(queue, _curve(queue, running), have, larger.gpus)
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
    found = _placed_without(queue, running, _as_it_stands(queue, larger))
    if isinstance(found, str):
        return found
    have, request = len(running.placement.gpus), running.request
    gain = _Gain.of(queue, running, _expected(queue, running, found))
    refused = gain.refusal() or _too_spread(queue, larger, found)
    refused = refused or _too_tight(queue, running, found, room)
    moved = moved_to(queue.cluster.fleet, running, found)
    end_at = queue.now + request.walltime_s
    if refused := refused or _refused(queue, quotas, running, moved, end_at):
        return refused
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
    return _curve(queue, running).expected(have, gpus, prior=gpus / have * here / there)


def _room_beside_moves(queue: Queue) -> Room | None:
    """Return what budgets have left beside what jobs that move are to draw more; None: unknown."""
    room = queue.snapshot.room
    for moved in queue.moved.values():
        room = _beside(queue, room, moved)
    return room


def _beside(queue: Queue, room: Room | None, moved: Moved) -> Room | None:
    if room is None:
        return None
    return room.beside(reach_of(queue.cluster.fleet), moved.more.nodes, moved.more.peak_w)


def _too_tight(queue: Queue, running: Running, found: Placement, room: Room | None) -> str:
    """Return which budget would have too little left with the job at full draw; empty: none.

    What it draws now counts beside that: it frees no more until it has ended.
    """
    if room is None:
        return ""
    reach, least = reach_of(queue.cluster.fleet), queue.snapshot.moving.least_margin
    more = moved_to(queue.cluster.fleet, running, found).more
    tightest = room.tightest(reach, more.nodes, more.peak_w)
    if tightest is None or tightest[1] >= least:
        return ""
    scope, _ = reach.scope_at(tightest[0])
    return (
        f"on {len(found.gpus)} GPUs it draws up to {quantity(more.total_w, 'W')} more, and"
        f" {scope} would have {tightest[1]:.1%} left, less than the {least:.1%} that keep it"
        " clear of throttling"
    )


def _placed_without(queue: Queue, running: Running, asked: Request) -> Placement | str:
    """Return where a job would stand if it had ended, or why it does not stand as it is asked."""
    cluster = queue.cluster.copy()
    cluster.free(running.placement, running.request)
    found = place(cluster, asked)
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
    if moved.more.gpus and not queue.cluster.admits(moved.more, moved.request):
        return "the fleet has no room for what it has and what it would have at once"
    if queue.reservations.are_put_off_by_move(ending, moved, end_at, but_for):
        return "it would put off a job that room is kept for"
    reason = queue.ramp.refusal(queue.cluster, moved.more)
    return reason.sentence if reason else ""


# --- Fewer GPUs -----------------------------------------------------------------------------------


def _shrinking(queue: Queue, left: int) -> list[Move]:
    """Return the jobs that give back what did not pay, ``left`` at most: most work won first."""
    found: list[tuple[float, Running, Expected]] = []
    for each in queue.snapshot.running:
        if not each.preempting and (undone := _did_not_pay(queue, each)) is not None:
            won = _freed_gpu_s(queue, each, undone)
            if won >= queue.snapshot.moving.least_return * _cost_gpu_s(queue, each):
                found.append((won, each, undone))
    found.sort(key=lambda one: (-one[0], one[1].request.key))
    chosen: list[Move] = []
    for won, each, undone in found:
        if len(chosen) < left and not _why_not(queue, each):
            shrunk = _shrunk(queue, each, undone, won)
            if shrunk is not None:
                queue.move(each, shrunk[1])
                chosen.append(shrunk[0])
    return chosen


def _did_not_pay(queue: Queue, running: Running) -> Expected | None:
    """Return what a job does now beside a smaller size, where the difference did not pay.

    Both were measured. Of several sizes it is the largest; None: there is none.
    """
    gpus, curve = len(running.placement.gpus), _curve(queue, running)
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
    return added * (1.0 - grown.added_yield) * _left_s(queue, running)


def _shrunk(
    queue: Queue, running: Running, grown: Expected, won_gpu_s: float
) -> tuple[Move, Moved] | None:
    """Return a job on the size that it had before; None: it has no place to stand so."""
    request, back = running.request, grown.have
    asked = replace(request, gpus=back, min_gpus=back)
    if queue.snapshot.starts_low:
        asked = lowered(queue.cluster, asked)
    found = _placed_without(queue, running, asked)
    if isinstance(found, str):
        return None
    moved = moved_to(queue.cluster.fleet, running, found)
    ending = queue.endings[request.key]
    quotas = queue.quotas.without([(request, running.placement, ending.at)])
    if _refused(queue, quotas, running, moved, queue.now + request.walltime_s):
        return None
    cost_gpu_s = _cost_gpu_s(queue, running)
    told = (
        f"gives back {grown.gpus - back} of {grown.gpus} GPUs: on them all it does"
        f" {grown.told()}, each of these {max(grown.added_yield, 0.0):.2f} of what the others do,"
        f" under {queue.snapshot.moving.undone_below:g}; frees {won_gpu_s / 3600.0:.1f} GPU hours"
        f" more than it loses, and saving and starting again costs up to"
        f" {cost_gpu_s / 3600.0:.1f}"
    )
    move = Move(
        key=request.key, kind=MoveKind.SHRINKING, placement=found, for_key="",
        won_gpu_s=won_gpu_s, cost_gpu_s=cost_gpu_s, sentence=told,
    )  # fmt: skip
    return move, moved


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
