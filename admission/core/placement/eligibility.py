"""Which nodes a request may use at all: by its names, by restrictions, and by its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from admission.core.placement.cluster import Cluster, FleetConstants
from admission.core.placement.elastic import Draw, draw_of
from admission.core.placement.flows import collective_flows, data_flows
from admission.core.placement.topology import Bools
from admission.core.request import Locality, Request
from fleet.slicing import CORE, model_name
from fleet.tables import COOLING_KINDS
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction
from policies.scopes import Scope, ScopeKind

__all__ = ["Eligibility", "ScopedRestrictions", "scoped_restrictions_of"]


@dataclass(frozen=True, eq=False)
class ScopedRestrictions:
    """Restrictions on classes, jobs and storage, by their scope."""

    by_scope: dict[Scope, tuple[ActiveRestriction, ...]]

    def on(self, request: Request, kind: RestrictionKind) -> list[ActiveRestriction]:
        """Return the restrictions of a kind that hold for a request, wherever it would run."""
        if not self.by_scope:
            return []
        scopes = [
            Scope(ScopeKind.CLASS, request.job_class),
            Scope(ScopeKind.JOB, request.job),
            Scope(ScopeKind.STORAGE, request.storage),
        ]
        found = [each for scope in scopes for each in self.by_scope.get(scope, ())]
        return [each for each in found if each.kind is kind]


def scoped_restrictions_of(constants: FleetConstants) -> ScopedRestrictions:
    """Return the restrictions that hold for some requests and not for others."""
    found = constants.memo.get("scoped_restrictions")
    if not isinstance(found, ScopedRestrictions):
        by_scope: dict[Scope, list[ActiveRestriction]] = {}
        for each in constants.in_force.restrictions:
            if each.scope.kind in (ScopeKind.CLASS, ScopeKind.JOB, ScopeKind.STORAGE):
                by_scope.setdefault(each.scope, []).append(each)
        found = ScopedRestrictions({scope: tuple(each) for scope, each in by_scope.items()})
        constants.memo["scoped_restrictions"] = found
    return found


@dataclass(frozen=True, eq=False)
class Eligibility:
    """The nodes that a request may use. Masks are over all nodes of the fleet.

    ``is_local``: a restriction on its class or on itself keeps it at one site. ``closing``: the
    places of bookings that it would run into.
    """

    cluster: Cluster
    request: Request
    is_local: bool
    closing: tuple[int, ...] = ()

    @staticmethod
    def of(cluster: Cluster, request: Request) -> Eligibility:
        """Return which nodes a request may use."""
        is_local = bool(
            scoped_restrictions_of(cluster.constants).on(request, RestrictionKind.LOCAL_ONLY)
        )
        if is_local and request.required is Locality.FLEET:
            request = replace(request, required=Locality.SITE)
        closing = cluster.bookings.closing(request, cluster.now)
        return Eligibility(cluster, request, is_local, closing)

    @cached_property
    def draws(self) -> tuple[Draw, ...]:
        """The draw on each GPU model that the request takes, in its order of preference.

        Models that the inventory lacks are left out.
        """
        request = self.request
        key = (
            request.models, request.slice, request.cores, request.gpu_peak_w,
            request.lowest_cap_w, request.max_slowdown,
        )  # fmt: skip
        memo = self.cluster.constants.memo
        found = memo.get(key)
        if not isinstance(found, tuple):
            found = memo[key] = _draws(self.cluster, request)
        return found

    @property
    def key(self) -> object:
        """The fields of the request that masks depend on, to remember them by."""
        request = self.request
        return (
            request.sites, request.nodes, request.executor, request.cooling, request.storage,
            request.data_site, request.cross_site_checkpoint, request.artifact_sites,
            self.is_local,
        )  # fmt: skip

    @cached_property
    def named(self) -> Bools:
        """Nodes of its scheduler that it names, at its sites, and at that of its storage."""
        return self._kept("named", self._named)

    @cached_property
    def cooled(self) -> Bools:
        """Nodes of ``named`` with the kind of cooling that the request wants."""
        return self._kept("cooled", self._cooled)

    @cached_property
    def launching(self) -> Bools:
        """Nodes of ``cooled`` that no restriction closes; some may wait for a review."""
        return self._kept("launching", self._launching)

    @cached_property
    def open(self) -> Bools:
        """Nodes of ``launching`` that wait for no review."""
        return self._kept(
            "open", lambda: self._same(self.launching & ~self.cluster.constants.review)
        )

    @cached_property
    def unbooked(self) -> Bools:
        """Nodes of ``open`` that nobody else has booked for the time that it may run."""
        if not self.closing:
            return self.open
        return self._kept(
            f"unbooked {self.closing}",
            lambda: self._same(self.open & ~self.cluster.bookings.taken(self.closing)),
        )

    @cached_property
    def reached(self) -> Bools:
        """Nodes of ``unbooked`` that the data of the request reaches now."""
        if not self.carries:
            return self.unbooked
        sites = self.cluster.fleet.sites.names.tolist()
        good = np.array([self._reaches(site) for site in sites], dtype=bool)
        return self._same(self.unbooked & good[self.cluster.topology.node_site])

    def congested(self, by_node: Mapping[int, int]) -> dict[int, float]:
        """Return the links that a gang of so many GPUs by node would overfill.

        By its data on its way there and by its collectives: by row, with what it would take of
        them, bit/s.
        """
        if not self.carries and not self.talks:
            return {}
        cluster, topology = self.cluster, self.cluster.topology
        nodes = np.fromiter(sorted(by_node), dtype=np.int64)
        rows = np.unique(topology.node_site[nodes]).tolist()
        sites = tuple(str(cluster.fleet.sites.names[row]) for row in rows)
        flows = data_flows(topology, sites, self.request)
        gpus = sum(by_node.values())
        for row, bits in collective_flows(topology, nodes, gpus, self.request).items():
            flows[row] = flows.get(row, 0.0) + bits
        rooms = cluster.link_room_bits_per_s
        return {row: bits for row, bits in flows.items() if rooms[row] < bits}

    @property
    def talks(self) -> bool:
        """Whether it is known what its GPUs tell each other in each step."""
        return bool(self.request.collective_bytes_per_step and self.request.step_s)

    def uncongested(
        self, nodes: Bools, widest: Locality, full: Iterable[int]
    ) -> Iterator[tuple[Bools, Locality]]:
        """Yield where else a gang may be looked for, once it was found to overfill links ``full``.

        Off the racks whose uplinks are full, if these are; then closer together, where it passes
        fewer of them.
        """
        links = self.cluster.fleet.links
        racks = {int(links.rack[row]) for row in full} - {-1}
        if racks:
            off = self._same(nodes & ~np.isin(self.cluster.fleet.nodes.rack, list(racks)))
            yield off, widest
        for closer in (Locality.SITE, Locality.SWITCH_DOMAIN, Locality.RACK):
            if closer < widest:
                yield nodes, closer

    @property
    def carries(self) -> bool:
        """Whether it moves data over the WAN where its data is elsewhere."""
        return bool(self.request.data_site) and self.request.cross_site_bits_per_s > 0.0

    @cached_property
    def here(self) -> Bools:
        """Nodes at the site of its data."""
        row = self.cluster.fleet.sites.index_by_name.get(self.request.data_site, -1)
        return np.asarray(self.cluster.topology.node_site == row)

    @cached_property
    def node_masks(self) -> list[tuple[Bools, Locality]]:
        """Return masks of nodes, and how far apart a gang may stand on each of them.

        Jobs at a site that is kept to itself use no other one.
        """
        local_only, reached = self.cluster.constants.local_only, self.reached
        if self.request.required is not Locality.FLEET or not local_only.any():
            return [(reached, self.request.required)]
        apart = local_only[self.cluster.topology.node_site]
        return [(reached, Locality.SITE), (self._same(reached & ~apart), Locality.FLEET)]

    def better(self, nodes: Bools) -> list[Bools]:
        """Return the preferred parts of ``nodes``, the best first."""
        away = self.cluster.constants.away
        if not self.carries and not self.cluster.constants.any_away:
            return []
        kept = nodes & ~away
        near = self.here if self.carries else np.ones(len(nodes), dtype=bool)
        found: list[Bools] = []
        for each in (kept & near, kept, nodes & near):
            count = int(each.sum())
            if 0 < count < int(nodes.sum()) and all(count != int(one.sum()) for one in found):
                found.append(self._same(each))
        return found

    def arms(self, nodes: Bools, by_node: Mapping[int, int]) -> list[Bools]:
        """Return the parts of ``nodes`` on arms of a rollout that soaks, on which it tells more.

        The best first; none where a gang of so many GPUs by node stands well, or on no arm.
        """
        if self.cluster.mix is None:
            return []
        arms = [nodes & each for each in self.cluster.mix.instead(self.request, by_node)]
        return [self._same(each) for each in arms if each.any()]

    def closest(self, draw: Draw, gpus: int) -> Locality:
        """Return the closest locality of which some group has so many GPUs at all."""
        most = self.cluster.topology.most_of_group(draw.kind)
        return next((level for level in Locality if most[level] >= gpus), Locality.FLEET)

    def _same(self, mask: Bools) -> Bools:
        return self.cluster.constants.same_mask(mask)

    def _kept(self, name: str, make: Callable[[], Bools]) -> Bools:
        memo, key = self.cluster.constants.memo, (name, self.key)
        found = memo.get(key)
        if not isinstance(found, np.ndarray):
            found = memo[key] = make()
        return found

    def _named(self) -> Bools:
        fleet, request = self.cluster.fleet, self.request
        sites = np.ones(len(fleet.sites), dtype=bool)
        for names in (request.sites, request.artifact_sites):
            if names:
                rows = [fleet.sites.index_by_name.get(name, -1) for name in names]
                sites &= np.isin(np.arange(len(sites)), rows)
        if request.storage in fleet.storage.index_by_path:
            row = fleet.storage.index_by_path[request.storage]
            sites &= np.arange(len(sites)) == fleet.storage.site[row]
        nodes = np.asarray(sites[self.cluster.topology.node_site])
        if request.nodes:
            nodes &= np.isin(fleet.nodes.names.astype(str), request.nodes)
        executors = self.cluster.constants.executors
        if executors is None:
            return nodes if not request.executor else np.zeros_like(nodes)
        return np.asarray(nodes & (executors == request.executor))

    def _cooled(self) -> Bools:
        fleet, wanted = self.cluster.fleet, self.request.cooling
        if not wanted:
            return self.named
        codes = [place for place, kind in enumerate(COOLING_KINDS) if kind in wanted]
        kind = np.append(fleet.zones.kind, -1)[fleet.racks.zone]
        return self.named & np.isin(kind, codes)[fleet.nodes.rack]

    def _launching(self) -> Bools:
        constants, request = self.cluster.constants, self.request
        if not constants.any_closed and not self.is_local:
            return self.cooled
        good = np.ones(len(self.cluster.fleet.sites), dtype=bool)
        if request.data_site:
            away = self.cluster.fleet.sites.names != request.data_site
            good &= ~(away & (constants.local_only | self.is_local))
        if request.cross_site_checkpoint:
            good &= ~constants.keeps_checkpoints
        return self.cooled & ~constants.closed & good[self.cluster.topology.node_site]

    def _reaches(self, site: str) -> bool:
        rooms = self.cluster.link_room_bits_per_s
        try:
            flows = data_flows(self.cluster.topology, (site,), self.request)
        except KeyError:
            return False
        closed = self.cluster.constants.link_closed
        return all(rooms[row] >= bits and not closed[row] for row, bits in flows.items())


def _draws(cluster: Cluster, request: Request) -> tuple[Draw, ...]:
    fleet, models = cluster.fleet, cluster.topology.gpu_models.tolist()
    names = [str(fleet.models.names[model]) for model in models]
    known = names if fleet.parts is None else fleet.parts.whole.models.names.tolist()
    wanted = list(request.models or known)
    if request.slice or request.cores:
        wanted = [model_name(name, request.slice or CORE) for name in wanted]
    wanted = [name for name in wanted if name in names]
    kinds = [names.index(name) for name in dict.fromkeys(wanted)]
    return tuple(draw_of(fleet, models[kind], kind, request) for kind in kinds)
