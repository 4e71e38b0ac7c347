"""Where GPUs of one model can take a gang at one draw, and which of them it takes.

A search asks at one locality after another, the closest first. At each of them the group that has
least to spare beyond what is wanted is tried first: what is left over stays in large pieces.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from admission.core.cluster import Cluster
from admission.core.layout import Bools, Floats, Ints
from admission.core.request import Locality, Request
from policies.headroom.groups import sum_by

__all__ = ["Ground", "Picks"]

#: Groups of a kind that are tried for one gang.
_TRIES = 24
#: What a gang of a locality is put together of, besides racks.
_PARTS = {
    Locality.FLEET: (Locality.SITE, Locality.ZONE),
    Locality.SITE: (Locality.ZONE,),
}
#: What rounding up to what sums are exact in may add to a node, W.
_ROUNDING_W = 1.0 / 512.0


@dataclass
class Picks:
    """How many GPUs a gang takes on which nodes."""

    level: Locality
    by_node: dict[int, int] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return sum(self.by_node.values())


@dataclass(frozen=True, eq=False)
class Ground:
    """GPUs of one model, of those ``nodes`` that a request may use, at ``gpu_w`` each.

    ``kind`` is a place in ``layout.gpu_models``. With ``gpus_per_node`` a node gives so many GPUs
    or none.
    """

    cluster: Cluster
    kind: int
    gpu_w: float
    margin_c: float
    gpus_per_node: int | None
    balanced: bool
    nodes: Bools
    #: under which the cluster remembers what has no place on it; None: it is not to
    key: object = None

    @staticmethod
    def of(
        cluster: Cluster,
        request: Request,
        kind: int,
        gpu_w: float,
        nodes: Bools,
        key: object = None,
    ) -> Ground:
        """Return the ground of ``request`` at a draw."""
        return Ground(
            cluster,
            kind,
            gpu_w,
            request.thermal_margin_c,
            request.gpus_per_node,
            request.balanced,
            nodes,
            key,
        )

    @property
    def step(self) -> int:
        """GPUs are taken in steps of so many."""
        return self.gpus_per_node or 1

    # --- What there is ----------------------------------------------------------------------------

    @cached_property
    def usable(self) -> Ints:
        """GPUs of each node that are free and keep the margin and all caps at this draw."""
        heat = self.cluster.sight.heat(self.margin_c)
        free = self.cluster.node_free[self.kind] * self.nodes
        free = free * (heat.node_most_w >= self.gpu_w)
        mixed = np.flatnonzero((free > 0) & (heat.node_least_w < self.gpu_w))
        if len(mixed):
            free[mixed] = self.good_gpus(mixed).sum(axis=1)
        return self.whole(free)

    def whole(self, gpus: Ints) -> Ints:
        """Return how many of the GPUs of each node may be taken: a fixed number, or all."""
        if self.gpus_per_node is None:
            return gpus
        return np.where(gpus >= self.gpus_per_node, self.gpus_per_node, 0)

    def good_gpus(self, nodes: Ints) -> Bools:
        """Say which GPUs of each of ``nodes`` are usable, as ``layout.gpu_rows`` has them."""
        cluster, layout = self.cluster, self.cluster.layout
        rows = layout.gpu_rows[nodes]
        found: Bools = (
            (rows >= 0)
            & cluster.gpu_free[rows]
            & (layout.gpu_kind[rows] == self.kind)
            & (cluster.sight.heat(self.margin_c).gpu_w[rows] >= self.gpu_w)
        )
        return found

    @cached_property
    def unit_w(self) -> Floats:
        """What a GPU more adds on each node at most, W."""
        sight = self.cluster.sight
        return sight.factor * np.maximum(self.gpu_w - sight.node_base_w, 0.0) + _ROUNDING_W

    @cached_property
    def least_unit_w(self) -> float:
        """What a GPU adds on the node where it adds least, W."""
        return float(self.unit_w.min(initial=np.inf))

    @cached_property
    def first_w(self) -> Floats:
        """What the first GPU on a node adds besides, W."""
        return np.where(self.cluster.gangs == 0, self.cluster.sight.gap_w, 0.0)

    @cached_property
    def rack_fit(self) -> Ints:
        """GPUs that each rack by itself can take, by what is free and by all of its limits."""
        fleet, sight = self.cluster.fleet, self.cluster.sight
        count = sum_by(self.usable, fleet.nodes.rack, len(fleet.racks))
        unit_w = sight.rack_factor * np.maximum(self.gpu_w - sight.rack_base_w, 0.0) + _ROUNDING_W
        by_watts = np.floor(np.maximum(self.cluster.admit_w, 0.0) / unit_w)
        fit = np.minimum(count, by_watts).astype(np.int64)
        return fit // self.step * self.step

    def rows(self, picks: Picks) -> tuple[Ints, Ints, Ints]:
        """Return the nodes of picks in order, how many GPUs they take of each, and which ones."""
        nodes, count = np.array(sorted(picks.by_node.items()), dtype=np.int64).T
        good = self.good_gpus(nodes)
        taken = good & (good.cumsum(axis=1) <= count[:, None])
        return nodes, count, self.cluster.layout.gpu_rows[nodes][taken]

    # --- Where it fits ----------------------------------------------------------------------------

    def find(self, gpus: int, closest: Locality, widest: Locality) -> Picks | None:
        """Return nodes for exactly ``gpus`` GPUs, as close together as they fit.

        Where so many had no place, more have none either, until something is released.
        """
        hopeless, key = self.cluster.hopeless, (self.key, widest)
        if gpus >= hopeless.get(key, gpus + 1):
            return None
        if int(self.rack_fit.sum()) >= gpus:
            for level in Locality:
                if closest <= level <= widest:
                    found = self._at(level, gpus)
                    if found is not None:
                        return found
        # Of a balanced gang a larger one may fit better.
        if self.key is not None and not self.balanced:
            hopeless[key] = gpus
        return None

    def most(self, gpus: int, widest: Locality) -> int:
        """Return how many of ``gpus`` GPUs fit within one group of ``widest``: a whole step."""
        if widest is Locality.NODE:
            room_w = self.cluster.admit_w[self.cluster.fleet.nodes.rack] - self.first_w
            by_watts = np.floor(np.maximum(room_w, 0.0) / self.unit_w)
            fit = np.minimum(self.usable, by_watts).astype(np.int64)
            return min(int(self.whole(fit).max(initial=0)), gpus)
        best = 0
        for group, total in self._groups(widest, 1):
            if best >= min(total, gpus):
                break
            best = max(best, self._fill(widest, group, gpus).gpus)
        return best

    def _at(self, level: Locality, gpus: int) -> Picks | None:
        if level is Locality.NODE:
            return self._on_one_node(gpus)
        enough = list(self._groups(level, gpus))
        for group, _ in reversed(enough):
            found = self._fill(level, group, gpus)
            if found.gpus == gpus:
                return found
        return None

    def _on_one_node(self, gpus: int) -> Picks | None:
        rack = self.cluster.fleet.nodes.rack
        need_w = gpus * self.unit_w + self.first_w
        fits = (self.usable >= gpus) & (need_w <= self.cluster.admit_w[rack])
        if self.gpus_per_node is not None:
            fits &= gpus == self.gpus_per_node
        nodes = np.flatnonzero(fits)
        if not len(nodes):
            return None
        spare = self.usable[nodes] * (1 << 20) + self.rack_fit[rack[nodes]]
        return Picks(Locality.NODE, {int(nodes[spare.argmin()]): gpus})

    def _groups(self, level: Locality, gpus: int) -> Iterator[tuple[int, int]]:
        """Yield groups that may take ``gpus``, and how many they may take, the most first.

        Of many those with the least to spare are left, and the one with the most.
        """
        total = self.group_fit(level)
        groups = np.flatnonzero(total >= gpus)
        groups = groups[np.argsort(-total[groups], kind="stable")]
        if len(groups) > _TRIES:
            groups = np.append(groups[:1], groups[1 - _TRIES :])
        yield from zip(groups.tolist(), total[groups].tolist(), strict=True)

    def group_fit(self, level: Locality) -> Ints:
        """Return at most how many GPUs each group of a locality can take."""
        layout = self.cluster.layout
        if level is Locality.FLEET:
            return np.array([self.rack_fit.sum()])
        if level is Locality.RACK:
            return self.rack_fit
        count = layout.group_count[level]
        if level is Locality.SWITCH_DOMAIN and layout.domains_split_racks:
            return sum_by(self.usable, layout.groups[level], count).astype(np.int64)
        return sum_by(self.rack_fit, layout.rack_groups[level], count).astype(np.int64)

    def _fill(self, level: Locality, group: int, gpus: int) -> Picks:
        racks, only = self._racks(level, group)
        filling = _Filling(self, Picks(level), only)
        if self.balanced:
            return filling.evenly(racks, gpus)
        return filling.packed(racks, gpus)

    def _racks(self, level: Locality, group: int) -> tuple[Ints, Bools | None]:
        """Return the racks of a group, and the nodes of them where not all are in it."""
        layout = self.cluster.layout
        if level is Locality.FLEET:
            return np.arange(len(self.rack_fit)), None
        if level is Locality.RACK:
            return np.array([group]), None
        order, bounds = layout.nodes_by_group[level]
        nodes = order[bounds[group] : bounds[group + 1]]
        racks = np.unique(self.cluster.fleet.nodes.rack[nodes])
        if level is Locality.SWITCH_DOMAIN and layout.domains_split_racks:
            only = np.zeros(len(self.nodes), dtype=bool)
            only[nodes] = True
            return racks, only
        return racks, None


class _Filling:
    """A gang on its way to nodes: what it has taken of limits so far."""

    def __init__(self, ground: Ground, picks: Picks, only: Bools | None) -> None:
        self._ground = ground
        self._picks = picks
        self._only = only
        #: what is left of the limits that were touched, W
        self._left_w: dict[int, float] = {}

    def packed(self, racks: Ints, gpus: int) -> Picks:
        """Take the fewest sites, of them the fewest zones, and of them the fewest racks."""
        self._pack(racks, gpus, _PARTS.get(self._picks.level, ()))
        return self._picks

    def _pack(self, racks: Ints, gpus: int, parts: tuple[Locality, ...]) -> int:
        """Take the largest parts, and for the rest the smallest that is enough. Return how many."""
        fit = self._ground.rack_fit[racks]
        racks, fit = racks[fit > 0], fit[fit > 0]
        members = np.arange(len(racks))
        if parts:
            group = self._ground.cluster.layout.rack_groups[parts[0]][racks]
            _, members = np.unique(group, return_inverse=True)
            fit = np.bincount(members, fit).astype(np.int64)
        order = np.argsort(fit, kind="stable")
        waiting, fits = order.tolist(), fit[order].tolist()
        rest = gpus
        while waiting and rest > 0:
            place = min(bisect_left(fits, rest), len(fits) - 1)
            # Of those that are equally large the last: it is next to what was taken before.
            place = bisect_right(fits, fits[place]) - 1
            want, part = min(rest, fits.pop(place)), waiting.pop(place)
            if parts:
                rest -= self._pack(racks[members == part], want, parts[1:])
            else:
                rest -= self._take(int(racks[part]), want)
        return gpus - rest

    def evenly(self, racks: Ints, gpus: int) -> Picks:
        """Take the same of each of the fewest racks that can give it, in whole steps."""
        step, fit = self._ground.step, self._ground.rack_fit[racks]
        order = np.argsort(-fit, kind="stable")
        fits = fit[order]
        parts = np.arange(1, len(fits) + 1)
        share = -(-gpus // (parts * step)) * step
        enough = parts[(fits >= share) & (share > 0)]
        for count in enough[:_TRIES].tolist():
            self._left_w.clear()
            self._picks.by_node.clear()
            for rack, want in zip(racks[order[:count]], _shares(gpus, count, step), strict=True):
                if self._take(int(rack), want) < want:
                    break
            if self._picks.gpus == gpus:
                return self._picks
        self._picks.by_node.clear()
        return self._picks

    def _take(self, rack: int, want: int) -> int:
        """Take up to ``want`` GPUs in a rack. Return how many."""
        terms = self._ground.cluster.layout.terms[rack]
        room_w, left_w = self._ground.cluster.room_w, self._left_w
        rooms_w = [left_w[row] if row in left_w else room_w.item(row) for row, _ in terms]
        budget_w = min(room / share for room, (_, share) in zip(rooms_w, terms, strict=True))
        if budget_w < self._ground.least_unit_w:
            return 0
        got, used_w = self._take_nodes(rack, want, budget_w)
        if got:
            for room, (row, share) in zip(rooms_w, terms, strict=True):
                left_w[row] = room - share * used_w
        return got

    def _take_nodes(self, rack: int, want: int, budget_w: float) -> tuple[int, float]:
        ground, step = self._ground, self._ground.step
        first, last = ground.cluster.fleet.node_bounds[rack : rack + 2].tolist()
        usable = ground.usable[first:last].tolist()
        nodes = [
            (gpus, first + place)
            for place, gpus in enumerate(usable)
            if gpus and (self._only is None or self._only[first + place])
        ]
        nodes.sort()
        most = _most_of_a_node(nodes, want) if ground.balanced and step == 1 else want
        got, used_w = 0, 0.0
        while nodes and got < want:
            ask = min(want - got, most)
            place = min(bisect_left(nodes, (ask, -1)), len(nodes) - 1)
            free, node = nodes.pop(place)
            unit_w, once_w = float(ground.unit_w[node]), float(ground.first_w[node])
            by_watts = max(budget_w - used_w - once_w, 0.0) / unit_w
            count = int(min(free, ask, by_watts)) // step * step
            if count > 0:
                self._picks.by_node[node] = count
                got += count
                used_w += count * unit_w + once_w
        return got, used_w


def _shares(gpus: int, parts: int, step: int) -> list[int]:
    """Return ``gpus`` in ``parts`` that differ by a step at most, the larger first."""
    each, more = divmod(gpus // step, parts)
    return [(each + (place < more)) * step for place in range(parts)]


def _most_of_a_node(nodes: list[tuple[int, int]], want: int) -> int:
    """Return how many GPUs each of the fewest nodes gives that share ``want`` evenly."""
    free = sorted((gpus for gpus, _ in nodes), reverse=True)
    for count, least in enumerate(free, 1):
        share = -(-want // count)
        if least >= share:
            return share
    return want
