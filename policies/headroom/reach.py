"""Budgets above each rack: how much of its load each carries, and what they have left. Pure.

The budgets of racks, power domains, power domains whose other half fails, cooling zones and sites
stand one after another in one array, so that whoever takes watts from a place finds all that they
count against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from fleet.groups import above, sum_by
from fleet.tables import FleetArrays
from policies.headroom.columns import Floats, Ints
from policies.headroom.evaluate import Headroom
from policies.headroom.power import failover
from policies.scopes import Scope, ScopeKind
from telemetry.summary import carried_w

__all__ = ["ROUNDING_W", "Need", "Reach", "Room", "margins_by_rack", "needs_of", "reach_of"]

#: Whose budgets stand in a row, in this order; the third are those of domains alone.
_KINDS = [
    ScopeKind.RACK,
    ScopeKind.POWER_DOMAIN,
    ScopeKind.POWER_DOMAIN,
    ScopeKind.ZONE,
    ScopeKind.SITE,
]
_ALONE, _ZONE = 2, 3
#: What is left of a need that rounding may leave, W.
ROUNDING_W = 1e-6


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

    @cached_property
    def zones(self) -> npt.NDArray[np.bool_]:
        """Say of each budget whether it is the heat that a cooling zone carries off."""
        first = _firsts(self.fleet)
        places = np.arange(self.count)
        return (places >= first[_ZONE]) & (places < first[_ZONE + 1])

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

    def of_racks(self, rack_w: Floats) -> Floats:
        """Return the load of each budget from that of racks, W: (racks, …) becomes (budgets, …)."""
        place, share = self._columns
        found = np.zeros((self.count + 1, *rack_w.shape[1:]))
        carried_w = share.reshape(*share.shape, *([1] * (rack_w.ndim - 1))) * rack_w
        np.add.at(found, place, carried_w.reshape(-1, *rack_w.shape[1:]))
        # Where a rack lacks a budget its place is -1: the last, which is none.
        return found[:-1]

    @cached_property
    def _columns(self) -> tuple[Ints, Floats]:
        """Places of all racks column after column, and the shares by column."""
        return self.place.T.ravel(), np.ascontiguousarray(self.share.T)

    def of_gpus(self, watts: Floats, rack: Ints) -> Floats:
        """Return the load of each budget from that of GPUs, or other parts, of given racks, W."""
        return self.of_racks(sum_by(watts, rack, len(self.place)))

    def carried(self, nodes: Sequence[int], watts: Sequence[float]) -> tuple[Ints, Floats]:
        """Return the load of budgets from a load of so many W on each node: places and W."""
        places, weights = self.weights(nodes)
        return places, np.asarray(watts, dtype=np.float64) @ weights


class _Reaches:
    """The reach of the last inventory: it takes some ms to make."""

    def __init__(self) -> None:
        self._last: Reach | None = None

    def of(self, fleet: FleetArrays) -> Reach:
        """Return the reach of an inventory, made once for the last one."""
        if self._last is None or self._last.fleet is not fleet:
            self._last = Reach.of(fleet)
        return self._last


reach_of = _Reaches().of


def _firsts(fleet: FleetArrays) -> list[int]:
    """Return where racks, domains, domains alone, zones and sites begin, and the end of all."""
    parts = fleet.racks, fleet.domains, fleet.domains, fleet.zones, fleet.sites
    return [*accumulate(map(len, parts), initial=0)]


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

    def without(self, kept: npt.NDArray[np.bool_]) -> Room:
        """Return the room in which all that is ``kept`` by something else has endless room."""
        return Room(self.budget_w, np.where(kept, np.inf, self.left_w))

    def beside(self, reach: Reach, nodes: Sequence[int], watts: Sequence[float]) -> Room:
        """Return the room beside so many W more on each node."""
        places, carried_w = reach.carried(nodes, watts)
        left_w = self.left_w.copy()
        left_w[places] -= carried_w
        return Room(self.budget_w, left_w)

    def tightest(
        self, reach: Reach, nodes: Sequence[int], watts: Sequence[float]
    ) -> tuple[int, float] | None:
        """Return the place of the budget above nodes of which least is left, and that as a share.

        ``watts`` come to each node first. None: no budget above them is known.
        """
        places, carried_w = reach.carried(nodes, watts)
        budget_w, share = self.budget_w[places], np.full(len(places), np.nan)
        np.divide(self.left_w[places] - carried_w, budget_w, out=share, where=budget_w > 0)
        if np.isnan(share).all():
            return None
        least = int(np.nanargmin(share))
        return int(places[least]), float(share[least])

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
    budgets = [racks.budget_w, domains.budget_w, paired_w, headroom.zone_capacity_w]
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
    for place in np.flatnonzero(room.left_w < -ROUNDING_W).tolist():
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
