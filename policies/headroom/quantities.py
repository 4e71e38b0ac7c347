"""The quantities that headroom is made of: load, heat, links and storage of all scopes.

What is left of each, and what binds, :mod:`policies.headroom.tables` makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from fleet.groups import ratio, sum_by
from fleet.tables import FleetArrays
from policies.headroom import network, power, replicas, storage, thermal
from policies.headroom.columns import Bools, Floats
from policies.headroom.inputs import Limits, Past, Reservations
from policies.headroom.power import Failover, Power
from policies.headroom.thermal import GpuTemperatures, Heat, Inlets, Parts
from policies.scopes import ScopeKind
from telemetry.live_frame import Frame, Readings
from telemetry.summary import FleetSummary, carried_w


@dataclass(frozen=True, eq=False)
class Quantities:
    """Load, heat, links and storage of a whole fleet at one moment, or at many.

    Arrays are (scopes,), or (times, scopes) of many moments; each is made when it is first asked
    for. What they are made of is there to ask "what if" with.
    """

    readings: Readings
    reservations: Reservations
    limits: Limits
    past: Past
    summary: FleetSummary
    sources: thermal.Sources

    @property
    def fleet(self) -> FleetArrays:
        return self.readings.fleet

    @property
    def frame(self) -> Frame:
        return self.readings.frame

    @property
    def at(self) -> float:
        """The moment of the quantities, Unix s. Raises TypeError where there are many."""
        return float(self.readings.now)

    @property
    def seen(self) -> GpuTemperatures:
        """The temperatures that GPUs read."""
        return self.sources.seen

    @property
    def inlets(self) -> Inlets:
        """Inlet temperatures, as meters read them."""
        return self.sources.inlets

    @property
    def parts(self) -> Parts:
        """The thermal parameters of each GPU."""
        return self.sources.parts

    def with_past(self, past: Past) -> Self:
        """Return the quantities with another past, but with the loads as computed before."""
        return replace(self, past=past, sources=thermal.Sources(self.sources.gpus, past))

    def what_if(self, gpu_w: Floats) -> Self:
        """Return the quantities under other loads of the GPUs, W, all else being the same.

        Hosts draw more or less along with their GPUs. Temperatures are those of now, and settle at
        what the new loads make of them.
        """
        return replace(self, summary=_shifted(self.fleet, self.summary, gpu_w, self.host_share))

    @cached_property
    def host_share(self) -> Floats:
        """Additional draw of each host for each W more of its GPUs, W: none for its own cores."""
        fleet = self.fleet
        rated_w = sum_by(self.summary.gpus.rated_w, fleet.gpus.node, len(fleet.nodes))
        span_w = fleet.nodes.host_rated_w - np.nan_to_num(fleet.nodes.host_idle_w)
        found = np.nan_to_num(ratio(span_w, rated_w))
        if self.past.hosts is not None:
            fitted = self.past.hosts.share
            found = np.where(np.isnan(fitted), found, fitted)
        return np.where(fleet.hands_out_cores, 0.0, found)

    def gpus_in(self, kind: ScopeKind, row: int) -> Bools:
        """Say of each GPU whether it is in a GPU, node, rack, zone or site, given by its row."""
        fleet, node = self.fleet, self.fleet.gpus.node
        rack = fleet.nodes.rack[node]
        wholes = {
            ScopeKind.GPU: np.arange(len(fleet.gpus)),
            ScopeKind.NODE: node,
            ScopeKind.RACK: rack,
            ScopeKind.ZONE: fleet.racks.zone[rack],
            ScopeKind.SITE: fleet.racks.site[rack],
        }
        return np.asarray(wholes[kind] == row)

    @cached_property
    def powers(self) -> dict[ScopeKind, Power]:
        """Power of GPUs, nodes, racks, power domains and sites."""
        return power.committed(self.fleet, self.summary, self.reservations, self.limits)

    @cached_property
    def failover(self) -> Failover:
        """The load of power domains when the other half of their pair fails."""
        powers = self.powers
        racks, domains = powers[ScopeKind.RACK], powers[ScopeKind.POWER_DOMAIN]
        return power.failover(self.fleet, racks, domains, self.summary.domains.idle)

    @cached_property
    def heat(self) -> dict[ScopeKind, Heat]:
        """Heat of GPUs, nodes, racks, zones and sites."""
        return thermal.of_all(self.fleet, self.gpu_heat)

    @cached_property
    def gpu_heat(self) -> Heat:
        """Heat of GPUs alone."""
        return thermal.of_gpus(self.fleet, self.parts, self.seen, self.summary.gpus.load_w)

    @cached_property
    def zone_load_w(self) -> Floats:
        """Heat of each cooling zone: the committed load of its racks."""
        fleet = self.fleet
        return sum_by(self.powers[ScopeKind.RACK].load_w, fleet.racks.zone, len(fleet.zones))

    @cached_property
    def zone_drawn_w(self) -> Floats:
        """That heat without what is reserved and not drawn yet, W."""
        fleet = self.fleet
        return sum_by(self.powers[ScopeKind.RACK].drawn_w, fleet.racks.zone, len(fleet.zones))

    @cached_property
    def zone_capacity_w(self) -> Floats:
        """Heat that each cooling zone may have, by its capacity or by a restriction, W."""
        return self.limits.budget_of(ScopeKind.ZONE, self.fleet.zones.capacity_w)

    @cached_property
    def links(self) -> dict[str, Any]:
        """The columns of links, but for their binding."""
        return network.columns(self.readings, self.past, self.reservations, self.limits)

    @cached_property
    def replicas(self) -> dict[str, Any]:
        """The columns of sites that say how far others are behind with checkpoints."""
        return replicas.columns(self.past.replicas, self.readings.now, len(self.fleet.sites))

    @cached_property
    def endpoints(self) -> dict[str, Any]:
        """The columns of storage endpoints, but for their binding."""
        return storage.columns(self.readings, self.past, self.reservations)


def _shifted(
    fleet: FleetArrays, summary: FleetSummary, gpu_w: Floats, host_share: Floats
) -> FleetSummary:
    """Return ``summary`` as it were if GPUs drew ``gpu_w``."""
    nodes, racks, domains, sites = summary.nodes, summary.racks, summary.domains, summary.sites
    more_w = sum_by(gpu_w - summary.gpus.load_w, fleet.gpus.node, len(fleet.nodes))
    node_w = (1.0 + host_share) * more_w
    rack_w = sum_by(node_w, fleet.nodes.rack, len(fleet.racks))
    site_w = sum_by(rack_w, fleet.racks.site, len(fleet.sites))
    domain_w = carried_w(fleet, rack_w)
    return FleetSummary(
        gpus=replace(summary.gpus, load_w=gpu_w),
        nodes=replace(nodes, load_w=nodes.load_w + node_w),
        racks=replace(racks, load_w=racks.load_w + rack_w),
        sites=replace(sites, load_w=sites.load_w + site_w),
        domains=replace(domains, load_w=domains.load_w + domain_w),
    )
