"""Fleets and live frames as arrays, of any size, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleet.snapshot import (
    COOLING_KINDS,
    DOMAIN_KINDS,
    LINK_KINDS,
    METER_KINDS,
    METER_TARGETS,
    DomainTable,
    FleetArrays,
    GpuTable,
    LinkTable,
    MeterTable,
    ModelTable,
    NodeTable,
    RackTable,
    SiteTable,
    StorageTable,
    ZoneTable,
)
from telemetry.frame import KINDS, LiveFrame, never_seen

GPU_RATED_W, GPU_IDLE_W = 700.0, 70.0
HOST_RATED_W, HOST_IDLE_W = 4600.0, 1400.0
SLOWDOWN_C, SLOWDOWN_MEM_C, SHUTDOWN_C, SUPPLY_C = 87.0, 95.0, 92.0, 22.0
RACK_BUDGET_W = 44_000.0
#: Racks of a row: they share a cooling zone, and the two PDUs of a pair.
RACKS_PER_ROW = 4


def _texts(values: list[str]) -> Any:
    return np.array(values, dtype=np.object_)


def _full(count: int, value: float) -> Any:
    return np.full(count, value)


def make_arrays(
    *,
    sites: int = 1,
    racks: int = 4,
    nodes: int = 2,
    gpus: int = 8,
    budget_w: float = RACK_BUDGET_W,
    zone_w: float = RACKS_PER_ROW * RACK_BUDGET_W,
    pdu_w: float = RACKS_PER_ROW * RACK_BUDGET_W,
    derating: float = 1.0,
    rack_meters: bool = True,
    generation: int = 1,
) -> FleetArrays:
    """Return a fleet of ``racks`` a site, ``nodes`` a rack and ``gpus`` a node.

    Racks stand in rows of four. A row has a cooling zone, an A/B pair of PDUs under the site's pair
    of feeds under its utility, an uplink and a power meter for each rack, and a WAN link for each
    site. Ids are rows and one, so that no id is a row by accident.
    """
    rows = -(-racks // RACKS_PER_ROW)
    site_names = [f"s{i + 1}" for i in range(sites)]
    site_of_rack = np.repeat(np.arange(sites), racks)
    row_of_rack = np.tile(np.arange(racks) // RACKS_PER_ROW, sites)
    # By site: feed a, feed b, then PDUs a and b of each row, then the utility.
    per_site = 3 + 2 * rows
    base = site_of_rack * per_site
    domains = _domains(sites, rows, per_site, site_names, racks, budget_w, pdu_w, derating)
    count, node_count = sites * racks, sites * racks * nodes
    rack_names = [f"{_row(i // RACKS_PER_ROW)}{i % RACKS_PER_ROW + 1:02}" for i in range(racks)]
    rack_paths = [f"{site}/{name}" for site in site_names for name in rack_names]
    return FleetArrays(
        generation=generation,
        models=_models(),
        sites=SiteTable(_ids(sites), _texts(site_names), _full(sites, np.nan)),
        domains=domains,
        zones=_zones(sites, rows, site_names, zone_w),
        storage=StorageTable(
            ids=_ids(sites),
            names=_texts(["nvme"] * sites),
            site=np.arange(sites),
            paths=_texts([f"{site}/nvme" for site in site_names]),
            capacity_bytes_per_s=_full(sites, 2e11),
        ),
        racks=RackTable(
            ids=_ids(count),
            names=_texts(rack_names * sites),
            site=site_of_rack,
            paths=_texts(rack_paths),
            row=_texts([_row(i) for i in row_of_rack.tolist()]),
            position=np.tile(np.arange(racks) % RACKS_PER_ROW, sites),
            height_u=np.full(count, 48),
            budget_w=_full(count, budget_w),
            feed_a=base + 2 + 2 * row_of_rack,
            feed_b=base + 3 + 2 * row_of_rack,
            zone=site_of_rack * rows + row_of_rack,
        ),
        nodes=NodeTable(
            ids=_ids(node_count),
            names=_node_names(rack_paths, nodes),
            rack=np.repeat(np.arange(count), nodes),
            model=np.ones(node_count, dtype=np.int64),
            position_u=np.tile(1 + 8 * np.arange(nodes), count),
            height_u=np.full(node_count, 8),
            host_rated_w=_full(node_count, HOST_RATED_W),
            host_idle_w=_full(node_count, HOST_IDLE_W),
            storage=np.repeat(site_of_rack, nodes),
            switch_domain=_texts([""] * node_count),
        ),
        gpus=_gpus(node_count, gpus),
        links=_links(sites, racks, site_names, rack_paths),
        meters=_meters(rack_paths if rack_meters else []),
    )  # fmt: skip


def _ids(count: int) -> Any:
    return np.arange(count) + 1


def _node_names(rack_paths: list[str], nodes: int) -> Any:
    return _texts([f"{p.replace('/', '-')}-n{i + 1}" for p in rack_paths for i in range(nodes)])


def _row(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"{_row(index // 26 - 1)}{_row(index % 26)}"


def _models() -> ModelTable:
    nan = np.nan
    return ModelTable(
        ids=_ids(2),
        names=_texts(["H100", "host"]),
        rated_w=np.array([GPU_RATED_W, HOST_RATED_W]),
        idle_w=np.array([GPU_IDLE_W, HOST_IDLE_W]),
        slowdown_c=np.array([SLOWDOWN_C, nan]),
        slowdown_mem_c=np.array([SLOWDOWN_MEM_C, nan]),
        shutdown_c=np.array([SHUTDOWN_C, nan]),
        sm_max_mhz=np.array([1980.0, nan]),
    )


def _domains(
    sites: int,
    rows: int,
    per_site: int,
    names: list[str],
    racks: int,
    budget_w: float,
    pdu_w: float,
    derating: float,
) -> DomainTable:
    here = [
        "feed-a",
        "feed-b",
        *(f"pdu-{_row(r)}-{s}" for r in range(rows) for s in "ab"),
        "utility",
    ]
    kinds = ["feed", "feed", *["pdu"] * (2 * rows), "utility"]
    parent = [per_site - 1] * 2 + [0, 1] * rows + [-1]
    pair = [i ^ 1 for i in range(per_site - 1)] + [-1]
    feed_w = racks * budget_w
    capacity_w = [feed_w] * 2 + [pdu_w] * (2 * rows) + [feed_w]
    offset = np.repeat(np.arange(sites) * per_site, per_site)
    count = sites * per_site
    pairs, parents = np.tile(pair, sites), np.tile(parent, sites)
    return DomainTable(
        ids=_ids(count),
        names=_texts(here * sites),
        site=np.repeat(np.arange(sites), per_site),
        paths=_texts([f"{site}/{name}" for site in names for name in here]),
        kind=np.array([DOMAIN_KINDS.index(kind) for kind in kinds] * sites),
        parent=np.where(parents < 0, -1, parents + offset),
        capacity_w=np.tile(np.array(capacity_w, dtype=float), sites),
        derating=_full(count, derating),
        pair=np.where(pairs < 0, -1, pairs + offset),
        side=np.tile([0, 1] * (rows + 1) + [-1], sites),
    )  # fmt: skip


def _zones(sites: int, rows: int, names: list[str], zone_w: float) -> ZoneTable:
    zones = [f"zone-{_row(r)}" for r in range(rows)]
    count = sites * rows
    return ZoneTable(
        ids=_ids(count),
        names=_texts(zones * sites),
        site=np.repeat(np.arange(sites), rows),
        paths=_texts([f"{site}/{zone}" for site in names for zone in zones]),
        kind=np.full(count, COOLING_KINDS.index("rear-door")),
        capacity_w=_full(count, zone_w),
        supply_c=_full(count, SUPPLY_C),
    )


def _gpus(node_count: int, gpus: int) -> GpuTable:
    count = node_count * gpus
    return GpuTable(
        ids=_ids(count),
        node=np.repeat(np.arange(node_count), gpus),
        index=np.tile(np.arange(gpus), node_count),
        model=np.zeros(count, dtype=np.int64),
        rated_w=_full(count, GPU_RATED_W),
        idle_w=_full(count, GPU_IDLE_W),
        slowdown_c=_full(count, SLOWDOWN_C),
        slowdown_mem_c=_full(count, SLOWDOWN_MEM_C),
        shutdown_c=_full(count, SHUTDOWN_C),
        sm_max_mhz=_full(count, 1980.0),
    )


def _links(sites: int, racks: int, names: list[str], rack_paths: list[str]) -> LinkTable:
    """Uplinks by rack, then a WAN link of each site to the next."""
    count = sites * racks
    uplink, wan = LINK_KINDS.index("leaf-uplink"), LINK_KINDS.index("wan")
    return LinkTable(
        ids=_ids(count + sites),
        names=_texts([f"{path}/up" for path in rack_paths] + [f"{site}/wan" for site in names]),
        kind=np.array([uplink] * count + [wan] * sites),
        site=np.append(np.repeat(np.arange(sites), racks), np.arange(sites)),
        rack=np.append(np.arange(count), np.full(sites, -1)),
        node=np.full(count + sites, -1),
        peer_site=np.append(
            np.full(count, -1),
            (np.arange(sites) + 1) % sites if sites > 1 else np.full(sites, -1),
        ),
        capacity_bits_per_s=np.append(_full(count, 8e11), _full(sites, 1e11)),
        latency_s=np.append(_full(count, 2e-6), _full(sites, 8e-3)),
        control_share=np.append(_full(count, 0.0), _full(sites, 0.1)),
    )


def _meters(rack_paths: list[str]) -> MeterTable:
    count = len(rack_paths)
    return MeterTable(
        ids=_ids(count),
        names=_texts([f"{path}/pdu" for path in rack_paths]),
        kind=np.full(count, METER_KINDS.index("power")),
        target_kind=np.full(count, METER_TARGETS.index("rack")),
        target=np.arange(count),
    )


def make_frame(fleet: FleetArrays, *, now: float, **values: Mapping[str, Any]) -> LiveFrame:
    """Return a frame in which things of the kinds in ``values`` were all read at ``now``.

    ``values`` are a number for all of a kind or an array over the fleet's rows, by field:
    ``make_frame(fleet, now=T, gpu={"power_w": 400.0, "ts": ages})``.
    """
    ids = {
        "gpu": fleet.gpus.ids,
        "host": fleet.nodes.ids,
        "link": fleet.links.ids,
        "meter": fleet.meters.ids,
        "storage": fleet.nodes.ids,  # a mount for each node, with the node's id
    }
    arrays = {}
    for kind in KINDS:
        size = int(ids[kind].max(initial=0)) + 1
        arrays[kind] = never_seen(kind, size)
        for name, value in {"ts": now, **values[kind]}.items() if kind in values else ():
            arrays[kind][name][ids[kind]] = value
    return LiveFrame("1", arrays)
