"""Which running jobs give way: the least work lost for the watts that are needed, by place.

Whoever wants watts says where and how many (:class:`Need`), and which jobs could go
(:class:`Candidate`); :func:`least_loss` chooses. Work counts in GPU-seconds since the last
checkpoint: that is what has to be done again. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fleet.groups import above, sum_by
from fleet.tables import FleetArrays
from policies.headroom.evaluate import Headroom
from policies.headroom.power import failover
from policies.scopes import Scope, ScopeKind
from telemetry.summary import carried_w

if TYPE_CHECKING:
    from admission.core.snapshot import Running

__all__ = [
    "SAVE_S",
    "USUAL_SAVE_S",
    "Candidate",
    "Choice",
    "Need",
    "Reach",
    "Room",
    "least_loss",
    "lost_gpu_s",
    "margins_by_rack",
    "needs_of",
    "rank_by_watts_per_lost_work",
    "ranked",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: So long a job may take to save before it is ended, s, by who ends it.
SAVE_S = {"preemption": 90.0, "fallback": 120.0, "restriction": 120.0, "shedding": 15.0}
#: For every other owner of a stop, such as a person.
USUAL_SAVE_S = 60.0
#: A job that has just written its checkpoint loses this much at least, GPU·s: of those that lose
#: nothing the larger go first, and so the fewer.
_LEAST_LOST_GPU_S = 1.0
#: Whose budgets stand in a row, in this order; the third are those of domains alone.
_KINDS = [
    ScopeKind.RACK,
    ScopeKind.POWER_DOMAIN,
    ScopeKind.POWER_DOMAIN,
    ScopeKind.ZONE,
    ScopeKind.SITE,
]
_ALONE = 2
#: What is left of a need that rounding may leave, W.
_ROUNDING_W = 1e-6
#: Nodes of the search for the best set. Two hundred candidates take some tens of ms.
_SEARCH_STEPS = 2_000


def lost_gpu_s(
    *, gpus: int, started_at: float, last_checkpoint_at: float | None, now: float
) -> float:
    """Return the work that would have to be done again if a job ended now, GPU·s.

    Times are Unix seconds; without a checkpoint all of it since the start.
    """
    since = started_at if last_checkpoint_at is None else max(last_checkpoint_at, started_at)
    return gpus * max(now - since, 0.0)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A running job that could give way, the power that frees on its nodes, and the work it loses.

    ``nodes`` are rows of the inventory, ``watts`` what would be free on each of them, W. ``tier``:
    those of a higher one go only if all of the lower ones together are not enough.
    """

    key: str
    nodes: tuple[int, ...]
    watts: tuple[float, ...]
    lost_gpu_s: float
    tier: int = 0

    @property
    def total_w(self) -> float:
        return float(sum(self.watts))

    @property
    def watts_per_lost_gpu_s(self) -> float:
        return self.total_w / max(self.lost_gpu_s, _LEAST_LOST_GPU_S)


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates in the order in which they give way: most watts for the least work first.

    By tier before that. Deterministic: of two that are alike the name decides.
    """
    return sorted(candidates, key=lambda each: (each.tier, -each.watts_per_lost_gpu_s, each.key))


def rank_by_watts_per_lost_work(running: Iterable[Running], now: float) -> list[Running]:
    """Return running jobs in the order in which they give way, by their reserved power.

    Deterministic: of two that are alike the name decides.
    """
    by_key = {each.request.key: each for each in running}
    return [by_key[each.key] for each in ranked(_of(each, now) for each in by_key.values())]


def _of(running: Running, now: float) -> Candidate:
    placement = running.placement
    lost = lost_gpu_s(
        gpus=len(placement.gpus),
        started_at=running.started_at,
        last_checkpoint_at=running.last_checkpoint_at,
        now=now,
    )
    return Candidate(
        key=running.request.key,
        nodes=placement.nodes,
        watts=placement.peak_w,
        lost_gpu_s=lost,
    )


# --- Where watts are ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """A reduction of power wanted at one scope: a rack, power domain, cooling zone or site.

    ``is_failover``: not of what the power domain carries now, but of what it would if the other
    half of its pair failed.
    """

    scope: Scope
    watts: float
    is_failover: bool = False


@dataclass(frozen=True, eq=False)
class Reach:
    """The share of each rack's load that each budget above it carries.

    The budgets of racks, power domains, power domains whose other half fails, cooling zones and
    sites stand one after another in one array. ``place`` and ``share`` have a row for each rack,
    with place -1 where a budget is missing. A rack on two feeds draws half of its load from each.
    """

    fleet: FleetArrays
    place: Ints
    share: Floats

    @staticmethod
    def of(fleet: FleetArrays) -> Reach:
        racks = fleet.racks
        count = len(racks)
        up_a, up_b = above(fleet, racks.feed_a), above(fleet, racks.feed_b)
        half = np.where((racks.feed_a >= 0) & (racks.feed_b >= 0), 0.5, 1.0)
        first = _firsts(fleet)
        columns = [(first[0] + np.arange(count), np.ones(count))]
        for up, other in ((up_a, up_b), (up_b, up_a)):
            for level in up:
                moves = _moves(fleet, level, other)
                columns.append((_from(first[1], level), half))
                # Half of it is there already. What it carries with the other half gone is more.
                columns.append((_from(first[2], level), np.where(moves, 1.0, half)))
        columns.append((_from(first[3], racks.zone), np.ones(count)))
        columns.append((_from(first[4], racks.site), np.ones(count)))
        places, shares = zip(*columns, strict=True)
        return Reach(fleet, np.stack(places, axis=1), np.stack(shares, axis=1))

    @cached_property
    def count(self) -> int:
        """How many budgets there are."""
        return int(_firsts(self.fleet)[-1])

    def place_of(self, need: Need) -> int:
        """Return the place of the budget of ``need``. Raises KeyError where it has none."""
        fleet, first = self.fleet, _firsts(self.fleet)
        kind, name = need.scope.kind, need.scope.name
        if kind is ScopeKind.POWER_DOMAIN:
            return int(first[2 if need.is_failover else 1] + fleet.domains.index_by_path[name])
        tables = {
            ScopeKind.RACK: (first[0], fleet.racks.index_by_path),
            ScopeKind.ZONE: (first[3], fleet.zones.index_by_path),
            ScopeKind.SITE: (first[4], fleet.sites.index_by_name),
        }
        start, rows = tables[kind]
        return int(start + rows[name])

    def scope_at(self, place: int) -> tuple[Scope, bool]:
        """Return the scope of the budget at ``place``, and whether it is that of a domain alone."""
        fleet = self.fleet
        names = [fleet.racks.paths, fleet.domains.paths, fleet.domains.paths, fleet.zones.paths]
        names.append(fleet.sites.names)
        part = int(np.searchsorted(_firsts(fleet), place, side="right")) - 1
        row = place - _firsts(fleet)[part]
        return Scope(_KINDS[part], str(names[part][row])), part == _ALONE

    def weights(self, nodes: Sequence[int]) -> tuple[Ints, Floats]:
        """Return the shares of each node that budgets carry: places, and (nodes, places)."""
        rack = self.fleet.nodes.rack[np.asarray(nodes, dtype=np.int64)]
        place, share = self.place[rack], self.share[rack]
        known = place >= 0
        places, column = np.unique(place[known], return_inverse=True)
        weights = np.zeros((len(rack), len(places)))
        np.add.at(weights, (np.nonzero(known)[0], column), share[known])
        return places, weights

    def carried(self, nodes: Sequence[int], watts: Sequence[float]) -> tuple[Ints, Floats]:
        """Return the load of budgets from a load of so many W on each node: places and W."""
        places, weights = self.weights(nodes)
        return places, np.asarray(watts, dtype=np.float64) @ weights


def _firsts(fleet: FleetArrays) -> list[int]:
    """Return where racks, domains, domains alone, zones and sites begin, and the end of all."""
    sizes = [len(fleet.racks), len(fleet.domains), len(fleet.domains), len(fleet.zones)]
    return [0, *np.cumsum([*sizes, len(fleet.sites)]).tolist()]


def _from(first: int, rows: Ints) -> Ints:
    return np.where(rows >= 0, first + rows, -1)


def _moves(fleet: FleetArrays, level: Ints, other_branch: Ints) -> npt.NDArray[np.bool_]:
    """Say of each rack whether its other half moves to the domain ``level`` if the pair fails."""
    mate = np.append(fleet.domains.pair, -1)[level]
    moves: npt.NDArray[np.bool_] = (mate >= 0) & (other_branch == mate).any(axis=0)
    return moves


@dataclass(frozen=True, eq=False)
class Room:
    """The power of each budget of a :class:`Reach`, and how much is left, W. NaN: there is none.

    By what is drawn, where it is read, and what silent things may draw, unless it is what is
    ``proven``. What is reserved and not drawn yet is in no wire: it keeps others out, and is no
    cause to take from those that run.
    """

    budget_w: Floats
    left_w: Floats

    @staticmethod
    def of(headroom: Headroom) -> Room:
        """Return the room in order of the reach: racks, domains, domains alone, zones, sites."""
        powers = headroom.powers
        racks, domains = powers[ScopeKind.RACK], powers[ScopeKind.POWER_DOMAIN]
        return _room(headroom, racks.drawn_w, domains.drawn_w, powers[ScopeKind.SITE].drawn_w)

    @staticmethod
    def proven(headroom: Headroom) -> Room:
        """Return the room without the assumed draw of silent nodes, unless a meter sees it.

        They may draw what they are rated for, so that nothing new starts beside them. No job is
        ended for it: most go on as they did, and agents are started anew every day.
        """
        fleet, summary = headroom.fleet, headroom.summary
        heard_w = np.where(summary.nodes.stale, 0.0, summary.nodes.load_w)
        heard_w = sum_by(heard_w, fleet.nodes.rack, len(fleet.racks))
        metered_w = np.fmax(summary.racks.measured_w, heard_w)
        rack_w = np.where(summary.racks.stale, metered_w, summary.racks.load_w)
        domain_w = np.fmax(summary.domains.metered_w, carried_w(fleet, rack_w))
        roots = fleet.domains.parent < 0
        site_w = np.maximum(
            sum_by(rack_w, fleet.racks.site, len(fleet.sites)),
            sum_by(domain_w[roots], fleet.domains.site[roots], len(fleet.sites)),
        )
        return _room(headroom, rack_w, domain_w, site_w)


def _room(headroom: Headroom, rack_w: Floats, domain_w: Floats, site_w: Floats) -> Room:
    fleet, powers = headroom.fleet, headroom.powers
    racks = replace(powers[ScopeKind.RACK], load_w=rack_w)
    domains = replace(powers[ScopeKind.POWER_DOMAIN], load_w=domain_w)
    alone = failover(fleet, racks, domains, headroom.summary.domains.idle)
    zone_w = sum_by(rack_w, fleet.racks.zone, len(fleet.zones))
    paired_w = np.where(fleet.domains.pair >= 0, domains.budget_w, np.nan)
    budgets = [racks.budget_w, domains.budget_w, paired_w, fleet.zones.capacity_w]
    budget_w = np.concatenate([*budgets, powers[ScopeKind.SITE].budget_w])
    return Room(
        budget_w, budget_w - np.concatenate([rack_w, domain_w, alone.load_w, zone_w, site_w])
    )


def needs_of(room: Room, reach: Reach, *, redundancy: bool = False) -> list[Need]:
    """Return the scopes that draw more than their budget, and by how much.

    ``redundancy``: also where a power domain would carry too much if its other half failed.
    """
    needs = []
    # NaN, where there is no budget, is over nothing.
    for place in np.flatnonzero(room.left_w < -_ROUNDING_W).tolist():
        scope, is_failover = reach.scope_at(place)
        if redundancy or not is_failover:
            needs.append(Need(scope, float(-room.left_w[place]), is_failover))
    return needs


def margins_by_rack(room: Room, reach: Reach) -> Floats:
    """Return for each rack the share that is left of the tightest budget above it."""
    share = np.full(len(room.budget_w) + 1, np.nan)  # the last stands for "none"
    np.divide(room.left_w, room.budget_w, out=share[:-1], where=room.budget_w > 0)
    found = share[reach.place]
    least: Floats = np.where(np.isnan(found), np.inf, found).min(axis=1, initial=np.inf)
    return least


# --- Who goes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The jobs that give way, in order of rank; the work they lose, and the power still short.

    ``short_w`` is aligned with the needs: above 0 where all candidates together do not free enough.
    """

    chosen: tuple[Candidate, ...]
    lost_gpu_s: float
    short_w: tuple[float, ...]

    @property
    def is_enough(self) -> bool:
        return not any(short > _ROUNDING_W for short in self.short_w)


def least_loss(candidates: Sequence[Candidate], needs: Sequence[Need], reach: Reach) -> Choice:
    """Choose the candidates that meet each need and lose the least work.

    Of a need that they cannot meet as much as they can is met. Higher tiers come in only for what
    the lower ones leave. Optimal where the search ends within its steps, which it does with some
    tens of candidates; never worse than taking them by rank.
    """
    order = ranked(candidates)
    freed_w = _freed(order, needs, reach)
    asked_w = np.array([need.watts for need in needs], dtype=np.float64)
    left_w, chosen = asked_w.copy(), np.zeros(len(order), dtype=bool)
    tiers = np.array([each.tier for each in order], dtype=np.int64)
    for tier in np.unique(tiers).tolist():
        if not (left_w > _ROUNDING_W).any():
            break
        rows = np.flatnonzero((tiers == tier) & (freed_w > 0).any(axis=1))
        lost = np.array([order[row].lost_gpu_s for row in rows], dtype=np.float64)
        within_reach_w = np.minimum(left_w, freed_w[rows].sum(axis=0))
        chosen[rows[_cover(freed_w[rows], within_reach_w, lost)]] = True
        left_w = np.maximum(asked_w - freed_w[chosen].sum(axis=0), 0.0)
    taken = tuple(each for each, is_in in zip(order, chosen.tolist(), strict=True) if is_in)
    return Choice(taken, sum(each.lost_gpu_s for each in taken), tuple(left_w.tolist()))


def _freed(candidates: Sequence[Candidate], needs: Sequence[Need], reach: Reach) -> Floats:
    """Return the power that each candidate frees for each need, W: (candidates, needs)."""
    column = {reach.place_of(need): at for at, need in enumerate(needs)}
    freed = np.zeros((len(candidates), len(needs)))
    for row, each in enumerate(candidates):
        for place, watts in zip(*reach.carried(each.nodes, each.watts), strict=True):
            at = column.get(int(place))
            if at is not None:
                freed[row, at] = watts
    return freed


def _cover(freed_w: Floats, need_w: Floats, lost: Floats) -> Ints:
    """Return the rows that together free ``need_w`` in every column, with the least loss."""
    cost = np.maximum(lost, _LEAST_LOST_GPU_S)
    greedy = _without_the_needless(_greedy(freed_w, need_w, cost), freed_w, need_w, cost)
    return _Search(freed_w, need_w, cost, greedy).best()


def _greedy(freed_w: Floats, need_w: Floats, cost: Floats) -> list[int]:
    left_w, chosen = need_w.copy(), []
    free = np.ones(len(cost), dtype=bool)
    scale = np.where(need_w > 0, 1.0 / np.maximum(need_w, _ROUNDING_W), 0.0)
    while (left_w > _ROUNDING_W).any():
        gain = (np.minimum(freed_w, left_w) * scale).sum(axis=1) / cost
        row = int(np.argmax(np.where(free, gain, -1.0)))
        chosen.append(row)
        free[row] = False
        left_w = np.maximum(left_w - freed_w[row], 0.0)
    return chosen


def _without_the_needless(
    chosen: list[int], freed_w: Floats, need_w: Floats, cost: Floats
) -> list[int]:
    """Leave out, the costliest first, those that are not needed beside the others."""
    kept = sorted(chosen, key=lambda row: cost[row])
    for row in sorted(chosen, key=lambda row: -cost[row]):
        others = [each for each in kept if each != row]
        if (freed_w[others].sum(axis=0) >= need_w - _ROUNDING_W).all():
            kept = others
    return kept


class _Search:
    """Branch and bound from a good set on: in or out, the best candidate first."""

    def __init__(self, freed_w: Floats, need_w: Floats, cost: Floats, start: list[int]) -> None:
        order = np.argsort(-(np.minimum(freed_w, need_w).sum(axis=1) / cost), kind="stable")
        self._order = order
        self._freed_w, self._need_w, self._cost = freed_w[order], need_w, cost[order]
        self._best, self._best_cost = sorted(start), float(cost[start].sum())
        # What those from a row on can still free: where that is too little there is no way on.
        self._rest_w = np.cumsum(self._freed_w[::-1], axis=0)[::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            per_w = np.where(self._freed_w > 0, self._cost[:, None] / self._freed_w, np.inf)
        #: the least that a watt costs from a row on, by column
        self._per_w = np.minimum.accumulate(per_w[::-1], axis=0)[::-1]

    def best(self) -> Ints:
        """Return the rows of the cheapest set that was found within the steps."""
        stack: list[tuple[int, Floats, float, tuple[int, ...]]] = [(0, self._need_w, 0.0, ())]
        for _ in range(_SEARCH_STEPS):
            if not stack:
                break
            row, left_w, cost, taken = stack.pop()
            if not (left_w > _ROUNDING_W).any():
                if cost < self._best_cost:
                    self._best = sorted(self._order[list(taken)].tolist())
                    self._best_cost = cost
                continue
            if row == len(self._cost) or self._is_hopeless(row, left_w, cost):
                continue
            stack.append((row + 1, left_w, cost, taken))
            with_it = np.maximum(left_w - self._freed_w[row], 0.0)
            stack.append((row + 1, with_it, cost + float(self._cost[row]), (*taken, row)))
        return np.array(self._best, dtype=np.int64)

    def _is_hopeless(self, row: int, left_w: Floats, cost: float) -> bool:
        open_ = left_w > _ROUNDING_W
        if (self._rest_w[row][open_] < left_w[open_] - _ROUNDING_W).any():
            return True
        least = float((left_w[open_] * self._per_w[row][open_]).max())
        return cost + least >= self._best_cost * (1.0 - 1e-12)
