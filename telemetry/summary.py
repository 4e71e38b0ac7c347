"""What every rack, site and power domain carries now: pure functions of inventory, frame and clock.

Loads are *committed*: measured where a reading is fresh, rated where it is stale or was never
there, and no less than what was read last. Stale never means free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fleet.groups import most_by, ratio, sum_by, sum_of_known_by
from fleet.tables import METER_KINDS, METER_TARGETS, FleetArrays
from telemetry.live_frame import LiveFrame, is_fresh
from telemetry.throttle import THROTTLE_BITS

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

#: What ``RackSummary.tightest_dimension`` stands for: a code is the place in the tuple.
DIMENSIONS = ("power", "heat", "links")
#: A heat margin of this many degrees to slowdown counts as full margin: an idle, cool GPU.
FULL_HEAT_MARGIN_C = 50.0
#: A GPU without a rating in the inventory and without a reading is taken for this much.
UNRATED_GPU_W = 700.0
#: The same for a node without a model, besides its GPUs.
UNRATED_HOST_W = 1_000.0

#: A power domain that reads less than this share of what hangs on it is dead, or its meter wrong.
_IDLE_SHARE = 0.05

_GPU_FIELDS = (
    "ts", "power_w", "power_limit_w", "temp_c", "temp_mem_c", "temp_limit_c", "sm_mhz", "throttle",
)  # fmt: skip
_POWER_METER = METER_KINDS.index("power")
_ON_DOMAIN = METER_TARGETS.index("power_domain")
_ON_RACK = METER_TARGETS.index("rack")
_ON_NODE = METER_TARGETS.index("node")


@dataclass(frozen=True, eq=False)
class HostCurves:
    """What a node draws besides its GPUs, as fitted: ``idle_w + share · GPUs``.

    Aligned with the inventory's nodes; NaN where nothing was fitted. It holds where the node has no
    fresh meter and does not read its host itself.
    """

    idle_w: Floats
    share: Floats


@dataclass(frozen=True, eq=False)
class GpuSummary:
    """Aligned with the inventory's GPUs.

    ``rated_w`` is never NaN. ``read`` says whose power is read fresh, ``age_s`` is NaN for GPUs
    that were never heard. Temperatures are those read last, however long ago.
    """

    load_w: Floats
    rated_w: Floats
    read: Bools
    fresh: Bools
    age_s: Floats
    temp_c: Floats
    temp_mem_c: Floats
    slowdown_c: Floats
    throttling: Bools


@dataclass(frozen=True, eq=False)
class NodeSummary:
    """Aligned with the inventory's nodes. NaN: nothing known."""

    load_w: Floats
    measured_w: Floats
    enforced_w: Floats
    hottest_c: Floats
    heat_margin_c: Floats
    clock_ratio: Floats
    throttling: Ints
    gpus: Ints
    age_s: Floats
    stale: Bools
    seen: Bools


@dataclass(frozen=True, eq=False)
class RackSummary:
    """Aligned with the inventory's racks. Margins are shares of the budget left, 1 to below 0."""

    load_w: Floats
    measured_w: Floats
    enforced_w: Floats
    budget_w: Floats
    power_margin: Floats
    hottest_c: Floats
    heat_margin_c: Floats
    heat_margin: Floats
    clock_ratio: Floats
    throttling: Ints
    gpus: Ints
    link_use: Floats
    age_s: Floats
    stale: Bools
    seen: Bools
    tightest: Floats
    tightest_dimension: Ints


@dataclass(frozen=True, eq=False)
class SiteSummary:
    """Aligned with the inventory's sites. ``hottest_rack`` is a rack's row, -1 where unknown."""

    load_w: Floats
    measured_w: Floats
    enforced_w: Floats
    budget_w: Floats
    hottest_rack: Ints
    throttling: Ints
    throttling_racks: Ints
    stale_nodes: Ints
    racks: Ints


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
    headroom_w: Floats


@dataclass(frozen=True, eq=False)
class FleetSummary:
    """The whole fleet at one moment."""

    gpus: GpuSummary
    nodes: NodeSummary
    racks: RackSummary
    sites: SiteSummary
    domains: DomainSummary


def summarize(
    fleet: FleetArrays,
    frame: LiveFrame,
    *,
    now: float,
    stale_after_s: float,
    hosts: HostCurves | None = None,
) -> FleetSummary:
    """Return what the fleet carries at ``now`` (Unix seconds)."""
    gpu = frame.fields("gpu", fleet.gpus.ids, *_GPU_FIELDS)
    gpus = _gpus(fleet, gpu, now, stale_after_s)
    nodes = _nodes(fleet, frame, gpu, gpus, hosts, now, stale_after_s)
    racks = _racks(fleet, frame, nodes, now, stale_after_s)
    return FleetSummary(
        gpus=gpus,
        nodes=nodes,
        racks=racks,
        sites=_sites(fleet, nodes, racks),
        domains=_domains(fleet, frame, racks, now, stale_after_s),
    )


def with_loads(
    summary: FleetSummary, *, nodes_w: Floats, racks_w: Floats, domains_w: Floats, sites_w: Floats
) -> FleetSummary:
    """Return ``summary`` with other loads, W, and with the margins that these leave."""
    racks, domains = summary.racks, summary.domains
    power_margin = _margin(racks_w, racks.budget_w)
    tightest, dimension = _tightest(power_margin, racks.heat_margin, racks.link_use)
    return replace(
        summary,
        nodes=replace(summary.nodes, load_w=nodes_w),
        racks=replace(
            racks,
            load_w=racks_w,
            power_margin=power_margin,
            tightest=tightest,
            tightest_dimension=dimension,
        ),
        domains=replace(domains, load_w=domains_w, headroom_w=domains.usable_w - domains_w),
        sites=replace(summary.sites, load_w=sites_w),
    )


def _tightest(power_margin: Floats, heat_margin: Floats, link_use: Floats) -> tuple[Floats, Ints]:
    """Return the least known of the margins of each rack, NaN where none is, and which it is."""
    margins = np.stack([power_margin, heat_margin, 1.0 - link_use])
    known = np.where(np.isnan(margins), np.inf, margins)
    tightest = known.min(axis=0)
    return np.where(np.isinf(tightest), np.nan, tightest), known.argmin(axis=0)


def _gpus(fleet: FleetArrays, gpu: dict[str, Any], now: float, stale_after_s: float) -> GpuSummary:
    fresh = _fresh(gpu["ts"], now, stale_after_s)
    rated_w = np.where(np.isnan(fleet.gpus.rated_w), UNRATED_GPU_W, fleet.gpus.rated_w)
    read = fresh & ~np.isnan(gpu["power_w"])
    return GpuSummary(
        # One that was over its rating when it fell silent is not taken to have come down.
        load_w=np.where(read, gpu["power_w"], np.fmax(rated_w, gpu["power_w"])),
        rated_w=rated_w,
        read=read,
        fresh=fresh,
        age_s=np.where(gpu["ts"] > 0, now - gpu["ts"], np.nan),
        temp_c=gpu["temp_c"],
        temp_mem_c=gpu["temp_mem_c"],
        slowdown_c=_slowdown_c(fleet, gpu),
        throttling=fresh & ((gpu["throttle"] & THROTTLE_BITS) != 0),
    )


def _nodes(
    fleet: FleetArrays,
    frame: LiveFrame,
    gpu: dict[str, Any],
    each: GpuSummary,
    hosts: HostCurves | None,
    now: float,
    stale_after_s: float,
) -> NodeSummary:
    count = len(fleet.nodes)
    node = fleet.gpus.node
    host = frame.fields("host", fleet.nodes.ids, "ts", "power_w", "cpu_power_w")
    host_fresh = _fresh(host["ts"], now, stale_after_s)
    gpu_fresh, gpu_read, rated_w = each.fresh, each.read, each.rated_w
    limit_w = np.where(np.isnan(gpu["power_limit_w"]), rated_w, gpu["power_limit_w"])
    host_rated_w = _host_rated(fleet)
    gpus_w = sum_by(each.load_w, node, count)
    host_w = _host_load(fleet, host, host_fresh, gpus_w, sum_by(rated_w, node, count), hosts)

    meter = _metered(fleet, frame, _ON_NODE, count, now, stale_after_s)
    meter_w, metered = meter.now_w, ~np.isnan(meter.now_w)
    load_w = np.where(metered, meter_w, np.fmax(gpus_w + host_w, meter.last_w))
    measured_w = np.where(metered, meter_w, _measured(gpu, gpu_read, host, host_fresh, node))

    gpus = _count(np.ones(len(node), dtype=bool), node, count)
    fresh_gpus = _count(gpu_fresh, node, count)
    heard_gpus = _count(gpu["ts"] > 0, node, count)
    heard = np.maximum(_most(gpu["ts"], node, count, 0.0), host["ts"])
    heard = np.maximum(heard, _meter_ts(fleet, frame, count))
    # A node is known when all its GPUs are; where none ever spoke, a meter or its host will do.
    all_gpus_fresh = (gpus > 0) & (fresh_gpus == gpus)
    stale = ~(all_gpus_fresh | ((heard_gpus == 0) & (metered | ((gpus == 0) & host_fresh))))
    margin_c = np.where(gpu_fresh, each.slowdown_c - gpu["temp_c"], np.nan)
    return NodeSummary(
        load_w=load_w,
        measured_w=measured_w,
        enforced_w=sum_by(limit_w, node, count) + host_rated_w,
        hottest_c=_most(np.where(gpu_fresh, gpu["temp_c"], np.nan), node, count),
        heat_margin_c=-_most(-margin_c, node, count),
        clock_ratio=_mean(
            np.where(gpu_fresh, ratio(gpu["sm_mhz"], fleet.gpus.sm_max_mhz), np.nan), node, count
        ),
        throttling=_count(each.throttling, node, count),
        gpus=gpus,
        age_s=np.where(heard > 0, now - heard, np.nan),
        stale=stale,
        seen=heard > 0,
    )


def _measured(
    gpu: dict[str, Any], gpu_read: Bools, host: dict[str, Any], host_fresh: Bools, node: Ints
) -> Floats:
    """The sum of what a node's GPUs and its host read now; NaN where none of them reads."""
    count = len(host_fresh)
    host_read = host_fresh & ~np.isnan(host["power_w"])
    gpus_w = sum_by(np.where(gpu_read, gpu["power_w"], 0.0), node, count)
    any_read = host_read | (_count(gpu_read, node, count) > 0)
    return np.where(any_read, gpus_w + np.where(host_read, host["power_w"], 0.0), np.nan)


def _host_load(
    fleet: FleetArrays,
    host: Any,
    fresh: Bools,
    gpus_w: Floats,
    gpus_rated_w: Floats,
    curves: HostCurves | None,
) -> Floats:
    """Everything in a node but its GPUs: as read, as fitted, or from idle to rated along with them.

    What was read last holds as the least once it is stale.
    """
    rated_w = _host_rated(fleet)
    idle_w = np.nan_to_num(fleet.nodes.host_idle_w)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(gpus_rated_w > 0, np.clip(gpus_w / gpus_rated_w, 0.0, 1.0), 1.0)
    assumed_w = idle_w + share * (rated_w - idle_w)
    if curves is not None:
        fitted_w = curves.idle_w + curves.share * gpus_w
        assumed_w = np.where(np.isnan(fitted_w), assumed_w, fitted_w)
    # The CPUs are a part of it: a reading of theirs can only raise what is assumed.
    assumed_w = np.fmax(assumed_w, host["cpu_power_w"])
    read = fresh & ~np.isnan(host["power_w"])
    load_w: Floats = np.where(read, host["power_w"], np.fmax(assumed_w, host["power_w"]))
    return load_w


def _host_rated(fleet: FleetArrays) -> Floats:
    """What a node may draw besides its GPUs; a node of no known model is not taken to draw none."""
    rated_w = fleet.nodes.host_rated_w
    return np.where(np.isnan(rated_w), UNRATED_HOST_W, rated_w)


def _slowdown_c(fleet: FleetArrays, gpu: Any) -> Floats:
    """The temperature at which clocks are cut: as the GPU says, else as its model is rated."""
    return np.where(np.isnan(gpu["temp_limit_c"]), fleet.gpus.slowdown_c, gpu["temp_limit_c"])


def _racks(
    fleet: FleetArrays, frame: LiveFrame, nodes: NodeSummary, now: float, stale_after_s: float
) -> RackSummary:
    count, rack = len(fleet.racks), fleet.nodes.rack
    meter = _metered(fleet, frame, _ON_RACK, count, now, stale_after_s)
    meter_w = meter.now_w
    nodes_w = sum_by(nodes.load_w, rack, count)
    stale = _count(nodes.stale, rack, count) > 0
    # A fresh rack meter is the truth of what is drawn, yet a silent node may start to draw again
    # at any moment: the larger of the two stands.
    load_w = np.where(np.isnan(meter_w) | stale, np.fmax(nodes_w, meter.last_w), meter_w)
    nodes_measured_w = sum_of_known_by(nodes.measured_w, rack, count)
    budget_w = fleet.racks.budget_w
    heat_margin_c = -_most(-nodes.heat_margin_c, rack, count)
    heat_margin = np.clip(heat_margin_c / FULL_HEAT_MARGIN_C, -1.0, 1.0)
    power_margin = _margin(load_w, budget_w)
    link_use = _link_use(fleet, frame, count, now, stale_after_s)
    tightest, dimension = _tightest(power_margin, heat_margin, link_use)
    weights = np.nan_to_num(nodes.clock_ratio) * nodes.gpus
    clocked = np.where(np.isnan(nodes.clock_ratio), 0, nodes.gpus)
    seen = (_count(nodes.seen, rack, count) > 0) | ~np.isnan(meter_w)
    return RackSummary(
        load_w=load_w,
        measured_w=np.where(np.isnan(meter_w), nodes_measured_w, meter_w),
        enforced_w=sum_by(nodes.enforced_w, rack, count),
        budget_w=budget_w,
        power_margin=power_margin,
        hottest_c=_most(nodes.hottest_c, rack, count),
        heat_margin_c=heat_margin_c,
        heat_margin=heat_margin,
        clock_ratio=ratio(sum_by(weights, rack, count), sum_by(clocked, rack, count)),
        throttling=sum_by(nodes.throttling, rack, count).astype(np.int64),
        gpus=sum_by(nodes.gpus, rack, count).astype(np.int64),
        link_use=link_use,
        age_s=_most(nodes.age_s, rack, count),
        stale=stale,
        seen=seen,
        tightest=tightest,
        tightest_dimension=dimension,
    )


def _link_use(
    fleet: FleetArrays, frame: LiveFrame, racks: int, now: float, stale_after_s: float
) -> Floats:
    """The busiest direction of the busiest link that starts in each rack, as share of capacity."""
    links = fleet.links
    record = frame.fields("link", links.ids, "ts", "tx_bytes_per_s", "rx_bytes_per_s")
    fresh = _fresh(record["ts"], now, stale_after_s)
    busiest = np.fmax(record["tx_bytes_per_s"], record["rx_bytes_per_s"]) * 8.0
    use = np.where(fresh, ratio(busiest, links.capacity_bits_per_s), np.nan)
    here = links.rack >= 0
    return _most(use[here], links.rack[here], racks)


def _sites(fleet: FleetArrays, nodes: NodeSummary, racks: RackSummary) -> SiteSummary:
    count, site = len(fleet.sites), fleet.racks.site
    node_site = site[fleet.nodes.rack]
    domains = fleet.domains
    is_root = domains.parent < 0
    roots_w = sum_by((domains.capacity_w * domains.derating)[is_root], domains.site[is_root], count)
    racks_w = sum_by(racks.budget_w, site, count)
    by_tree_w = np.where(roots_w > 0, roots_w, racks_w)
    return SiteSummary(
        load_w=sum_by(racks.load_w, site, count),
        measured_w=sum_of_known_by(racks.measured_w, site, count),
        enforced_w=sum_by(racks.enforced_w, site, count),
        budget_w=np.where(np.isnan(fleet.sites.budget_w), by_tree_w, fleet.sites.budget_w),
        hottest_rack=_row_of_most(racks.hottest_c, site, count),
        throttling=sum_by(racks.throttling, site, count).astype(np.int64),
        throttling_racks=_count(racks.throttling > 0, site, count),
        stale_nodes=_count(nodes.stale & nodes.seen, node_site, count),
        racks=_count(np.ones(len(site), dtype=bool), site, count),
    )


def _domains(
    fleet: FleetArrays, frame: LiveFrame, racks: RackSummary, now: float, stale_after_s: float
) -> DomainSummary:
    domains, count = fleet.domains, len(fleet.domains)
    meter = _metered(fleet, frame, _ON_DOMAIN, count, now, stale_after_s)
    fed_w = carried_w(fleet, racks.load_w)
    # What is fed may be stale and so assumed; what the meter reads is drawn for certain.
    load_w = np.fmax(fed_w, meter.last_w)
    usable_w = domains.capacity_w * domains.derating
    idle = meter.shown_w < _IDLE_SHARE * fed_w
    return DomainSummary(load_w, meter.now_w, idle, usable_w, usable_w - load_w)


def carried_w(fleet: FleetArrays, rack_w: Floats) -> Floats:
    """Return what every power domain carries of the loads of racks, W, with all feeds up.

    A rack on two feeds draws half of its load from each.
    """
    domains, count = fleet.domains, len(fleet.domains)
    load_w = np.zeros(count)
    a, b = fleet.racks.feed_a, fleet.racks.feed_b
    share = np.where((a >= 0) & (b >= 0), 0.5, 1.0)
    for feed in (a, b):
        fed = feed >= 0
        np.add.at(load_w, feed[fed], (share * rack_w)[fed])
    # Carry each domain's load up its branch, a level at a time: trees are a few levels deep.
    rising = load_w.copy()
    for _ in range(count):
        up = np.zeros(count)
        has_parent = domains.parent >= 0
        np.add.at(up, domains.parent[has_parent], rising[has_parent])
        if not up.any():
            break
        load_w += up
        rising = up
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


def _metered(
    fleet: FleetArrays, frame: LiveFrame, target_kind: int, count: int, now: float, stale_s: float
) -> _Metered:
    """Return what meters of one kind of target show.

    A reading at or below zero is a meter's fault, not a load: no rack feeds the grid.
    """
    meters = fleet.meters
    here = (meters.kind == _POWER_METER) & (meters.target_kind == target_kind)
    record = frame.fields("meter", meters.ids[here], "ts", "power_w")
    power_w, fresh = record["power_w"], _fresh(record["ts"], now, stale_s)
    target = meters.target[here]

    def told(known: Bools) -> tuple[Floats, Floats]:
        """Return the sums of what is known of each thing, at all and where all of it is fresh."""
        last_w = sum_of_known_by(np.where(known, power_w, np.nan), target, count)
        return last_w, np.where(_count(~(known & fresh), target, count) > 0, np.nan, last_w)

    last_w, now_w = told(power_w > 0)
    return _Metered(now_w, last_w, shown_w=told(power_w >= 0)[1])


def _meter_ts(fleet: FleetArrays, frame: LiveFrame, nodes: int) -> Floats:
    meters = fleet.meters
    here = meters.target_kind == _ON_NODE
    ts = frame.fields("meter", meters.ids[here], "ts")["ts"]
    return _most(ts, meters.target[here], nodes, 0.0)


def _fresh(ts: Floats, now: float, stale_after_s: float) -> Bools:
    fresh: Bools = is_fresh(ts, now, stale_after_s)
    return fresh


def _margin(load: Floats, budget: Floats) -> Floats:
    return 1.0 - ratio(load, budget)


def _count(flags: Bools, group: Ints, groups: int) -> Ints:
    return np.bincount(group[flags], minlength=groups)[:groups]


def _mean(values: Floats, group: Ints, groups: int) -> Floats:
    known = ~np.isnan(values)
    return ratio(
        sum_by(np.nan_to_num(values), group, groups),
        sum_by(known, group, groups).astype(np.float64),
    )


def _most(values: Floats, group: Ints, groups: int, empty: float = np.nan) -> Floats:
    """Return the largest known value of each group, or ``empty``."""
    found = most_by(values, group, groups)
    return np.where(np.isnan(found), empty, found)


def _row_of_most(values: Floats, group: Ints, groups: int) -> Ints:
    """Return the row that holds each group's largest known value, or -1."""
    out = np.full(groups, -1, dtype=np.int64)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    out[group[order]] = order
    return out
