"""Find free GPUs of one model for a gang at one draw.

A search asks at one locality after another, the closest first. At each of them the group that has
least to spare beyond what is wanted is tried first: what is left over stays in large pieces.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from admission.core.placement.cluster import Cluster
from admission.core.placement.topology import Bools, Floats, Ints, Part, Topology
from admission.core.request import Locality, Request

__all__ = ["CandidatePool", "FreeGpus", "Selection"]

_LEVELS = tuple(Locality)
#: Groups of a kind that are tried for one gang.
_TRIES = 24
#: What rounding up to what sums are exact in may add to a node, W.
_ROUNDING_W = 1.0 / 512.0
_NO_NODES = np.zeros(0, dtype=np.int64)


@dataclass
class Selection:
    """The number of GPUs that a gang takes on each node. Nothing is allocated yet."""

    level: Locality
    by_node: dict[int, int] = field(default_factory=dict)
    #: what :meth:`CandidatePool.drawn` found of it
    drawn: tuple[Ints, Ints, Floats] | None = field(default=None, repr=False, compare=False)

    @property
    def gpus(self) -> int:
        return sum(self.by_node.values())


@dataclass(frozen=True, eq=False)
class FreeGpus:
    """The number of free GPUs of one model on each node, before limits in watts are asked.

    Draws that leave the same GPUs share one, and so all that is counted of it.
    """

    topology: Topology
    usable: Ints
    #: those of all nodes and the mask, where these are those of a part of the nodes
    part_of: tuple[FreeGpus, Bools] | None = None
    #: where gangs would stand if no limit were short, by what they want
    regardless: dict[object, Selection | None] = field(default_factory=dict)
    #: the pools of one group each in which that was looked for
    endless: dict[object, CandidatePool] = field(default_factory=dict)
    _by_group: dict[Locality, Ints] = field(default_factory=dict)
    _best: dict[Locality, tuple[int, int]] = field(default_factory=dict)
    _of_rack: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> Ints:
        """The nodes that have some, in order."""
        if self.part_of is None:
            return np.flatnonzero(self.usable)
        all_nodes, mask = self.part_of
        return all_nodes.nodes[mask[all_nodes.nodes]]

    @cached_property
    def racks(self) -> tuple[Ints, Ints]:
        """The racks of ``nodes``, and the place of the first node of each."""
        # Nodes are in the order of their racks.
        rack = self.topology.fleet.nodes.rack[self.nodes]
        firsts = np.flatnonzero(np.append(True, rack[1:] != rack[:-1])[: len(rack)])
        return rack[firsts], firsts

    def by_group(self, level: Locality) -> Ints:
        """Return how many each group of a locality has."""
        if level is Locality.NODE:
            return self.usable
        found = self._by_group.get(level)
        if found is None:
            found = self._by_group[level] = self._counted(level)
        return found

    def _counted(self, level: Locality) -> Ints:
        count = self.usable[self.nodes]
        if level is Locality.FLEET:
            return np.array([count.sum()])
        group = self.topology.groups[level][self.nodes]
        groups = self.topology.group_count[level]
        if level is Locality.RACK:
            groups = len(self.topology.fleet.racks)
        return np.bincount(group, count, groups).astype(np.int64)

    def best(self, level: Locality) -> tuple[int, int]:
        """Return how many GPUs the group with the most of them has, and which one that is."""
        found = self._best.get(level)
        if found is None:
            total = self.by_group(level)
            group = int(total.argmax()) if len(total) else 0
            found = self._best[level] = int(total[group]) if len(total) else 0, group
        return found

    def within(self, level: Locality, group: int) -> FreeGpus:
        """Return the free GPUs of one group."""
        if level is Locality.FLEET:
            return self
        nodes = self.topology.nodes_of(level, group)
        usable = np.zeros_like(self.usable)
        usable[nodes] = self.usable[nodes]
        return FreeGpus(self.topology, usable)

    def among(self, mask: Bools) -> FreeGpus:
        """Return the free GPUs of the nodes in a mask."""
        return FreeGpus(self.topology, self.usable * mask, (self, mask))

    def of_rack(self, rack: int) -> list[tuple[int, int]]:
        """Return the nodes of a rack that have some, those with the fewest first: (GPUs, node)."""
        found = self._of_rack.get(rack)
        if found is None:
            first, last = self.topology.fleet.node_bounds[rack : rack + 2].tolist()
            usable = enumerate(self.usable[first:last].tolist(), first)
            found = self._of_rack[rack] = sorted((gpus, node) for node, gpus in usable if gpus)
        return found


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """GPUs of one model, of those nodes that a request may use, at ``gpu_w`` each.

    ``kind`` is a place in ``topology.gpu_models``. With ``gpus_per_node`` a node gives so many GPUs
    or none. ``free_gpus``: GPUs that are free and keep the margin and all caps at this draw.
    """

    cluster: Cluster
    free_gpus: FreeGpus
    kind: int
    gpu_w: float
    margin_c: float
    gpus_per_node: int | None
    balanced: bool
    #: under which the cluster remembers what has no place on it; None: it is not to
    key: object = None
    #: the pool of all nodes, where this one has those of whole racks, and which racks these are
    whole: tuple[CandidatePool, Bools] | None = None
    #: no limit in watts is short
    is_endless: bool = False
    _group_fit: dict[Locality, Ints] = field(default_factory=dict)
    _bounds: dict[Locality, Ints] = field(default_factory=dict)
    #: whether some group may have so many, by how many and how close together
    _may_have: dict[tuple[int, Locality], bool] = field(default_factory=dict)

    @staticmethod
    def of(
        cluster: Cluster, request: Request, kind: int, gpu_w: float, nodes: Bools
    ) -> CandidatePool:
        """Return the pool of ``request`` at a draw, remembered until the cluster changes.

        ``nodes`` is a mask that the cluster's constants keep: it is known by its identity.
        """
        margin_c, step = request.thermal_margin_c, request.gpus_per_node
        key = (id(nodes), kind, gpu_w, margin_c, step, request.balanced)

        def make() -> CandidatePool:
            everywhere, racks = cluster.constants.everywhere, cluster.constants.whole_racks(nodes)
            whole = None
            if racks is not None and nodes is not everywhere:
                whole = CandidatePool.of(cluster, request, kind, gpu_w, everywhere), racks
                free = whole[0].free_gpus
                free_gpus = cluster.kept((id(nodes), id(free)), lambda: free.among(nodes))
            else:
                free_gpus = _free_gpus(cluster, nodes, kind, gpu_w, margin_c, step)
            return CandidatePool(
                cluster, free_gpus, kind, gpu_w, margin_c, step, request.balanced, key, whole
            )

        return cluster.kept(key, make)

    @property
    def step(self) -> int:
        """GPUs are taken in steps of so many."""
        return self.gpus_per_node or 1

    # --- What there is ----------------------------------------------------------------------------

    def good_gpus(self, nodes: Ints) -> Bools:
        """Say which GPUs of each of ``nodes`` are usable, as ``topology.gpu_rows`` has them."""
        return _good_gpus(self.cluster, nodes, self.kind, self.gpu_w, self.margin_c)

    def unit_w_of(self, node: int) -> float:
        """Return the most that one more GPU adds on a node, W."""
        constants = self.cluster.constants
        more_w = max(self.gpu_w - constants.node_base_w.item(node), 0.0)
        return constants.factor.item(node) * more_w + _ROUNDING_W

    @cached_property
    def unit_w(self) -> Floats:
        """The most that one more GPU adds on each of ``free_gpus.nodes``, W."""
        constants, nodes = self.cluster.constants, self.free_gpus.nodes
        more_w = np.maximum(self.gpu_w - constants.node_base_w[nodes], 0.0)
        return constants.factor[nodes] * more_w + _ROUNDING_W

    @cached_property
    def first_w(self) -> Floats:
        """The extra draw that the first GPU on each of ``free_gpus.nodes`` adds, W."""
        return self.cluster.first_w(self.free_gpus.nodes)

    @cached_property
    def least_unit_w(self) -> float:
        """The draw of one more GPU on the node where it adds least, W."""
        return float(self.unit_w.min(initial=np.inf))

    @cached_property
    def rack_fit(self) -> Ints:
        """GPUs that each rack by itself can take, by its free ones and by all of its limits."""
        if self.whole is not None:
            pool, inside = self.whole
            return pool.rack_fit * inside
        if self.is_endless:
            return self.free_gpus.by_group(Locality.RACK) // self.step * self.step
        constants, (racks, _) = self.cluster.constants, self.free_gpus.racks
        more_w = np.maximum(self.gpu_w - constants.rack_base_w[racks], 0.0)
        unit_w = constants.rack_factor[racks] * more_w + _ROUNDING_W
        by_watts = np.floor(np.maximum(self.cluster.admit_w[racks], 0.0) / unit_w)
        count = self.free_gpus.by_group(Locality.RACK)
        fit = np.minimum(count[racks], by_watts).astype(np.int64)
        found = np.zeros_like(count)
        found[racks] = fit if self.step == 1 else fit // self.step * self.step
        return found

    @cached_property
    def rack_most(self) -> Ints:
        """GPUs that each rack can take at the most, with the extra draw of the first one on a node.

        At least as many as a gang is given there, so that nobody has to try for more.
        """
        if self.whole is not None:
            pool, inside = self.whole
            return pool.rack_most * inside
        if self.is_endless:
            return self.rack_fit
        racks, firsts = self.free_gpus.racks
        found = np.zeros_like(self.rack_fit)
        if len(racks):
            first_w = np.minimum.reduceat(self.first_w, firsts)
            unit_w = np.minimum.reduceat(self.unit_w, firsts)
            room_w = np.maximum(self.cluster.admit_w[racks] + _ROUNDING_W - first_w, 0.0)
            found[racks] = np.minimum(self.rack_fit[racks], np.floor(room_w / unit_w))
        return found

    def rows(self, selection: Selection) -> tuple[Ints, Ints, Ints]:
        """Return the selected nodes in order, how many GPUs of each are taken, and which ones."""
        nodes, count = np.array(sorted(selection.by_node.items()), dtype=np.int64).T
        good = self.good_gpus(nodes)
        taken = good & (good.cumsum(axis=1) <= count[:, None])
        return nodes, count, self.cluster.topology.gpu_rows[nodes][taken]

    def drawn(self, selection: Selection) -> tuple[Ints, Ints, Floats]:
        """Return the selected nodes in order, how many GPUs of each, and what those draw now, W.

        Found once for all pools that share a selection: they have the same GPUs.
        """
        found = selection.drawn
        if found is None:
            nodes, count, gpus = self.rows(selection)
            place = np.searchsorted(nodes, self.cluster.fleet.gpus.node[gpus])
            base_w = np.bincount(place, self.cluster.constants.base_w[gpus], len(nodes))
            found = selection.drawn = nodes, count, np.asarray(base_w, dtype=np.float64)
        return found

    def spare(self, selection: Selection) -> tuple[int, int]:
        """Return how many more GPUs the nodes of a selection could give, and its racks."""
        nodes = list(selection.by_node)
        on_nodes = int(self.free_gpus.usable[nodes].sum())
        in_racks = int(self.rack_fit[self._racks_of(selection)].sum())
        return on_nodes - selection.gpus, in_racks - selection.gpus

    def has_watts_for_all(self, selection: Selection) -> bool:
        """Say whether no rack of a selection is short of watts for the GPUs that are free in it."""
        racks = self._racks_of(selection)
        free = self.free_gpus.by_group(Locality.RACK)[racks] // self.step * self.step
        return bool((self.rack_fit[racks] == free).all())

    def _racks_of(self, selection: Selection) -> Ints:
        nodes = list(selection.by_node)
        return np.unique(self.cluster.fleet.nodes.rack[nodes])

    # --- Where it fits ----------------------------------------------------------------------------

    def find(self, gpus: int, closest: Locality, widest: Locality) -> Selection | None:
        """Return nodes for exactly ``gpus`` GPUs, as close together as they fit.

        Where so many had no place, more have none either, until something is freed.
        """
        hopeless, key = self.cluster.hopeless, (self.key, widest)
        if gpus >= hopeless.get(key, gpus + 1):
            return None
        # Most gangs stand on one node, and to look for one takes least.
        if closest is Locality.NODE and self._may_be_within(gpus, _LEVELS[:1]):
            found = self._on_one_node(gpus)
            if found is not None:
                return found
        wider = _LEVELS[max(closest, Locality.RACK) : widest + 1]
        if self._may_be_within(gpus, wider) and int(self.rack_most.sum()) >= gpus:
            for level in wider:
                found = self._at(level, gpus)
                if found is not None:
                    return found
        # Of a balanced gang a larger one may fit better.
        if self.key is not None and not self.balanced:
            hopeless[key] = gpus
        return None

    def _may_be_within(self, gpus: int, levels: Iterable[Locality]) -> bool:
        """Say whether all nodes together may have so many: where they do not, no part of them does.

        So few arrays are made.
        """
        return self.whole is None or any(self.whole[0].may_have(gpus, each) for each in levels)

    def may_have(self, gpus: int, level: Locality) -> bool:
        """Say whether some group of a locality has the free GPUs and the watts, by its bounds."""
        found = self._may_have.get((gpus, level))
        if found is None:
            if level is Locality.NODE:
                found = bool(len(self._nodes_with(gpus)))
            else:
                found = gpus <= int(self._bound(level).max(initial=0))
            self._may_have[gpus, level] = found
        return found

    def most(self, gpus: int, widest: Locality) -> int:
        """Return how many of ``gpus`` GPUs fit within one group of ``widest``: a whole step."""
        if widest is Locality.NODE:
            nodes = self.free_gpus.nodes
            room_w = self._node_room_w - self.first_w
            by_watts = np.floor(np.maximum(room_w, 0.0) / self.unit_w)
            fit = np.minimum(self.free_gpus.usable[nodes], by_watts).astype(np.int64)
            return min(int(_whole(fit, self.gpus_per_node).max(initial=0)), gpus)
        best = 0
        for group, total in self._groups(widest, 1):
            if best >= min(total, gpus):
                break
            best = max(best, self._fill(widest, group, gpus).gpus)
        return best

    def without_limits(self, gpus: int, closest: Locality, widest: Locality, group: int) -> (
        Selection | None
    ):  # fmt: skip
        """Return nodes for ``gpus`` GPUs in one group of ``widest`` if no limit were short.

        Watts have no part in it, so that it is found once for all draws with the same free GPUs.
        """
        if self.whole is not None and self._is_whole_in(self.whole[0], widest, group):
            return self.whole[0].without_limits(gpus, closest, widest, group)
        known, key = self.free_gpus.regardless, (gpus, closest, widest, group, self.balanced)
        if key not in known:
            known[key] = self._endless(widest, group).find(gpus, closest, widest)
        return known[key]

    def _is_whole_in(self, everywhere: CandidatePool, level: Locality, group: int) -> bool:
        """Say whether it has all of a group that the pool of all nodes has."""
        own, whole = self.free_gpus.by_group(level), everywhere.free_gpus.by_group(level)
        return bool(own[group] == whole[group])

    def _endless(self, level: Locality, group: int) -> CandidatePool:
        """Return the pool of one group with unlimited room."""
        pools, key = self.free_gpus.endless, (level, group, self.balanced)
        if key not in pools:
            pools[key] = replace(
                self,
                cluster=self.cluster.endless(),
                free_gpus=self.free_gpus.within(level, group),
                key=None,
                is_endless=True,
                whole=None,
                _group_fit={},
                _bounds={},
                _may_have={},
            )
        return pools[key]

    @property
    def _node_room_w(self) -> Floats:
        """The power that the racks of ``free_gpus.nodes`` may draw more, W."""
        return self.cluster.admit_w[self.cluster.fleet.nodes.rack[self.free_gpus.nodes]]

    def _at(self, level: Locality, gpus: int) -> Selection | None:
        most = self._bound(level)
        if gpus > most.max(initial=0):
            return None
        enough = [group for group, _ in self._groups(level, gpus)]
        if level is Locality.RACK and self.cluster.constants.roomiest_first:
            enough.sort(key=self.cluster.admit_w.__getitem__)
        for group in reversed(enough):
            if most[group] < gpus:
                continue
            found = self._fill(level, group, gpus)
            if found.gpus == gpus:
                return found
        return None

    def _nodes_with(self, gpus: int) -> Ints:
        """Return the nodes that have so many GPUs, and whose racks have the watts for them."""
        if gpus > self.free_gpus.best(Locality.NODE)[0]:
            return _NO_NODES
        nodes = self.free_gpus.nodes
        need_w = gpus * self.unit_w + self.first_w
        fits = (self.free_gpus.usable[nodes] >= gpus) & (need_w <= self._node_room_w)
        return nodes[fits]

    def _on_one_node(self, gpus: int) -> Selection | None:
        if self.gpus_per_node is not None and gpus != self.gpus_per_node:
            return None
        nodes = self._nodes_with(gpus)
        if not len(nodes):
            return None
        usable = self.free_gpus.usable[nodes]
        nodes = nodes[usable == usable.min()]
        best = nodes[self._spare(self.cluster.fleet.nodes.rack[nodes]).argmin()]
        return Selection(Locality.NODE, {int(best): gpus})

    def _spare(self, rack: Ints) -> Floats:
        """Return by what racks are chosen from among equals: the lowest is taken."""
        if self.cluster.constants.roomiest_first:
            return -self.cluster.admit_w[rack]
        return np.asarray(self.rack_fit[rack], dtype=np.float64)

    def _groups(self, level: Locality, gpus: int) -> Iterator[tuple[int, int]]:
        """Yield groups that may take ``gpus``, and how many they may take, the most first.

        Of many those with the least to spare are left, and the one with the most.
        """
        total = self.group_fit(level)
        groups = np.flatnonzero(total >= gpus)
        if not len(groups):
            return
        groups = groups[np.argsort(-total[groups], kind="stable")]
        if len(groups) > _TRIES:
            groups = np.append(groups[:1], groups[1 - _TRIES :])
        yield from zip(groups.tolist(), total[groups].tolist(), strict=True)

    def group_fit(self, level: Locality) -> Ints:
        """Return at most how many GPUs each group of a locality can take."""
        found = self._group_fit.get(level)
        if found is None:
            found = self._group_fit[level] = self._fit_of_groups(level)
        return found

    def _bound(self, level: Locality) -> Ints:
        """Return how many GPUs each group can take at the most."""
        if self.is_endless:
            return self.group_fit(level)
        found = self._bounds.get(level)
        if found is None:
            found = self._bounds[level] = self._by_group(self.rack_most, level)
        return found

    def _fit_of_groups(self, level: Locality) -> Ints:
        return self._by_group(self.rack_fit, level)

    def _by_group(self, by_rack: Ints, level: Locality) -> Ints:
        topology = self.cluster.topology
        if level is Locality.FLEET:
            return np.array([by_rack.sum()])
        if level is Locality.RACK:
            return by_rack
        if level is Locality.SWITCH_DOMAIN and topology.domains_split_racks:
            return self.free_gpus.by_group(level)
        count = topology.group_count[level]
        # Racks without nodes, which are in no group, come before the first one.
        by_group = np.bincount(topology.rack_groups[level] + 1, by_rack, count + 1)
        return by_group[1:].astype(np.int64)

    def _fill(self, level: Locality, group: int, gpus: int) -> Selection:
        topology = self.cluster.topology
        only = None
        if level is Locality.SWITCH_DOMAIN and topology.domains_split_racks:
            only = frozenset(topology.nodes_of(level, group).tolist())
        filling = _Filling(self, Selection(level), only)
        part = topology.part(level, group)
        return filling.evenly(part, gpus) if self.balanced else filling.packed(part, gpus)


def _whole(gpus: Ints, step: int | None) -> Ints:
    """Return how many of the GPUs of each node may be taken: a fixed number, or all."""
    return gpus if step is None else np.where(gpus >= step, step, 0)


def _free_gpus(
    cluster: Cluster, nodes: Bools, kind: int, gpu_w: float, margin_c: float, step: int | None
) -> FreeGpus:
    """Return the free GPUs of a model that keep the margin and all caps at a draw."""
    heat = cluster.constants.heat(margin_c)
    cold = cluster.kept(
        ("free_gpus", id(nodes), kind, step),
        lambda: FreeGpus(cluster.topology, _whole(cluster.node_free[kind] * nodes, step)),
    )
    if (heat.node_least_w[cold.nodes] >= gpu_w).all():
        return cold
    free = cluster.node_free[kind] * nodes * (heat.node_most_w >= gpu_w)
    mixed = np.flatnonzero((free > 0) & (heat.node_least_w < gpu_w))
    if len(mixed):
        free[mixed] = _good_gpus(cluster, mixed, kind, gpu_w, margin_c).sum(axis=1)
    return FreeGpus(cluster.topology, _whole(free, step))


def _good_gpus(cluster: Cluster, nodes: Ints, kind: int, gpu_w: float, margin_c: float) -> Bools:
    topology = cluster.topology
    rows = topology.gpu_rows[nodes]
    found: Bools = (
        (rows >= 0)
        & cluster.gpu_free[rows]
        & (topology.gpu_kind[rows] == kind)
        & (cluster.constants.heat(margin_c).gpu_w[rows] >= gpu_w)
    )
    return found


class _Filling:
    """Fills nodes of one group with a gang, and counts how much of the limits it has used."""

    def __init__(
        self, pool: CandidatePool, selection: Selection, only: frozenset[int] | None
    ) -> None:
        self._pool = pool
        self._selection = selection
        self._only = only
        #: what is left of the limits that were touched, W
        self._left_w: dict[int, float] = {}

    def packed(self, part: Part, gpus: int) -> Selection:
        """Take the fewest sites, of them the fewest zones, and of them the fewest racks."""
        self._pack(part, gpus)
        return self._selection

    def _pack(self, part: Part, gpus: int) -> int:
        """Take the largest parts, and for the rest the smallest that is enough. Return how many."""
        sizes = part.sizes(self._pool.rack_fit)
        waiting = [place for place, fit in enumerate(sizes) if fit > 0]
        waiting.sort(key=sizes.__getitem__)
        fits = [sizes[place] for place in waiting]
        rest = gpus
        while waiting and rest > 0:
            place = min(bisect_left(fits, rest), len(fits) - 1)
            # Of those that are equally large the last: it is next to what was taken before.
            place = bisect_right(fits, fits[place]) - 1
            want, inner = min(rest, fits.pop(place)), waiting.pop(place)
            if part.parts:
                rest -= self._pack(part.parts[inner], want)
            else:
                rest -= self._take(part.racks.item(inner), want)
        return gpus - rest

    def evenly(self, part: Part, gpus: int) -> Selection:
        """Take equal parts of the fewest racks that can give them, in whole steps."""
        racks = np.sort(part.racks)
        step, fit = self._pool.step, self._pool.rack_fit[racks]
        order = np.argsort(-fit, kind="stable")
        fits = fit[order]
        parts = np.arange(1, len(fits) + 1)
        share = -(-gpus // (parts * step)) * step
        enough = parts[(fits >= share) & (share > 0)]
        for count in enough[:_TRIES].tolist():
            self._left_w.clear()
            self._selection.by_node.clear()
            for rack, want in zip(racks[order[:count]], _shares(gpus, count, step), strict=True):
                if self._take(int(rack), want) < want:
                    break
            if self._selection.gpus == gpus:
                return self._selection
        self._selection.by_node.clear()
        return self._selection

    def _take(self, rack: int, want: int) -> int:
        """Take up to ``want`` GPUs in a rack. Return how many."""
        terms = self._pool.cluster.topology.terms[rack]
        room_w, left_w = self._pool.cluster.room_w, self._left_w
        rooms_w = [left_w[row] if row in left_w else room_w.item(row) for row, _ in terms]
        budget_w = min(room / share for room, (_, share) in zip(rooms_w, terms, strict=True))
        if budget_w < self._pool.least_unit_w:
            return 0
        got, used_w = self._take_nodes(rack, want, budget_w)
        if got:
            for room, (row, share) in zip(rooms_w, terms, strict=True):
                left_w[row] = room - share * used_w
        return got

    def _take_nodes(self, rack: int, want: int, budget_w: float) -> tuple[int, float]:
        pool, step = self._pool, self._pool.step
        nodes = list(pool.free_gpus.of_rack(rack))
        if self._only is not None:
            nodes = [each for each in nodes if each[1] in self._only]
        most = _most_of_a_node(nodes, want) if pool.balanced and step == 1 else want
        got, used_w = 0, 0.0
        while nodes and got < want:
            ask = min(want - got, most)
            place = min(bisect_left(nodes, (ask, -1)), len(nodes) - 1)
            free, node = nodes.pop(place)
            unit_w, once_w = pool.unit_w_of(node), pool.cluster.first_w_of(node)
            by_watts = max(budget_w - used_w - once_w, 0.0) / unit_w
            count = int(min(free, ask, by_watts)) // step * step
            if count > 0:
                self._selection.by_node[node] = count
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
