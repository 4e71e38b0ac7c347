"""The topology of the inventory: the limits above each rack, and groups of nodes by locality.

Everything here depends on the inventory alone, is made once for it, and is shared by all clusters.

A *limit* is something that watts are taken of: a rack's budget, a power domain, a power domain when
the other half of its pair has failed, a cooling zone, a site. Limits are rows of one array, in that
order, so that "how much more may this rack draw" is a minimum over a few of its rows.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from admission.core.reasons import ReasonToken
from admission.core.request import Locality
from fleet.groups import above
from fleet.tables import DOMAIN_KINDS, LINK_KINDS, FleetArrays, PartTable, Texts
from policies.scopes import Scope, ScopeKind

__all__ = ["LimitKind", "Topology", "topology_of"]

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Terms: TypeAlias = tuple[tuple[int, float], ...]

_UPLINK = LINK_KINDS.index("leaf-uplink")
_WAN = LINK_KINDS.index("wan")


@dataclass(frozen=True)
class LimitKind:
    """A kind of limit: the reason that it gives, its scope, and its rows."""

    token: ReasonToken
    scope: ScopeKind
    first: int
    count: int


@dataclass(frozen=True, eq=False)
class Part:
    """Racks that a gang is packed into, by ``parts`` of them: a fleet by sites, a site by zones.

    ``racks`` are in order of the parts; where there are none, the racks themselves are the parts.
    """

    racks: Ints
    parts: tuple[Part, ...] = ()

    @staticmethod
    def of(parts: tuple[Part, ...]) -> Part:
        """Return the part that consists of ``parts``, none of which is empty."""
        return Part(np.concatenate([np.zeros(0, np.int64), *(each.racks for each in parts)]), parts)

    @cached_property
    def _firsts(self) -> Ints:
        """The place of each part's first rack."""
        sizes = [len(each.racks) for each in self.parts]
        return np.cumsum([0, *sizes[:-1]])

    def sizes(self, by_rack: Ints) -> list[int]:
        """Return the sum over the racks of each part, of a value by rack of the fleet."""
        found = by_rack[self.racks]
        if self.parts:
            found = np.add.reduceat(found, self._firsts)
        sizes: list[int] = found.tolist()
        return sizes


@dataclass(frozen=True, eq=False)
class Topology:
    """The solver's view of the inventory ``fleet``: limits, groups, WAN paths."""

    fleet: FleetArrays
    #: the kinds of limits, by their rows
    kinds: tuple[LimitKind, ...]
    #: for each rack its limits and which share of its watts each of them carries
    terms: tuple[Terms, ...]
    #: the same as arrays of one width: (racks, limits); where there is none the row is ``limits``
    limit_rows: Ints
    limit_share: Floats
    #: name of the switch domain of each node, unique within its site
    switch_domain: Texts
    #: for each locality but NODE and FLEET the group of each node, counted from 0
    groups: dict[Locality, Ints]
    group_count: dict[Locality, int]

    @property
    def limits(self) -> int:
        """The number of limits."""
        return self.kinds[-1].first + self.kinds[-1].count

    def limit(self, row: int) -> tuple[LimitKind, int]:
        """Return the kind of a limit, and its row in the table of its scope."""
        kind = self.kinds[bisect_right(self._lasts, row)]
        return kind, row - kind.first

    @cached_property
    def _lasts(self) -> list[int]:
        """The row after the last of each kind of limit."""
        return [each.first + each.count for each in self.kinds]

    def shares_of(self, rack: int) -> tuple[Ints, Floats]:
        """Return the limits that carry some of the watts of a rack, in order, and their shares."""
        found = self._shares_of.get(rack)
        if found is None:
            terms = np.array(sorted(self.terms[rack]), dtype=np.float64).reshape(-1, 2)
            rows, shares = terms[terms[:, 1] > 0.0].T
            found = self._shares_of[rack] = rows.astype(np.int64), shares.copy()
        return found

    @cached_property
    def _shares_of(self) -> dict[int, tuple[Ints, Floats]]:
        return {}

    @cached_property
    def labels_of_node(self) -> dict[int, Any]:
        """The labels of placements on one node, as far as they were asked for."""
        return {}

    def named(self, row: int) -> tuple[Scope, str]:
        """Return where a limit lies, and what it is in words: "pdu s1/pdu-1 alone if … fails"."""
        found = self._named.get(row)
        if found is None:
            found = self._named[row] = self._name(row)
        return found

    @cached_property
    def _named(self) -> dict[int, tuple[Scope, str]]:
        return {}

    def _name(self, row: int) -> tuple[Scope, str]:
        fleet, (kind, place) = self.fleet, self.limit(row)
        paths: dict[ScopeKind, Texts] = {
            ScopeKind.RACK: fleet.racks.paths,
            ScopeKind.POWER_DOMAIN: fleet.domains.paths,
            ScopeKind.ZONE: fleet.zones.paths,
            ScopeKind.SITE: fleet.sites.names,
        }
        scope, word = Scope(kind.scope, str(paths[kind.scope][place])), str(kind.scope)
        if kind.scope is ScopeKind.POWER_DOMAIN:
            word = DOMAIN_KINDS[fleet.domains.kind[place]]
        elif kind.token is ReasonToken.COOLING_CAPACITY:
            word = "cooling zone"
        what = f"{word} {scope.name}"
        if kind.token is ReasonToken.FEED_REDUNDANCY:
            what += f" alone if {fleet.domains.paths[fleet.domains.pair[place]]} fails"
        return scope, what

    @cached_property
    def node_site(self) -> Ints:
        """The site of each node."""
        return self.fleet.racks.site[self.fleet.nodes.rack]

    def share_of(self, nodes: Ints, gpus: Ints, place: Ints) -> Floats:
        """Return which share of each of ``nodes`` some GPUs are: ``place`` is that of their node.

        Slices count by their share of a GPU, cores by that of their node.
        """
        parts = self.fleet.parts
        count = np.bincount(place, None if parts is None else parts.share[gpus], len(nodes))
        # Of nodes without GPUs the cores are shares of one.
        return np.asarray(count / np.maximum(self.fleet.node_gpus[nodes], 1))

    @cached_property
    def node_gpus(self) -> Ints:
        """How many rows of GPUs each node has."""
        return np.diff(self.fleet.gpu_bounds)

    @cached_property
    def node_whole_gpus(self) -> Ints:
        """How many GPUs each node has that are whole."""
        return self._counted(lambda parts: ~parts.is_split & ~parts.is_core)

    @cached_property
    def node_slices(self) -> Ints:
        """How many slices of GPUs each node has."""
        return self._counted(lambda parts: parts.is_split & ~parts.is_rest)

    @cached_property
    def node_cores(self) -> Ints:
        """How many cores each node has that can be held."""
        if self.fleet.parts is None:
            return np.zeros_like(self.node_gpus)
        return self._counted(lambda parts: parts.is_core)

    def _counted(self, which: Callable[[PartTable], Bools]) -> Ints:
        parts = self.fleet.parts
        if parts is None:
            return self.node_gpus
        return np.bincount(self.fleet.gpus.node[which(parts)], minlength=len(self.fleet.nodes))

    @cached_property
    def gpu_rows(self) -> Ints:
        """Rows of the GPUs of each node: (nodes, most of a node); past its last one -1."""
        first, count = self.fleet.gpu_bounds[:-1], self.node_gpus
        place = np.arange(count.max(initial=0))
        return np.where(place < count[:, None], first[:, None] + place, -1)

    @cached_property
    def gpu_models(self) -> Ints:
        """Rows of the hardware models that GPUs are of."""
        return np.unique(self.fleet.gpus.model)

    @cached_property
    def gpu_kind(self) -> Ints:
        """For each GPU the place of its model in ``gpu_models``."""
        return np.searchsorted(self.gpu_models, self.fleet.gpus.model).astype(np.int64)

    @cached_property
    def node_gpus_by_kind(self) -> Ints:
        """How many GPUs of each of ``gpu_models`` each node has: (models, nodes)."""
        return self.count_by_kind(np.arange(len(self.fleet.gpus)))

    @cached_property
    def commonest_kind(self) -> int:
        """The place in ``gpu_models`` of the model that most GPUs are of."""
        return int(self.node_gpus_by_kind.sum(axis=1).argmax())

    def count_by_kind(self, gpus: Ints) -> Ints:
        """Count GPUs, given by their rows, by model and node: (models, nodes)."""
        nodes, kinds = len(self.fleet.nodes), len(self.gpu_models)
        cell = self.gpu_kind[gpus] * nodes + self.fleet.gpus.node[gpus]
        return np.bincount(cell, minlength=kinds * nodes).reshape(kinds, nodes).astype(np.int64)

    @cached_property
    def racks_of_site(self) -> tuple[tuple[int, int], ...]:
        """First rack of each site, and the one after its last."""
        return tuple(itertools.pairwise(self.fleet.rack_bounds.tolist()))

    @cached_property
    def domains_split_racks(self) -> bool:
        """Whether some rack has nodes of several switch domains."""
        fleet, domain = self.fleet, self.groups[Locality.SWITCH_DOMAIN]
        return bool((self.rack_groups[Locality.SWITCH_DOMAIN][fleet.nodes.rack] != domain).any())

    @cached_property
    def rack_groups(self) -> dict[Locality, Ints]:
        """The group of each rack, by its last node; -1 for a rack without nodes."""
        found = {}
        for level, group in self.groups.items():
            found[level] = np.full(len(self.fleet.racks), -1, dtype=np.int64)
            found[level][self.fleet.nodes.rack] = group
        return found

    def most_of_group(self, kind: int) -> dict[Locality, int]:
        """Return how many GPUs of a model the largest group of each locality has."""
        if kind not in self._most_of_group:
            gpus = self.node_gpus_by_kind[kind]
            found = {Locality.NODE: int(gpus.max(initial=0))}
            for level, group in self.groups.items():
                found[level] = int(np.bincount(group, gpus).max(initial=0))
            self._most_of_group[kind] = {**found, Locality.FLEET: int(gpus.sum())}
        return self._most_of_group[kind]

    @cached_property
    def _most_of_group(self) -> dict[int, dict[Locality, int]]:
        return {}

    @cached_property
    def nodes_by_group(self) -> dict[Locality, tuple[Ints, Ints]]:
        """Nodes in order of their group, and the bounds of each group in that order."""
        found = {}
        for level, group in self.groups.items():
            order = np.argsort(group, kind="stable")
            bounds = np.searchsorted(group[order], np.arange(self.group_count[level] + 1))
            found[level] = (order.astype(np.int64), bounds.astype(np.int64))
        return found

    def nodes_of(self, level: Locality, group: int) -> Ints:
        """Return the nodes of a group, in order."""
        if level is Locality.NODE:
            return np.array([group])
        order, bounds = self.nodes_by_group[level]
        return order[bounds[group] : bounds[group + 1]]

    def part(self, level: Locality, group: int) -> Part:
        """Return a group as gangs are packed into it; racks without nodes are left out."""
        found = self._parts.get((level, group))
        if found is None:
            found = self._parts[level, group] = self._part(level, group)
        return found

    @cached_property
    def _parts(self) -> dict[tuple[Locality, int], Part]:
        return {}

    def _part(self, level: Locality, group: int) -> Part:
        if level is Locality.RACK:
            return Part(np.array([group]))
        if level is Locality.FLEET:
            sites = np.unique(self.groups[Locality.SITE]).tolist()
            return Part.of(tuple(self.part(Locality.SITE, site) for site in sites))
        racks = np.unique(self.fleet.nodes.rack[self.nodes_of(level, group)])
        if level is not Locality.SITE:
            return Part(racks)
        zone = self.rack_groups[Locality.ZONE][racks]
        return Part.of(tuple(Part(racks[zone == each]) for each in np.unique(zone)))

    @cached_property
    def wan_paths(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """The WAN links between each two sites that can reach each other: the fewest.

        Every link carries both ways, whichever end reports it.
        """
        return wan_paths(self.fleet)


@lru_cache(maxsize=4)
def topology_of(fleet: FleetArrays) -> Topology:
    """Return the topology of an inventory, made when it is first asked for."""
    kinds = _kinds(fleet)
    terms = _terms(fleet, {each.token: each.first for each in kinds})
    limits = kinds[-1].first + kinds[-1].count
    width = max((len(each) for each in terms), default=1)
    rows = np.full((len(terms), width), limits, dtype=np.int64)
    share = np.ones((len(terms), width))
    for rack, each in enumerate(terms):
        rows[rack, : len(each)] = [row for row, _ in each]
        share[rack, : len(each)] = [part for _, part in each]
    domains = _switch_domains(fleet)
    groups = _groups(fleet, domains)
    return Topology(
        fleet=fleet,
        kinds=kinds,
        terms=terms,
        limit_rows=rows,
        limit_share=share,
        switch_domain=domains,
        groups=groups,
        group_count={level: int(of.max(initial=-1)) + 1 for level, of in groups.items()},
    )


# --- Limits ---------------------------------------------------------------------------------------


def _kinds(fleet: FleetArrays) -> tuple[LimitKind, ...]:
    domains = len(fleet.domains)
    found: list[LimitKind] = []
    for token, scope, count in (
        (ReasonToken.RACK_POWER, ScopeKind.RACK, len(fleet.racks)),
        (ReasonToken.FEED_POWER, ScopeKind.POWER_DOMAIN, domains),
        (ReasonToken.FEED_REDUNDANCY, ScopeKind.POWER_DOMAIN, domains),
        (ReasonToken.COOLING_CAPACITY, ScopeKind.ZONE, len(fleet.zones)),
        (ReasonToken.SITE_POWER, ScopeKind.SITE, len(fleet.sites)),
    ):
        first = found[-1].first + found[-1].count if found else 0
        found.append(LimitKind(token, scope, first, count))
    return tuple(found)


def _terms(fleet: FleetArrays, first: dict[ReasonToken, int]) -> tuple[Terms, ...]:
    """Return for each rack its limits, and the share of its watts that each of them carries."""
    feeds = (fleet.racks.feed_a, fleet.racks.feed_b)
    up_a, up_b = (above(fleet, feed).T.tolist() for feed in feeds)
    pair, zone, site = (
        each.tolist() for each in (fleet.domains.pair, fleet.racks.zone, fleet.racks.site)
    )
    found = []
    for rack, (a, b) in enumerate(zip(up_a, up_b, strict=True)):
        terms = {first[ReasonToken.RACK_POWER] + rack: 1.0}
        for domain, share in _carried(a, b).items():
            terms[first[ReasonToken.FEED_POWER] + domain] = share
            if pair[domain] >= 0:
                alone = share + _moved(domain, pair[domain], a, b)
                terms[first[ReasonToken.FEED_REDUNDANCY] + domain] = alone
        if zone[rack] >= 0:
            terms[first[ReasonToken.COOLING_CAPACITY] + zone[rack]] = 1.0
        terms[first[ReasonToken.SITE_POWER] + site[rack]] = 1.0
        found.append(tuple(terms.items()))
    return tuple(found)


def _carried(a: list[int], b: list[int]) -> dict[int, float]:
    """Return which share of a rack's watts the domains above its two feeds carry."""
    each = 0.5 if a[0] >= 0 and b[0] >= 0 else 1.0
    found: dict[int, float] = {}
    for domain in (*a, *b):
        if domain >= 0:
            found[domain] = found.get(domain, 0.0) + each
    return found


def _moved(domain: int, mate: int, a: list[int], b: list[int]) -> float:
    """Return which share of a rack's watts moves to ``domain`` when ``mate`` fails.

    A rack on two feeds draws all of its load from the one that is left.
    """
    if a[0] < 0 or b[0] < 0:
        return 0.0
    return 0.5 * ((domain in a and mate in b) + (domain in b and mate in a))


# --- Groups ---------------------------------------------------------------------------------------


def _switch_domains(fleet: FleetArrays) -> Texts:
    """Return the switch domain of each node: as stated, else the rack's own leaf, else its row.

    A rack that has an uplink of its own has a leaf switch of its own.
    """
    racks, links = fleet.racks, fleet.links
    has_leaf = np.zeros(len(racks), dtype=bool)
    has_leaf[links.rack[(links.kind == _UPLINK) & (links.rack >= 0)]] = True
    of_rack = [
        f"rack {name}" if leaf or not row else f"row {row}"
        for name, row, leaf in zip(racks.names, racks.row, has_leaf.tolist(), strict=True)
    ]
    stated = fleet.nodes.switch_domain.tolist()
    names = [
        name or of_rack[rack] for name, rack in zip(stated, fleet.nodes.rack.tolist(), strict=True)
    ]
    return np.array(names, dtype=np.object_)


def _groups(fleet: FleetArrays, domains: Texts) -> dict[Locality, Ints]:
    rack = fleet.nodes.rack
    site = fleet.racks.site[rack]
    # Nobody knows whether racks without a zone share one: each is taken for one of its own.
    zone = np.where(
        fleet.racks.zone >= 0, fleet.racks.zone, len(fleet.zones) + np.arange(len(fleet.racks))
    )[rack]
    keys = list(zip(site.tolist(), domains.tolist(), strict=True))
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    domain = np.array([number[key] for key in keys], dtype=np.int64)
    _, zone = np.unique(zone, return_inverse=True)
    return {
        Locality.RACK: rack,
        Locality.SWITCH_DOMAIN: domain,
        Locality.ZONE: zone.astype(np.int64),
        Locality.SITE: site,
    }


# --- WAN ------------------------------------------------------------------------------------------


def wan_paths(fleet: FleetArrays, *, but: int = -1) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the WAN links between each two sites that can reach each other: the fewest.

    Sites and links are rows, and the link at row ``but`` is left out.
    """
    links = fleet.links
    rows = np.flatnonzero((links.kind == _WAN) & (links.peer_site >= 0))
    rows = rows[rows != but]
    ends: dict[int, list[tuple[int, int]]] = {}
    for row in rows.tolist():
        here, there = int(links.site[row]), int(links.peer_site[row])
        ends.setdefault(here, []).append((there, row))
        ends.setdefault(there, []).append((here, row))
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for start in ends:
        reached: dict[int, tuple[int, ...]] = {start: ()}
        ahead = deque([start])
        while ahead:
            here = ahead.popleft()
            for there, row in ends[here]:
                if there not in reached:
                    reached[there] = (*reached[here], row)
                    ahead.append(there)
        found.update({(start, there): path for there, path in reached.items()})
    return found
