"""Running load as the controller sees it, and the fleet as it is once that has given way. Pure.

A job that agreed to a slowdown gives way as far as it agreed, a firm one not at all; load of no
known owner as the policy for it says. For who waits, what gives way is room: it is taken before
they begin (:mod:`policies.controller.control`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace

import numpy as np

from admission.core.allocation.allocations import Allocations, busy
from admission.core.allocation.reservation import AllocationArrays, Bools, drawn
from admission.core.request import Request
from admission.core.snapshot import Draws
from fleet.groups import sum_by
from physics.hardware.drivers import LEAST_POWER_SHARE
from policies.controller.control import Budgets, Controlled, Kind, Memory, Plant, Units
from policies.headroom.columns import Floats, Ints
from policies.headroom.evaluate import Headroom
from policies.headroom.reach import Reach, Room, reach_of

__all__ = [
    "AT_REST",
    "Excess",
    "LastHeld",
    "Unmanaged",
    "asked_sites",
    "at_rest",
    "brought_down",
    "budgets_of",
    "draws_of",
    "plant_of",
    "rest_share",
    "steadied",
    "still_w",
    "units_of",
    "without_ended",
    "without_new",
]

#: Meters and GPUs are read at times of their own: until both have been read, a step of GPUs looks
#: like something else. So what budgets carry beyond what GPUs account for is the median of so long,
#: or what it has been for so long at least, s.
_USUAL_OF_S, _STAYS_FOR_S = 40.0, 8.0
#: Once hosts are known better, what was beside GPUs by what was known before says nothing.
_SAME_SHARE = 0.02
#: The GPUs of an attempt that has ended rest, and readings show it, within so long, s. What still
#: draws then is load of no known owner.
_RESTS_WITHIN_S = 10.0
#: A GPU rests that draws no more than so much of the way from its draw at rest to its rating.
AT_REST = 0.1
#: … or no more than this share of what it draws at any speed while it works.
_STANDING = 0.5


@dataclass(frozen=True, kw_only=True)
class Unmanaged:
    """The policy for load of no known owner: whether it is capped, and how slow it may be made."""

    is_capped: bool = True
    lowest_speed: float = 0.9


def plant_of(headroom: Headroom, heat_w: Floats, ordered_w: Floats) -> Plant:
    """Return the fleet's GPUs as the controller takes them.

    ``heat_w`` is what each may draw by its heat (:func:`policies.controller.heat.limited_by_heat`),
    ``ordered_w`` the cap that each was told last, W; of another fleet, or none, it says nothing.
    """
    fleet, gpus = headroom.fleet, headroom.summary.gpus
    known = len(ordered_w) == len(gpus.load_w)
    curves, model = fleet.models.power_curves, fleet.gpus.model
    return Plant(
        rack=fleet.nodes.rack[fleet.gpus.node],
        drawn_w=gpus.load_w,
        limit_w=np.minimum(gpus.limit_w, gpus.rated_w),
        ordered_w=ordered_w if known else np.full(len(gpus.load_w), np.inf),
        is_held=gpus.throttling,
        clock_share=gpus.clock_ratio,
        host_share=headroom.host_share[fleet.gpus.node],
        static_w=curves.static_w[model],
        exponent=curves.exponent[model],
        linear_share=curves.linear_share[model],
        least_w=LEAST_POWER_SHARE * gpus.rated_w,
        most_w=gpus.rated_w,
        heat_w=heat_w,
    )


def budgets_of(headroom: Headroom) -> Budgets:
    """Return all budgets of power and cooling, by what is drawn."""
    room = Room.of(headroom)
    return Budgets(reach_of(headroom.fleet), room.budget_w, room.budget_w - room.left_w)


def asked_sites(headroom: Headroom, budgets: Budgets) -> Bools:
    """Say of each budget whether it is that of a site of which somebody asks to draw less."""
    sites_w = headroom.fleet.sites.budget_w
    asked = np.zeros(len(budgets.budget_w), dtype=bool)
    now_w = budgets.budget_w[len(asked) - len(sites_w) :]
    # NaN: there is none.
    asked[len(asked) - len(sites_w) :] = ~np.isnan(now_w) & ~(now_w >= sites_w)
    return asked


@dataclass(frozen=True, eq=False)
class Excess:
    """What budgets carried beyond what GPUs account for: Unix s and W by budget, oldest first.

    ``host_share``: what hosts were taken to draw for each W of their GPUs, on average.
    """

    times: tuple[float, ...] = ()
    watts: tuple[Floats, ...] = ()
    host_share: float = 0.0

    def noted(self, watts: Floats, now: float, host_share: float = 0.0) -> Excess:
        """Return it with that of ``now``, Unix s, without what is too old to count."""
        is_same = abs(host_share - self.host_share) <= _SAME_SHARE
        kept = [
            (at, before)
            for at, before in zip(self.times, self.watts, strict=True)
            if is_same and 0.0 <= now - at <= _USUAL_OF_S and len(before) == len(watts)
        ]
        times, every = zip(*kept, (now, watts), strict=True)
        return Excess(times, every, host_share)

    def known_now(self, places: Bools) -> Excess:
        """Return it with no less of ``places`` than now.

        What was assumed of GPUs that are heard again hid as much of what their budgets carry.
        """
        now = self.watts[-1]
        watts = tuple(np.where(places, np.maximum(each, now), each) for each in self.watts)
        return replace(self, watts=watts)

    @property
    def usual_w(self) -> Floats:
        """The median of what is known, or what it has come to and stays, W by budget."""
        watts = np.array(self.watts)
        late = np.array(self.times) > self.times[-1] - _STAYS_FOR_S
        return np.asarray(np.maximum(np.median(watts, axis=0), watts[late].min(axis=0)))


def steadied(
    budgets: Budgets, plant: Plant, excess: Excess, now: float, heard: Ints
) -> tuple[Budgets, Excess]:
    """Return budgets whose loads follow the readings of GPUs, and the excess to go on with.

    GPUs and meters are read at times of their own, seconds apart. When caps take effect GPUs show
    it first, and what meters still have looks like a load that no cap can reach; when load goes up
    the other way round. ``heard`` are GPUs that were silent until now.
    """
    by_gpus_w = _drawn_by(plant, budgets.reach)
    noted = excess.noted(budgets.load_w - by_gpus_w, now, float(plant.host_share.mean()))
    if len(heard):
        noted = noted.known_now(budgets.reach.of_gpus(np.ones(len(heard)), plant.rack[heard]) > 0.0)
    return replace(budgets, load_w=by_gpus_w + noted.usual_w), noted


def without_new(memory: Memory, plant: Plant, units: Units, reach: Reach, heard: Ints) -> Memory:
    """Return a memory in which budgets did not carry besides what now is a unit's.

    A job that starts takes GPUs that rested, and an agent that begins to act makes a unit of what
    was load beside them. Remembered as that, it would count twice until it is forgotten.

    ``heard`` are GPUs that were silent until now. Their ratings, which were assumed of them, are no
    longer what their budgets carry; what hosts were seen to draw at work is. A limit that they come
    with is their own.
    """
    if len(memory.other_w) != reach.count or len(memory.below_for_s) != len(plant.rack):
        return memory
    new = np.setdiff1d(units.gpu[~memory.of_units[units.gpu]], heard)
    assumed_w = (1.0 + plant.host_share[heard]) * plant.most_w[heard]
    other_w = memory.other_w - _drawn_by(plant, reach, new)
    other_w = other_w - reach.of_gpus(assumed_w, plant.rack[heard])
    limit_w, below_for_s = memory.limit_w.copy(), memory.below_for_s.copy()
    limit_w[heard], below_for_s[heard] = plant.limit_w[heard], np.inf
    return replace(memory, other_w=other_w, limit_w=limit_w, below_for_s=below_for_s)


@dataclass(frozen=True, eq=False)
class LastHeld:
    """By GPU: for how long no attempt has held it, s; inf: as long as is known. Empty: unknown."""

    at: float = -np.inf
    for_s: Floats = field(default_factory=lambda: np.zeros(0))

    def after(self, held: Bools, now: float) -> LastHeld:
        """Return what is known now, Unix s; ``held`` says of each GPU whether an attempt does."""
        for_s = self.for_s if len(self.for_s) == len(held) else np.full(len(held), np.inf)
        return LastHeld(now, np.where(held, 0.0, for_s + max(now - self.at, 0.0)))

    @property
    def comes_to_rest(self) -> Bools:
        """Say which GPUs are about to rest, since their attempt has just ended."""
        return np.asarray((self.for_s > 0.0) & (self.for_s <= _RESTS_WITHIN_S))


def without_ended(budgets: Budgets, plant: Plant, comes_to_rest: Bools, idle_w: Floats) -> Budgets:
    """Return budgets without what GPUs draw above rest whose attempt has just ended.

    What they draw at rest, ``idle_w`` by GPU, they go on to draw.
    """
    gpus = np.flatnonzero(comes_to_rest)
    above_w = np.maximum(plant.drawn_w[gpus] - idle_w[gpus], 0.0)
    ended_w = budgets.reach.of_gpus((1.0 + plant.host_share[gpus]) * above_w, plant.rack[gpus])
    return replace(budgets, load_w=budgets.load_w - ended_w)


def _drawn_by(plant: Plant, reach: Reach, gpus: Ints | slice = slice(None)) -> Floats:
    """Return what GPUs draw with their share of hosts, W by budget."""
    drawn_w = (1.0 + plant.host_share[gpus]) * plant.drawn_w[gpus]
    return reach.of_gpus(drawn_w, plant.rack[gpus])


def at_rest(headroom: Headroom, held: Allocations, told: Collection[int]) -> set[int]:
    """Return the attempts that have come to rest, of those that were told to (``told``: ids).

    What still draws more is at work: counted as what budgets carry besides, that would be
    remembered of them long after.
    """
    gpus, idle_w = headroom.summary.gpus, np.nan_to_num(headroom.fleet.gpus.idle_w)
    static_w = headroom.fleet.models.power_curves.static_w[headroom.fleet.gpus.model]
    most_w = np.fmax(idle_w + AT_REST * (gpus.rated_w - idle_w), _STANDING * static_w)
    rests = gpus.load_w <= most_w
    return {
        attempt.id
        for attempt, rows in held.each()
        if attempt.id in told and rests[held.gpu_rows(rows)].all()
    }


def rest_share(
    headroom: Headroom, held: Allocations, resting: Collection[int], before: float
) -> float:
    """Return what jobs that stand still draw, as a share of the way from rest to the rating.

    ``resting``: the ids of attempts that do. Where none does, it is as ``before``.
    """
    rows = [held.gpu_rows(rows) for attempt, rows in held.each() if attempt.id in resting]
    if not rows:
        return before
    still, (idle_w, range_w) = np.concatenate(rows), _ranges_w(headroom)
    over_w = np.maximum(headroom.summary.gpus.load_w[still] - idle_w[still], 0.0)
    return min(float((over_w / range_w[still]).mean()), AT_REST)


def still_w(headroom: Headroom, share: float) -> Floats:
    """Return what each GPU draws while its job stands still, W, by its :func:`rest_share`."""
    idle_w, range_w = _ranges_w(headroom)
    return np.asarray(idle_w + share * range_w)


def _ranges_w(headroom: Headroom) -> tuple[Floats, Floats]:
    """Return what each GPU draws at rest, and by how much more it is rated, W."""
    idle_w = np.nan_to_num(headroom.fleet.gpus.idle_w)
    return idle_w, np.maximum(headroom.summary.gpus.rated_w - idle_w, 1.0)


def units_of(
    held: Allocations,
    headroom: Headroom,
    may_cap: Bools,
    unmanaged: Unmanaged,
    resting: Collection[int] = (),
    known: Collection[int] = (),
    comes_to_rest: Bools | None = None,
) -> Units:
    """Return what can be held: attempts all of whose GPUs can be capped, and unmanaged nodes.

    ``may_cap`` says of each GPU whether its agent is heard and sets caps. ``resting``: ids of
    attempts that stand still, and draw what they do at rest: they are what budgets carry besides.
    ``known``: ids of units that were held before. They stay so on those of their GPUs that still
    can be: else one agent that falls silent would let go of a whole gang. ``comes_to_rest`` says
    of GPUs that their attempt has just ended: what they still draw is not load of no known owner.
    """
    owned = _owned(held, headroom, may_cap, resting, known)
    if not unmanaged.is_capped:
        return owned
    nobodys = ~held.gpus if comes_to_rest is None else ~held.gpus & ~comes_to_rest
    return _joined(owned, _unowned(nobodys, headroom, may_cap, unmanaged.lowest_speed))


def _joined(first: Units, second: Units) -> Units:
    shifted = replace(second, unit=second.unit + len(first))
    both = {
        each.name: np.concatenate([getattr(first, each.name), getattr(shifted, each.name)])
        for each in fields(Units)
    }
    return Units(**both)


def brought_down(
    headroom: Headroom, held: Allocations, units: Units, found: Controlled
) -> tuple[Headroom, AllocationArrays]:
    """Return the fleet once all has given way as far as it agreed, and what then is reserved.

    What agreed to nothing counts with what it draws at full speed, and with what it has reserved
    until it has been seen at work: its cap holds it there.
    """
    arrays, load_w = held.arrays, headroom.summary.gpus.load_w
    lowest_w = np.full(len(load_w), np.inf)
    gives = np.where(units.kind == Kind.FIRM, found.is_learned, ~units.is_starting)[units.unit]
    lowest_w[units.gpu[gives]] = found.lowest_w[units.unit[gives]]
    down = headroom.what_if(np.minimum(load_w, lowest_w))
    # What draws less than it could, held so, may draw that.
    spare_w = np.maximum(lowest_w - down.summary.gpus.load_w, 0.0)
    is_given = np.isfinite(lowest_w)
    factor = 1.0 + headroom.host_share[headroom.fleet.gpus.node]
    spare_w = np.where(is_given, factor * np.where(is_given, spare_w, 0.0), 0.0)
    count = len(arrays)
    most_w = drawn(arrays, headroom.fleet, down.summary).watts
    most_w = most_w + sum_by(spare_w[arrays.gpu], arrays.gpu_allocation, count)
    gives_any = sum_by(is_given[arrays.gpu], arrays.gpu_allocation, count) > 0
    peak_w = np.where(gives_any, np.minimum(most_w, arrays.peak_w), arrays.peak_w)
    return down, replace(arrays, peak_w=peak_w)


def draws_of(
    headroom: Headroom, held: Allocations, units: Units, found: Controlled
) -> dict[str, Draws]:
    """Return what each elastic job that may be capped draws now, and without a cap, by key.

    What it draws now may be held by a cap: what is missing is by the law of power
    (:attr:`Controlled.full_w`).
    """
    arrays, load_w = held.arrays, headroom.summary.gpus.load_w
    missing_w = np.zeros(len(load_w))
    missing_w[units.gpu] = np.maximum(found.full_w[units.unit] - load_w[units.gpu], 0.0)
    missing_w *= 1.0 + headroom.host_share[headroom.fleet.gpus.node]
    now_w = drawn(arrays, headroom.fleet, headroom.summary).watts
    full_w = now_w + sum_by(missing_w[arrays.gpu], arrays.gpu_allocation, len(arrays))
    may_cap = set(units.id.tolist())
    draws = {}
    for attempt, rows in held.each():
        if attempt.request.is_elastic and attempt.id in may_cap:
            gpus = len(attempt.placement.gpus)
            by_gpu_w = (float(each[rows].sum()) / gpus for each in (now_w, full_w))
            draws[attempt.request.key] = Draws(*by_gpu_w)
    return draws


def _owned(
    held: Allocations,
    headroom: Headroom,
    may_cap: Bools,
    resting: Collection[int],
    known: Collection[int],
) -> Units:
    arrays, attempts = held.arrays, held.attempts
    counts = np.diff([*held.firsts, len(arrays)])
    attempt = np.repeat(np.arange(len(attempts)), counts)[arrays.gpu_allocation]
    capable = sum_by(~may_cap[arrays.gpu], attempt, len(attempts)) == 0
    was_held = np.array([each.id in known for each in attempts], dtype=bool)
    capable |= was_held & (sum_by(may_cap[arrays.gpu], attempt, len(attempts)) > 0)
    capable &= np.array([each.id not in resting for each in attempts], dtype=bool)
    mine = [each for each, is_capable in zip(attempts, capable.tolist(), strict=True) if is_capable]
    requests = [each.request for each in mine]
    most_w = np.zeros(len(attempts))
    np.maximum.at(most_w, attempt, headroom.summary.gpus.rated_w[arrays.gpu])
    told_w = np.array([each.gpu_peak_w for each in requests], dtype=np.float64)
    place = np.cumsum(capable) - 1
    mine_too = capable[attempt] & may_cap[arrays.gpu]
    return Units(
        id=np.array([each.id for each in mine], dtype=np.int64),
        kind=np.array([_kind(each) for each in requests], dtype=np.int64),
        lowest_speed=np.array([1.0 - each.max_slowdown for each in requests], dtype=np.float64),
        told_w=np.fmin(told_w, most_w[capable]),
        lowest_cap_w=np.array([each.lowest_cap_w or 0.0 for each in requests], dtype=np.float64),
        is_starting=np.array([each.started_at is None for each in mine], dtype=bool),
        gpu=arrays.gpu[mine_too],
        unit=place[attempt[mine_too]],
    )


def _kind(request: Request) -> Kind:
    agreed = request.lowest_cap_w is not None and request.max_slowdown > 0.0
    return Kind.AGREED if agreed else Kind.FIRM


def _unowned(nobodys: Bools, headroom: Headroom, may_cap: Bools, lowest_speed: float) -> Units:
    """Return nodes on which something runs that no attempt holds, each as one unit."""
    fleet = headroom.fleet
    works = busy(headroom) & nobodys
    nodes = np.unique(fleet.gpus.node[works])
    place = np.full(len(fleet.nodes), -1)
    place[nodes] = np.arange(len(nodes))
    gpu = np.flatnonzero((place[fleet.gpus.node] >= 0) & nobodys & may_cap)
    known = np.unique(fleet.gpus.node[gpu])
    place[known] = np.arange(len(known))
    count = len(known)
    return Units(
        # Below those of attempts: both are ids of the database.
        id=-1 - fleet.nodes.ids[known],
        kind=np.full(count, int(Kind.UNMANAGED)),
        lowest_speed=np.full(count, lowest_speed),
        told_w=np.full(count, np.inf),
        lowest_cap_w=np.zeros(count),
        is_starting=np.zeros(count, dtype=bool),
        gpu=gpu,
        unit=place[fleet.gpus.node[gpu]],
    )
