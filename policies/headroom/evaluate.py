"""Headroom of every scope: a pure function of inventory, live frame, promises, limits and clock.

Nothing that falls silent ever makes it larger: loads are committed (``telemetry.summary``), heat
that is not read is that of rated power, and links that are not read are full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fleet.groups import ratio, sum_by
from fleet.tables import FleetArrays
from policies.headroom import binding, constraints, network, power, storage, tables, thermal
from policies.headroom.binding import Binding, Tightest, Token
from policies.headroom.columns import HORIZONS, Bools, Floats, Ints, Table
from policies.headroom.inputs import Limits, Past, Reservations
from policies.headroom.power import Failover, Power
from policies.headroom.thermal import GpuTemperatures, Heat, Inlets, Parts
from policies.scopes import Scope, ScopeKind
from telemetry.live_frame import Frame, Readings
from telemetry.summary import FleetSummary, carried_w, summarize


def evaluate(
    fleet: FleetArrays,
    frame: Frame,
    *,
    now: float | Floats,
    reservations: Reservations | None = None,
    restrictions: Limits | None = None,
    past: Past | None = None,
    stale_after_s: float = 30.0,
) -> Headroom:
    """Return the headroom of every scope at ``now`` (Unix seconds), or at many moments at once.

    For many, ``now`` is (times, 1) and ``frame`` has as many; what else is given has the times
    before its last axis, or none where it is the same at all of them.
    """
    past = past or Past.none(fleet)
    summary = summarize(fleet, frame, now=now, stale_after_s=stale_after_s, hosts=past.hosts)
    return Headroom(
        readings=summary.gpus.readings,
        reservations=reservations or Reservations.none(fleet),
        limits=restrictions or Limits.none(fleet),
        past=past,
        summary=summary,
        sources=thermal.Sources(summary.gpus, past),
    )


@dataclass(frozen=True, eq=False)
class Headroom:
    """Headroom of the whole fleet at one moment, or at many: arrays are (times, scopes) then.

    What it is made of is there to ask "what if" with; tables are made when they are first asked
    for. What is asked of a single scope is asked of one moment.
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
        """The moment that it is of, Unix s. Raises TypeError where there are many."""
        return float(self.readings.now)

    @property
    def seen(self) -> GpuTemperatures:
        """The temperatures that GPUs read."""
        return self.sources.seen

    @property
    def inlets(self) -> Inlets:
        """What temperature meters read."""
        return self.sources.inlets

    @property
    def parts(self) -> Parts:
        """What is known of each GPU as a source of heat."""
        return self.sources.parts

    def with_past(self, past: Past) -> Headroom:
        """Return the headroom of the same loads after another past, but for its host curves."""
        return replace(self, past=past, sources=thermal.Sources(self.sources.gpus, past))

    def table(self, kind: ScopeKind) -> Table:
        """Return the scopes of one kind. Raises KeyError for classes and jobs."""
        return self._tables[kind]

    def binding(self, scope: Scope) -> Binding | None:
        """Return what binds ``scope``, with its numbers; None where nothing is known.

        Raises KeyError for a scope that is not in its table.
        """
        row = self.table(scope.kind).index_by_name[scope.name]
        found = self.tightest[scope.kind]
        if found.choice[row] < 0:
            return None
        token, where = found.limits[found.choice[row]]
        return self._numbers(token, where, int(found.row[row]), float(found.share[row]))

    def what_if(self, gpu_w: Floats) -> Headroom:
        """Return the headroom under other loads of the GPUs, W, all else being the same.

        Hosts draw more or less along with their GPUs. Temperatures are those of now, and settle at
        what the new loads make of them.
        """
        return replace(self, summary=_shifted(self.fleet, self.summary, gpu_w, self.host_share))

    @cached_property
    def host_share(self) -> Floats:
        """By how many W each node draws more for each W more of its GPUs, besides that one."""
        fleet = self.fleet
        rated_w = sum_by(self.summary.gpus.rated_w, fleet.gpus.node, len(fleet.nodes))
        span_w = fleet.nodes.host_rated_w - np.nan_to_num(fleet.nodes.host_idle_w)
        by_rating = np.nan_to_num(ratio(span_w, rated_w))
        if self.past.hosts is None:
            return by_rating
        fitted = self.past.hosts.share
        return np.where(np.isnan(fitted), by_rating, fitted)

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
        """What power domains carry when the other half of their pair fails."""
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
    def links(self) -> dict[str, Any]:
        """The columns of links, but for their binding."""
        return network.columns(self.readings, self.past, self.reservations, self.limits)

    @cached_property
    def endpoints(self) -> dict[str, Any]:
        """The columns of storage endpoints, but for their binding."""
        return storage.columns(self.readings, self.past, self.reservations)

    @cached_property
    def tightest(self) -> dict[ScopeKind, Tightest]:
        """What binds the scopes of each kind."""
        return constraints.of_all(self)

    @cached_property
    def steps(self) -> dict[str, dict[ScopeKind, Floats]]:
        """Known changes of load by the name of a horizon, W."""
        return {
            name: power.steps_by(self.fleet, self.reservations.steps, self.readings.now, ahead_s)
            for name, ahead_s in HORIZONS.items()
        }

    @cached_property
    def ages(self) -> dict[ScopeKind, dict[str, Any]]:
        """Age and staleness of scopes that power or heat is known of."""
        return tables.ages(self)

    @cached_property
    def health(self) -> dict[ScopeKind, dict[str, Any]]:
        """Stale nodes, lemons and errors of nodes, racks and sites."""
        return tables.health(self)

    @cached_property
    def _tables(self) -> tables.Tables:
        return tables.Tables(self)

    def _numbers(self, token: Token, kind: ScopeKind, row: int, share: float) -> Binding:
        where = Scope(kind, str(tables.names_of(self.fleet, kind)[row]))
        numbers = {
            Token.COOLING: self._cooling_numbers,
            Token.THERMAL: self._thermal_numbers,
            Token.LINK: self._link_numbers,
            Token.STORAGE: self._storage_numbers,
            Token.FEED_REDUNDANCY: self._failover_numbers,
        }.get(token, self._power_numbers)
        budget, load, unit = numbers(kind, row)
        mate = ""
        if token is Token.FEED_REDUNDANCY:
            mate = str(self.fleet.domains.paths[self.fleet.domains.pair[row]])
        text = binding.sentence(token, where, budget, load, unit, mate)
        return Binding(token, where, budget, load, budget - load, unit, share, text)

    def _power_numbers(self, kind: ScopeKind, row: int) -> tuple[float, float, str]:
        found = self.powers[kind]
        return float(found.budget_w[row]), float(found.load_w[row]), "W"

    def _failover_numbers(self, _kind: ScopeKind, row: int) -> tuple[float, float, str]:
        budget_w = self.powers[ScopeKind.POWER_DOMAIN].budget_w[row]
        return float(budget_w), float(self.failover.load_w[row]), "W"

    def _cooling_numbers(self, kind: ScopeKind, row: int) -> tuple[float, float, str]:
        if kind is ScopeKind.SITE:
            capacity_w, load_w = constraints.site_cooling_w(self)
            return float(capacity_w[row]), float(load_w[row]), "W"
        return float(self.fleet.zones.capacity_w[row]), float(self.zone_load_w[row]), "W"

    def _thermal_numbers(self, kind: ScopeKind, row: int) -> tuple[float, float, str]:
        # Of a group the limit of its tightest GPU: what it leaves is the margin.
        margin_c = float(self.heat[kind].margin_c[row])
        limit_c = float(self.parts.limit_c[self._tightest_gpu(kind, row)])
        return limit_c, limit_c - margin_c, "°C"

    def _tightest_gpu(self, kind: ScopeKind, row: int) -> int:
        mine = self._gpus_of(kind, row)
        return int(mine[np.nanargmin(self.gpu_heat.margin_c[mine])])

    def _gpus_of(self, kind: ScopeKind, row: int) -> Ints:
        """Return the rows of the GPUs in a scope. Pages ask this of a hundred racks at once."""
        if kind is ScopeKind.RACK:
            nodes = self.fleet.node_bounds[row : row + 2]
            return np.arange(*self.fleet.gpu_bounds[nodes].tolist())
        return np.flatnonzero(self.gpus_in(kind, row))

    def _link_numbers(self, _kind: ScopeKind, row: int) -> tuple[float, float, str]:
        capacity = float(self.links["link_capacity_bits_per_s"][row])
        left = float(self.links["link_headroom_bits_per_s"][row])
        return capacity, capacity - left, "bit/s"

    def _storage_numbers(self, _kind: ScopeKind, row: int) -> tuple[float, float, str]:
        capacity = float(self.endpoints["storage_capacity_bytes_per_s"][row])
        return capacity, float(self.endpoints["storage_load_bytes_per_s"][row]), "byte/s"


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
