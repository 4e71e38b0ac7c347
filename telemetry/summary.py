"""The load of every rack, site and power domain: pure functions of inventory, frame and clock.

Loads are *committed*: measured where a reading is fresh, rated where it is stale or was never
there, and no less than what was read last. Stale never means free.

Arrays are ``(things,)`` at one moment and ``(times, things)`` at many. What few ask for is summed
up when it is first asked for, and only then are its fields asked of the frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fleet.groups import count_by, most_by, ratio, row_of_most_by, sum_by, sum_of_known_by
from fleet.power_curves import UNRATED_GPU_W
from fleet.tables import METER_KINDS, METER_TARGETS, FleetArrays
from telemetry.live_frame import Array, Frame, Readings
from telemetry.throttle import THROTTLE_BITS, rules

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

#: What ``RackSummary.tightest_dimension`` stands for: a code is the place in the tuple.
DIMENSIONS = ("power", "heat", "links")
#: A heat margin of this many degrees to slowdown counts as full margin: an idle, cool GPU.
FULL_HEAT_MARGIN_C = 50.0
#: A node without a model is taken for this much, besides its GPUs.
UNRATED_HOST_W = 1_000.0

#: A power domain that reads less than this share of what hangs on it is dead, or its meter wrong.
_IDLE_SHARE = 0.05

_POWER_METER = METER_KINDS.index("power")
_ON_DOMAIN = METER_TARGETS.index("power_domain")
_ON_RACK = METER_TARGETS.index("rack")
_ON_NODE = METER_TARGETS.index("node")


@dataclass(frozen=True, eq=False)
class HostCurves:
    """The fitted draw of nodes besides their GPUs: ``idle_w + share · GPUs``.

    Aligned with the inventory's nodes; NaN where nothing was fitted. It holds where the node has no
    fresh meter and does not read its host itself.
    """

    idle_w: Floats
    share: Floats


@dataclass(frozen=True, eq=False)
class GpuSummary:
    """Aligned with the inventory's GPUs.

    ``rated_w`` is never NaN, and of one moment. ``ts`` is when each was heard last (Unix s; 0:
    never), ``read`` says whose power is read fresh. Temperatures are those read last, however long
    ago.
    """

    readings: Readings
    load_w: Floats
    rated_w: Floats
    ts: Floats
    read: Bools
    fresh: Bools

    @cached_property
    def age_s(self) -> Floats:
        """Age of each reading, s; NaN for GPUs that were never heard."""
        return self.readings.age_s(self.ts)

    @cached_property
    def temp_c(self) -> Array:
        return self._field("temp_c")

    @cached_property
    def temp_mem_c(self) -> Array:
        return self._field("temp_mem_c")

    @cached_property
    def slowdown_c(self) -> Floats:
        """The temperature at which clocks are cut: as the GPU says, else as its model is rated."""
        limit_c = self._field("temp_limit_c")
        return np.where(np.isnan(limit_c), self.readings.fleet.gpus.slowdown_c, limit_c)

    @cached_property
    def throttling(self) -> Bools:
        throttling: Bools = self.fresh & ((self._field("throttle") & THROTTLE_BITS) != 0)
        return throttling

    @cached_property
    def unexpected(self) -> Bools:
        """Which throttle though nobody asked for it: see :func:`throttle.rules.unexpected`."""
        mask = self._field("throttle")
        return self.fresh & rules.unexpected(mask, self.limit_w, self.rated_w)

    @cached_property
    def limit_w(self) -> Floats:
        """The limit that each is under, its rating where it does not say."""
        limit_w = self._field("power_limit_w")
        return np.where(np.isnan(limit_w), self.rated_w, limit_w)

    @cached_property
    def clock_ratio(self) -> Floats:
        """Clock as a share of the highest; NaN where it is not fresh."""
        share = ratio(self._field("sm_mhz"), self.readings.fleet.gpus.sm_max_mhz)
        return np.where(self.fresh, share, np.nan)

    def _field(self, name: str) -> Array:
        return self.readings.frame.fields("gpu", self.readings.fleet.gpus.ids, name)[name]


@dataclass(frozen=True, eq=False)
class NodeSummary:
    """Aligned with the inventory's nodes. NaN: nothing known.

    ``ts`` is when anything of it was heard last, Unix s; 0: never.
    """

    each: GpuSummary
    load_w: Floats
    measured_w: Floats
    ts: Floats
    stale: Bools

    @property
    def seen(self) -> Bools:
        """Which nodes were ever heard."""
        return self.ts > 0

    @property
    def lost(self) -> Bools:
        """Which nodes fell silent. One never heard is not there yet, as far as is known."""
        return self.stale & self.seen

    @cached_property
    def age_s(self) -> Floats:
        return self.each.readings.age_s(self.ts)

    @cached_property
    def gpus(self) -> Ints:
        """The number of GPUs of each node."""
        return self._counted(np.ones(len(self._fleet.gpus), dtype=bool))

    @cached_property
    def throttling(self) -> Ints:
        return self._counted(self.each.throttling)

    @cached_property
    def unexpected(self) -> Ints:
        return self._counted(self.each.unexpected)

    @cached_property
    def enforced_w(self) -> Floats:
        """The most that each node may draw under the limits of its GPUs."""
        fleet = self._fleet
        return sum_by(self.each.limit_w, fleet.gpus.node, len(fleet.nodes)) + host_rated_w(fleet)

    @cached_property
    def hottest_c(self) -> Floats:
        return self._most(np.where(self.each.fresh, self.each.temp_c, np.nan))

    @cached_property
    def heat_margin_c(self) -> Floats:
        gpus = self.each
        return -self._most(np.where(gpus.fresh, gpus.temp_c - gpus.slowdown_c, np.nan))

    @cached_property
    def clock_ratio(self) -> Floats:
        share, node, count = self.each.clock_ratio, self._fleet.gpus.node, len(self._fleet.nodes)
        known = count_by(~np.isnan(share), node, count)
        return ratio(sum_by(np.nan_to_num(share), node, count), known)

    @property
    def _fleet(self) -> FleetArrays:
        return self.each.readings.fleet

    def _counted(self, flags: Bools) -> Ints:
        return count_by(flags, self._fleet.gpus.node, len(self._fleet.nodes)).astype(np.int64)

    def _most(self, values: Floats) -> Floats:
        return most_by(values, self._fleet.gpus.node, len(self._fleet.nodes))


@dataclass(frozen=True, eq=False)
class RackSummary:
    """Aligned with the inventory's racks. Margins are shares of the budget left, 1 to below 0."""

    each: NodeSummary
    load_w: Floats
    budget_w: Floats
    measured_w: Floats
    stale: Bools
    seen: Bools

    @property
    def power_margin(self) -> Floats:
        return 1.0 - ratio(self.load_w, self.budget_w)

    @cached_property
    def age_s(self) -> Floats:
        return self._most(self.each.age_s)

    @cached_property
    def enforced_w(self) -> Floats:
        return self._sum(self.each.enforced_w)

    @cached_property
    def gpus(self) -> Ints:
        return self._sum(self.each.gpus).astype(np.int64)

    @cached_property
    def throttling(self) -> Ints:
        return self._sum(self.each.throttling).astype(np.int64)

    @cached_property
    def unexpected(self) -> Ints:
        """The number of GPUs that throttle though nobody asked for it."""
        return self._sum(self.each.unexpected).astype(np.int64)

    @cached_property
    def hottest_c(self) -> Floats:
        return self._most(self.each.hottest_c)

    @cached_property
    def heat_margin_c(self) -> Floats:
        return -self._most(-self.each.heat_margin_c)

    @property
    def heat_margin(self) -> Floats:
        return np.clip(self.heat_margin_c / FULL_HEAT_MARGIN_C, -1.0, 1.0)

    @cached_property
    def clock_ratio(self) -> Floats:
        share, gpus = self.each.clock_ratio, self.each.gpus
        clocked = self._sum(np.where(np.isnan(share), 0, gpus))
        return ratio(self._sum(np.nan_to_num(share) * gpus), clocked)

    @cached_property
    def link_use(self) -> Floats:
        """The busiest direction of the busiest link that starts there, as a share of capacity."""
        readings, links = self.each.each.readings, self._fleet.links
        names = ("ts", "tx_bytes_per_s", "rx_bytes_per_s")
        record = readings.frame.fields("link", links.ids, *names)
        busiest = np.fmax(record["tx_bytes_per_s"], record["rx_bytes_per_s"]) * 8.0
        use = ratio(busiest, links.capacity_bits_per_s)
        fresh = readings.is_fresh(record["ts"])
        return most_by(np.where(fresh, use, np.nan), links.rack, len(self._fleet.racks))

    @property
    def tightest(self) -> Floats:
        """The least known of the margins, NaN where none is."""
        least = self._margins.min(axis=0)
        return np.where(np.isinf(least), np.nan, least)

    @property
    def tightest_dimension(self) -> Ints:
        """The dimension of the least margin."""
        place: Ints = self._margins.argmin(axis=0)
        return place

    @cached_property
    def _margins(self) -> Floats:
        margins = np.stack([self.power_margin, self.heat_margin, 1.0 - self.link_use])
        return np.where(np.isnan(margins), np.inf, margins)

    @property
    def _fleet(self) -> FleetArrays:
        return self.each.each.readings.fleet

    def _sum(self, values: Array) -> Floats:
        return sum_by(values, self._fleet.nodes.rack, len(self._fleet.racks))

    def _most(self, values: Floats) -> Floats:
        return most_by(values, self._fleet.nodes.rack, len(self._fleet.racks))


@dataclass(frozen=True, eq=False)
class SiteSummary:
    """Aligned with the inventory's sites."""

    each: RackSummary
    load_w: Floats
    budget_w: Floats

    @cached_property
    def measured_w(self) -> Floats:
        return sum_of_known_by(self.each.measured_w, self._fleet.racks.site, len(self._fleet.sites))

    @property
    def enforced_w(self) -> Floats:
        return self._sum(self.each.enforced_w)

    @property
    def hottest_rack(self) -> Ints:
        """Row of the hottest rack of each site; -1: unknown."""
        return row_of_most_by(self.each.hottest_c, self._fleet.racks.site, len(self._fleet.sites))

    @property
    def throttling(self) -> Ints:
        return self._sum(self.each.throttling).astype(np.int64)

    @property
    def throttling_racks(self) -> Ints:
        return self._sum(self.each.throttling > 0).astype(np.int64)

    @property
    def unexpected_racks(self) -> Ints:
        return self._sum(self.each.unexpected > 0).astype(np.int64)

    @property
    def stale_nodes(self) -> Ints:
        """The number of nodes that fell silent."""
        lost = count_by(self.each.each.lost, self._fleet.nodes.rack, len(self._fleet.racks))
        return self._sum(lost).astype(np.int64)

    @property
    def racks(self) -> Ints:
        return self._sum(np.ones(len(self._fleet.racks))).astype(np.int64)

    @property
    def _fleet(self) -> FleetArrays:
        return self.each.each.each.readings.fleet

    def _sum(self, values: Array) -> Floats:
        return sum_by(values, self._fleet.racks.site, len(self._fleet.sites))


@dataclass(frozen=True, eq=False)
class DomainSummary:
    """Aligned with the inventory's power domains.

    ``load_w`` is what the domain carries with all feeds up: a rack on two feeds draws half of its
    load from each. ``metered_w`` is what meters show that all read fresh, NaN where not. ``idle``:
    they all read fresh, and next to nothing beside what hangs on it: it is dead, or they are wrong.
    """

    load_w: Floats
    metered_w: Floats
    idle: Bools
    usable_w: Floats

    @property
    def headroom_w(self) -> Floats:
        return self.usable_w - self.load_w


@dataclass(frozen=True, eq=False)
class FleetSummary:
    """The whole fleet at one moment, or at many."""

    gpus: GpuSummary
    nodes: NodeSummary
    racks: RackSummary
    sites: SiteSummary
    domains: DomainSummary


def summarize(
    fleet: FleetArrays,
    frame: Frame,
    *,
    now: float | Floats,
    stale_after_s: float,
    hosts: HostCurves | None = None,
) -> FleetSummary:
    """Return the loads of the fleet at ``now`` (Unix seconds), or at each of many: (times, 1)."""
    readings = Readings(fleet, frame, now, stale_after_s)
    gpus = _gpus(readings)
    nodes = _nodes(gpus, hosts)
    racks = _racks(nodes)
    domains = _domains(racks)
    return FleetSummary(gpus, nodes, racks, _sites(racks, domains), domains)


def with_loads(
    summary: FleetSummary, *, nodes_w: Floats, racks_w: Floats, domains_w: Floats, sites_w: Floats
) -> FleetSummary:
    """Return ``summary`` with other loads, W, and with the margins that these leave."""
    return replace(
        summary,
        nodes=replace(summary.nodes, load_w=nodes_w),
        racks=replace(summary.racks, load_w=racks_w),
        domains=replace(summary.domains, load_w=domains_w),
        sites=replace(summary.sites, load_w=sites_w),
    )


def with_budgets(
    summary: FleetSummary, *, racks_w: Floats, domains_w: Floats, sites_w: Floats
) -> FleetSummary:
    """Return ``summary`` with other budgets, W, and with the margins that these leave."""
    return replace(
        summary,
        racks=replace(summary.racks, budget_w=racks_w),
        domains=replace(summary.domains, usable_w=domains_w),
        sites=replace(summary.sites, budget_w=sites_w),
    )


def _gpus(readings: Readings) -> GpuSummary:
    table = readings.fleet.gpus
    record = readings.frame.fields("gpu", table.ids, "ts", "power_w")
    power_w, fresh = record["power_w"], readings.is_fresh(record["ts"])
    rated_w = np.where(np.isnan(table.rated_w), UNRATED_GPU_W, table.rated_w)
    read = fresh & ~np.isnan(power_w)
    # One that was over its rating when it fell silent is not taken to have come down.
    load_w = np.where(read, power_w, np.fmax(rated_w, power_w))
    return GpuSummary(readings, load_w, rated_w, record["ts"], read, fresh)


def _nodes(gpus: GpuSummary, hosts: HostCurves | None) -> NodeSummary:
    readings = gpus.readings
    fleet = readings.fleet
    node, count = fleet.gpus.node, len(fleet.nodes)
    host = _host(readings)
    gpus_w = sum_by(gpus.load_w, node, count)
    host_w = _host_load(fleet, host, gpus_w, sum_by(gpus.rated_w, node, count), hosts)

    meter = _metered(readings, _ON_NODE, count)
    meter_w, metered = meter.now_w, ~np.isnan(meter.now_w)
    load_w = np.where(metered, meter_w, np.fmax(gpus_w + host_w, meter.last_w))
    measured_w = np.where(metered, meter_w, _measured(gpus, host))

    has_gpus = fleet.gpu_bounds[1:] > fleet.gpu_bounds[:-1]
    silent_gpus, heard_gpus = (count_by(each, node, count) for each in (~gpus.fresh, gpus.ts > 0))
    # A node is known when all its GPUs are; where none ever spoke, a meter or its host will do.
    speaks_else = (heard_gpus == 0) & (metered | (~has_gpus & host.fresh))
    return NodeSummary(
        each=gpus,
        load_w=load_w,
        measured_w=measured_w,
        ts=np.fmax(np.fmax(most_by(gpus.ts, node, count), host.ts), _meter_ts(readings)),
        stale=~((has_gpus & (silent_gpus == 0)) | speaks_else),
    )


@dataclass(frozen=True, eq=False)
class _Host:
    """The readings of hosts. ``read`` says whose power is read fresh."""

    ts: Floats
    fresh: Bools
    power_w: Array
    cpu_power_w: Array

    @property
    def read(self) -> Bools:
        return self.fresh & ~np.isnan(self.power_w)


def _host(readings: Readings) -> _Host:
    names = ("ts", "power_w", "cpu_power_w")
    record = readings.frame.fields("host", readings.fleet.nodes.ids, *names)
    fresh = readings.is_fresh(record["ts"])
    return _Host(record["ts"], fresh, record["power_w"], record["cpu_power_w"])


def _measured(gpus: GpuSummary, host: _Host) -> Floats:
    """The sum of present readings of a node's GPUs and its host; NaN where none of them reads."""
    node, count = gpus.readings.fleet.gpus.node, len(gpus.readings.fleet.nodes)
    gpus_w = sum_of_known_by(np.where(gpus.read, gpus.load_w, np.nan), node, count)
    host_w = np.where(host.read, host.power_w, 0.0)
    return np.where(host.read, np.nan_to_num(gpus_w) + host_w, gpus_w)


def _host_load(
    fleet: FleetArrays,
    host: _Host,
    gpus_w: Floats,
    gpus_rated_w: Floats,
    curves: HostCurves | None,
) -> Floats:
    """Everything in a node but its GPUs: as read, as fitted, or from idle to rated along with them.

    What was read last holds as the least once it is stale.
    """
    rated_w = host_rated_w(fleet)
    idle_w = np.nan_to_num(fleet.nodes.host_idle_w)
    share = np.nan_to_num(np.clip(ratio(gpus_w, gpus_rated_w), 0.0, 1.0), nan=1.0)
    assumed_w = idle_w + share * (rated_w - idle_w)
    if curves is not None:
        fitted_w = curves.idle_w + curves.share * gpus_w
        assumed_w = np.where(np.isnan(fitted_w), assumed_w, fitted_w)
    # The CPUs are a part of it: a reading of theirs can only raise what is assumed.
    assumed_w = np.fmax(assumed_w, host.cpu_power_w)
    load_w: Floats = np.where(host.read, host.power_w, np.fmax(assumed_w, host.power_w))
    return load_w


def host_rated_w(fleet: FleetArrays) -> Floats:
    """Return the rated draw of each node besides its GPUs; unknown models do not count as none."""
    rated_w = fleet.nodes.host_rated_w
    return np.where(np.isnan(rated_w), UNRATED_HOST_W, rated_w)


def _racks(nodes: NodeSummary) -> RackSummary:
    readings = nodes.each.readings
    count, rack = len(readings.fleet.racks), readings.fleet.nodes.rack
    meter = _metered(readings, _ON_RACK, count)
    meter_w = meter.now_w
    stale = count_by(nodes.stale, rack, count) > 0
    # A fresh rack meter is the truth of what is drawn, yet a silent node may start to draw again
    # at any moment: the larger of the two stands.
    least_w = np.fmax(sum_by(nodes.load_w, rack, count), meter.last_w)
    nodes_measured_w = sum_of_known_by(nodes.measured_w, rack, count)
    return RackSummary(
        each=nodes,
        load_w=np.where(np.isnan(meter_w) | stale, least_w, meter_w),
        budget_w=readings.fleet.racks.budget_w,
        measured_w=np.where(np.isnan(meter_w), nodes_measured_w, meter_w),
        stale=stale,
        seen=(count_by(nodes.seen, rack, count) > 0) | ~np.isnan(meter_w),
    )


def _domains(racks: RackSummary) -> DomainSummary:
    readings = racks.each.each.readings
    domains = readings.fleet.domains
    meter = _metered(readings, _ON_DOMAIN, len(domains))
    fed_w = carried_w(readings.fleet, racks.load_w)
    return DomainSummary(
        # What is fed may be stale and so assumed; what the meter reads is drawn for certain.
        load_w=np.fmax(fed_w, meter.last_w),
        metered_w=meter.now_w,
        idle=meter.shown_w < _IDLE_SHARE * fed_w,
        usable_w=domains.capacity_w * domains.derating,
    )


def _sites(racks: RackSummary, domains: DomainSummary) -> SiteSummary:
    fleet = racks.each.each.readings.fleet
    count, site = len(fleet.sites), fleet.racks.site
    roots = fleet.domains.parent < 0
    roots_w = sum_by(domains.usable_w[roots], fleet.domains.site[roots], count)
    by_tree_w = np.where(roots_w > 0, roots_w, sum_by(racks.budget_w, site, count))
    # As the inventory states, else that of the power tree's roots, else that of the racks.
    budget_w = np.where(np.isnan(fleet.sites.budget_w), by_tree_w, fleet.sites.budget_w)
    return SiteSummary(racks, sum_by(racks.load_w, site, count), budget_w)


def carried_w(fleet: FleetArrays, rack_w: Floats) -> Floats:
    """Return the load of every power domain from the loads of racks, W, with all feeds up.

    A rack on two feeds draws half of its load from each.
    """
    parent, count = fleet.domains.parent, len(fleet.domains)
    a, b = fleet.racks.feed_a, fleet.racks.feed_b
    shared_w = np.where((a >= 0) & (b >= 0), 0.5, 1.0) * rack_w
    load_w = rising = sum_by(shared_w, a, count) + sum_by(shared_w, b, count)
    # Carry each domain's load up its branch, a level at a time: trees are a few levels deep.
    for _ in range(count):
        rising = sum_by(rising, parent, count)
        if not rising.any():
            break
        load_w = load_w + rising
    return load_w


@dataclass(frozen=True, eq=False)
class _Metered:
    """Power by the meters of some things, W. NaN: they have none, or none that was heard.

    ``now_w`` is known where all meters of a thing read fresh, ``last_w`` is the sum of what those
    that were ever heard read last: a rack on two feeds has a meter on each, and does not draw half
    when one of them falls silent. ``shown_w`` is as ``now_w``, and knows zeros too.
    """

    now_w: Floats
    last_w: Floats
    shown_w: Floats


def _metered(readings: Readings, target_kind: int, count: int) -> _Metered:
    """Return the power that meters of one kind of target show.

    A reading at or below zero is a meter's fault, not a load: no rack feeds the grid.
    """
    meters = readings.fleet.meters
    here = (meters.kind == _POWER_METER) & (meters.target_kind == target_kind)
    record = readings.frame.fields("meter", meters.ids[here], "ts", "power_w")
    power_w, fresh = record["power_w"], readings.is_fresh(record["ts"])
    target = meters.target[here]

    def told(known: Bools) -> tuple[Floats, Floats]:
        """Return the known readings summed by thing: of any age, and only where all are fresh."""
        last_w = sum_of_known_by(np.where(known, power_w, np.nan), target, count)
        return last_w, np.where(count_by(~(known & fresh), target, count) > 0, np.nan, last_w)

    last_w, now_w = told(power_w > 0)
    return _Metered(now_w, last_w, shown_w=told(power_w >= 0)[1])


def _meter_ts(readings: Readings) -> Floats:
    """Return when any meter of each node was heard last, Unix s; NaN where a node has none."""
    fleet, meters = readings.fleet, readings.fleet.meters
    here = meters.target_kind == _ON_NODE
    ts = readings.frame.fields("meter", meters.ids[here], "ts")["ts"]
    return most_by(ts, meters.target[here], len(fleet.nodes))
