"""The fleet of the twin: its racks, nodes and GPUs, and their inventory document.

Rows come in kinds, dealt in turn, so that a heatmap of the fleet has a story: most racks have room,
some sit near their budget, one row is capped, one is badly cooled, and some hardware is older.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from lab.hardware import (
    A100,
    GPU_MODELS,
    H100,
    HGX_A100,
    HGX_H100,
    HOST_MODELS,
    L40S,
    L40S_HOST,
    GpuModel,
    HostModel,
)

GPUS_PER_NODE = 8
NODES_PER_RACK = 8
RACKS_PER_ROW = 4
ROWS_PER_SITE = 3
#: Two sites stay two until each holds this many racks; then sites are added.
MAX_RACKS_PER_SITE = 80
SITE_NAMES = (
    "oslo",
    "bergen",
    "trondheim",
    "stavanger",
    "tromso",
    "bodo",
    "narvik",
    "hamar",
    "molde",
    "arendal",
    "drammen",
    "gjovik",
    "halden",
    "harstad",
    "kristiansand",
    "larvik",
    "moss",
    "porsgrunn",
    "sandnes",
    "skien",
)

#: What a rack's own switches draw.
RACK_SWITCHES_W = 900.0
#: What the storage endpoint of a site takes.
STORAGE_BYTES_PER_S = 200e9

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RowKind:
    """The properties that the racks of one row share."""

    name: str
    gpu: GpuModel
    host: HostModel
    #: Power cap of the GPUs, and budget, of the racks of the row: by position, repeated.
    power_limits_w: tuple[float, ...]
    budgets_w: tuple[float, ...]
    cooling: str
    zone_capacity_w_per_rack: float
    supply_c: float
    #: Thermal resistance beside that of the GPU model in a good chassis.
    resistance_factor: float
    #: Share of the row's nodes that jobs may hold at once.
    occupancy: float
    #: Kinds of job and their weights, by name (see ``lab.training``).
    mix: tuple[tuple[str, float], ...]


COMFORTABLE = RowKind(
    name="comfortable",
    gpu=H100,
    host=HGX_H100,
    power_limits_w=(700.0,),
    budgets_w=(86_000.0,),
    cooling="rear-door",
    zone_capacity_w_per_rack=90_000.0,
    supply_c=22.0,
    resistance_factor=1.0,
    occupancy=0.8,
    mix=(("train", 0.5), ("finetune", 0.35), ("serve", 0.15)),
)
TIGHT = RowKind(
    name="tight",
    gpu=H100,
    host=HGX_H100,
    power_limits_w=(650.0, 700.0, 650.0, 650.0),
    budgets_w=(66_000.0, 62_000.0, 68_000.0, 72_000.0),
    cooling="rear-door",
    zone_capacity_w_per_rack=80_000.0,
    supply_c=22.0,
    resistance_factor=1.05,
    occupancy=1.0,
    mix=(("train", 1.0),),
)
CAPPED = RowKind(
    name="capped",
    gpu=H100,
    host=HGX_H100,
    power_limits_w=(500.0,),
    budgets_w=(62_000.0,),
    cooling="rear-door",
    zone_capacity_w_per_rack=70_000.0,
    supply_c=22.0,
    resistance_factor=1.05,
    occupancy=0.95,
    mix=(("train", 0.8), ("finetune", 0.2)),
)
HOT = RowKind(
    name="hot",
    gpu=H100,
    host=HGX_H100,
    power_limits_w=(700.0,),
    budgets_w=(80_000.0,),
    cooling="rear-door",
    zone_capacity_w_per_rack=56_000.0,
    supply_c=27.0,
    resistance_factor=1.25,
    occupancy=0.95,
    mix=(("train", 0.7), ("finetune", 0.3)),
)
OLDER = RowKind(
    name="older",
    gpu=A100,
    host=HGX_A100,
    power_limits_w=(400.0,),
    budgets_w=(52_000.0, 48_000.0),
    cooling="rear-door",
    zone_capacity_w_per_rack=55_000.0,
    supply_c=23.0,
    resistance_factor=1.0,
    occupancy=0.85,
    mix=(("train", 0.2), ("finetune", 0.5), ("evaluate", 0.3)),
)
SERVING = RowKind(
    name="serving",
    gpu=L40S,
    host=L40S_HOST,
    power_limits_w=(350.0,),
    budgets_w=(30_000.0,),
    cooling="air",
    zone_capacity_w_per_rack=30_000.0,
    supply_c=23.0,
    resistance_factor=1.0,
    occupancy=0.9,
    mix=(("serve", 0.7), ("evaluate", 0.3)),
)
ROW_KINDS = (COMFORTABLE, TIGHT, CAPPED, HOT, OLDER, SERVING)
#: Racks that are for the queue, by kind of row: positions. The others keep their own jobs, so that
#: the heatmap keeps its story. In the older and serving ones, the last node or two of a full rack
#: would be too much for its budget.
QUEUE_RACKS = {"comfortable": (1, 2, 3), "older": (0, 2), "serving": (3,)}


@dataclass(frozen=True, kw_only=True)
class Rack:
    """One rack and how many nodes it holds."""

    site: str
    row: str
    position: int
    kind: RowKind
    nodes: int

    @property
    def name(self) -> str:
        """Name within its site, such as ``A01``."""
        return f"{self.row}{self.position + 1:02d}"

    @property
    def zone(self) -> str:
        return f"zone-{self.row.lower()}"

    @property
    def budget_w(self) -> float:
        """The power budget of the rack, W."""
        return self.kind.budgets_w[self.position % len(self.kind.budgets_w)]

    @property
    def power_limit_w(self) -> float:
        """Power cap of each GPU."""
        return self.kind.power_limits_w[self.position % len(self.kind.power_limits_w)]

    def pdu(self, side: str) -> str:
        """The row's PDU on side ``a`` or ``b``."""
        return f"pdu-{self.row.lower()}-{side}"

    def node_names(self) -> list[str]:
        prefix = f"{self.site}-{self.name.lower()}-n"
        return [f"{prefix}{i + 1}" for i in range(self.nodes)]


@dataclass(frozen=True)
class Fleet:
    """The racks in order: by site, row, position. Nodes and GPUs follow that order."""

    racks: tuple[Rack, ...]
    #: What stands above racks may draw, over what all racks on it may: below 1 not all racks can
    #: draw their budgets at once.
    feed_share: float = 1.0

    @cached_property
    def sites(self) -> list[str]:
        return list(dict.fromkeys(rack.site for rack in self.racks))

    @cached_property
    def rows(self) -> list[tuple[str, str]]:
        """Site and row of every row, in order. Each row is one cooling zone and one PDU pair."""
        return list(dict.fromkeys((rack.site, rack.row) for rack in self.racks))

    @cached_property
    def nodes(self) -> list[str]:
        return [name for rack in self.racks for name in rack.node_names()]

    @property
    def gpu_count(self) -> int:
        return len(self.nodes) * GPUS_PER_NODE

    @cached_property
    def rack_of_node(self) -> NDArray[np.intp]:
        return np.repeat(np.arange(len(self.racks)), [rack.nodes for rack in self.racks])

    @cached_property
    def row_of_rack(self) -> NDArray[np.intp]:
        index = {row: i for i, row in enumerate(self.rows)}
        return np.array([index[rack.site, rack.row] for rack in self.racks], dtype=np.intp)

    @cached_property
    def site_of_rack(self) -> NDArray[np.intp]:
        index = {site: i for i, site in enumerate(self.sites)}
        return np.array([index[rack.site] for rack in self.racks], dtype=np.intp)

    def racks_of(self, site: str) -> list[Rack]:
        return [rack for rack in self.racks if rack.site == site]


def make_fleet(*, gpus: int) -> Fleet:
    """Return a fleet of ``gpus`` GPUs, rounded up to whole nodes of 8."""
    if gpus < 1:
        raise ValueError(f"gpus must be at least 1, not {gpus}")
    nodes = -(-gpus // GPUS_PER_NODE)
    racks = -(-nodes // NODES_PER_RACK)
    sites = min(max(2, -(-racks // MAX_RACKS_PER_SITE)), racks, len(SITE_NAMES))
    made: list[Rack] = []
    for site in range(sites):
        # The first sites get one rack more where the racks do not divide evenly.
        here = racks // sites + (site < racks % sites)
        for at in range(here):
            row, position = divmod(at, RACKS_PER_ROW)
            made.append(
                Rack(
                    site=SITE_NAMES[site],
                    row=_row_name(row),
                    position=position,
                    kind=ROW_KINDS[(site * ROWS_PER_SITE + row) % len(ROW_KINDS)],
                    nodes=min(NODES_PER_RACK, nodes - len(made) * NODES_PER_RACK),
                )
            )
    return Fleet(tuple(made))


def queue_nodes(fleet: Fleet) -> NDArray[np.bool_]:
    """Say of each node whether it is for the queue: about a quarter of them.

    Whole racks; of a fleet that has none of these, the last nodes of each rack.
    """
    whole = [rack.position in QUEUE_RACKS.get(rack.kind.name, ()) for rack in fleet.racks]
    if not any(whole):
        shares = [np.arange(rack.nodes) >= rack.nodes - rack.nodes // 4 for rack in fleet.racks]
        return np.concatenate(shares)
    return np.array(whole, dtype=np.bool_)[fleet.rack_of_node]


def make_load_fleet(*, gpus: int, site: str = "load") -> Fleet:
    """Return a fleet of one site and one kind of rack, for load tests."""
    if gpus < 1:
        raise ValueError(f"gpus must be at least 1, not {gpus}")
    nodes = -(-gpus // GPUS_PER_NODE)
    racks = [
        Rack(
            site=site,
            row=_row_name(at // RACKS_PER_ROW),
            position=at % RACKS_PER_ROW,
            kind=COMFORTABLE,
            nodes=min(NODES_PER_RACK, nodes - at * NODES_PER_RACK),
        )
        for at in range(-(-nodes // NODES_PER_RACK))
    ]
    return Fleet(tuple(racks))


def make_even_fleet(
    *,
    gpus: int,
    sites: int = 1,
    power_share: float = 1.0,
    feed_share: float = 1.0,
    cooling_share: float = 1.05,
    kind: RowKind = COMFORTABLE,
    nodes_per_rack: int = NODES_PER_RACK,
) -> Fleet:
    """Return a fleet of one kind of rack, spread evenly over ``sites``.

    ``power_share``: the budget of a rack over what its nodes may draw at most, all GPUs at their
    power limit. ``feed_share``: what feeds, PDUs and sites may draw over what their racks may.
    ``cooling_share``: the capacity of a cooling zone over the budgets of its racks.
    """
    shares = {
        "power_share": power_share, "feed_share": feed_share, "cooling_share": cooling_share,
    }  # fmt: skip
    for name, share in shares.items():
        if not share > 0.0:
            raise ValueError(f"{name} must be above 0, not {share}")
    if gpus < 1 or nodes_per_rack < 1:
        raise ValueError(f"gpus and nodes_per_rack must be at least 1: {gpus}, {nodes_per_rack}")
    nodes = -(-gpus // GPUS_PER_NODE)
    if not 1 <= sites <= min(len(SITE_NAMES), nodes):
        most = min(len(SITE_NAMES), nodes)
        raise ValueError(f"sites must be 1 to {most} for {nodes} nodes, not {sites}")
    racks: list[Rack] = []
    for site in range(sites):
        # The first sites get one node more where the nodes do not divide evenly.
        left = nodes // sites + (site < nodes % sites)
        for at in range(-(-left // nodes_per_rack)):
            here = min(nodes_per_rack, left - at * nodes_per_rack)
            row, position = divmod(at, RACKS_PER_ROW)
            racks.append(
                Rack(
                    site=SITE_NAMES[site],
                    row=_row_name(row),
                    position=position,
                    kind=_even_kind(kind, here, power_share, cooling_share),
                    nodes=here,
                )
            )
    return Fleet(tuple(racks), feed_share)


def _even_kind(kind: RowKind, nodes: int, power_share: float, cooling_share: float) -> RowKind:
    gpu_w = min(kind.gpu.rated_w, kind.power_limits_w[0])
    full_w = nodes * (GPUS_PER_NODE * gpu_w + kind.host.rated_w) + RACK_SWITCHES_W
    budget_w = round(power_share * full_w, -1)
    return replace(
        kind,
        power_limits_w=(gpu_w,),
        budgets_w=(budget_w,),
        zone_capacity_w_per_rack=cooling_share * budget_w,
    )


def _row_name(index: int) -> str:
    """A, B, …, Z, AA, AB, …"""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


def inventory(fleet: Fleet, *, networked: bool = True) -> Document:
    """Return the inventory document of ``fleet``; without links and meters if not ``networked``."""
    used_gpus = {rack.kind.gpu.name for rack in fleet.racks}
    used_hosts = {rack.kind.host.name for rack in fleet.racks}
    document: Document = {
        "hardware_models": [
            *(_gpu_entry(model) for model in GPU_MODELS if model.name in used_gpus),
            *(_host_entry(model) for model in HOST_MODELS if model.name in used_hosts),
        ],
        "sites": [_site_entry(fleet, site) for site in fleet.sites],
    }
    if networked:
        document["links"] = list(_links(fleet))
        document["meters"] = list(_meters(fleet))
    return document


def inventory_yaml(fleet: Fleet, *, networked: bool = True) -> str:
    """Return :func:`inventory` as YAML."""
    # The C emitter: ten thousand nodes take minutes with the Python one.
    text: str = yaml.dump(
        inventory(fleet, networked=networked), Dumper=yaml.CSafeDumper, sort_keys=False
    )
    return text


def _gpu_entry(model: GpuModel) -> Document:
    entry = {
        "name": model.name,
        "kind": "gpu",
        "vendor": "NVIDIA",
        "rated_w": model.rated_w,
        "idle_w": model.idle_w,
        "slowdown_c": model.slowdown_c,
        "slowdown_mem_c": model.slowdown_mem_c,
        "shutdown_c": model.shutdown_c,
        "sm_max_mhz": model.sm_max_mhz,
        "mem_bytes": model.mem_bytes,
    }
    return {key: value for key, value in entry.items() if value is not None}


def _host_entry(model: HostModel) -> Document:
    return {"name": model.name, "kind": "node", "rated_w": model.rated_w, "idle_w": model.idle_w}


def _site_entry(fleet: Fleet, site: str) -> Document:
    racks, share = fleet.racks_of(site), fleet.feed_share
    budget_w = share * sum(rack.budget_w for rack in racks)
    rows = [(row, list(group)) for row, group in groupby(racks, key=lambda rack: rack.row)]
    return {
        "name": site,
        "budget_w": round(budget_w, -3),
        "time_zone": "Europe/Oslo",
        "power_domains": list(_power_domains(budget_w, rows, share)),
        "cooling_zones": [_zone_entry(row_racks) for _, row_racks in rows],
        "storage_endpoints": [{"name": "nvme-1", "capacity_bytes_per_s": STORAGE_BYTES_PER_S}],
        "racks": [_rack_entry(rack) for rack in racks],
    }


def _power_domains(
    site_budget_w: float, rows: list[tuple[str, list[Rack]]], share: float
) -> Iterator[Document]:
    """Utility, feeds A and B below it, and below each feed one PDU for each row.

    Either side of a pair carries the whole load when the other fails.
    """
    derating = 0.8
    yield {
        "name": "utility",
        "kind": "utility",
        "capacity_w": round(1.1 * site_budget_w / derating, -4),
        "derating": derating,
    }
    for side in "ab":
        yield {
            "name": f"feed-{side}",
            "kind": "feed",
            "parent": "utility",
            "capacity_w": round(1.02 * site_budget_w / derating, -4),
            "derating": derating,
            "pair": "feed",
            "side": side.upper(),
        }
    for row, racks in rows:
        row_budget_w = share * sum(rack.budget_w for rack in racks)
        for side in "ab":
            yield {
                "name": racks[0].pdu(side),
                "kind": "pdu",
                "parent": f"feed-{side}",
                "capacity_w": round(1.05 * row_budget_w / derating, -3),
                "derating": derating,
                "pair": f"pdu-{row.lower()}",
                "side": side.upper(),
            }


def _zone_entry(racks: list[Rack]) -> Document:
    kind = racks[0].kind
    return {
        "name": racks[0].zone,
        "kind": kind.cooling,
        "capacity_w": kind.zone_capacity_w_per_rack * len(racks),
        "supply_c": kind.supply_c,
    }


def _rack_entry(rack: Rack) -> Document:
    return {
        "name": rack.name,
        "row": rack.row,
        "position": rack.position,
        "height_u": 52,
        "budget_w": rack.budget_w,
        "feed_a": rack.pdu("a"),
        "feed_b": rack.pdu("b"),
        "cooling_zone": rack.zone,
        "nodes": [_node_entry(rack, i, name) for i, name in enumerate(rack.node_names())],
    }


def _node_entry(rack: Rack, index: int, name: str) -> Document:
    host = rack.kind.host
    return {
        "name": name,
        "model": host.name,
        "position_u": 1 + index * host.height_u,
        "height_u": host.height_u,
        "switch_domain": f"leaf-{rack.name.lower()}",
        "storage_endpoint": "nvme-1",
        "labels": {"pool": rack.kind.name},
        "gpus": {"model": rack.kind.gpu.name, "count": GPUS_PER_NODE},
    }


def uplink_bits_per_s(rack: Rack) -> float:
    """Capacity of a rack's leaf uplinks, for each direction: half of its NICs' bandwidth."""
    return rack.nodes * GPUS_PER_NODE * rack.kind.gpu.nic_bytes_per_s * 8 / 2


def spine_bits_per_s(racks: list[Rack]) -> float:
    """Capacity of a site's spine, for each direction: half of its racks' uplinks."""
    return sum(uplink_bits_per_s(rack) for rack in racks) / 2


WAN_BITS_PER_S = 400e9
WAN_LATENCY_S = 0.0042


def wan_pairs(fleet: Fleet) -> list[tuple[str, str]]:
    """Site and peer of every WAN link: a ring over the sites, each direction reported by its start.

    Two sites have one link each to the other; one site has none.
    """
    sites = fleet.sites
    if len(sites) < 2:
        return []
    return [(site, sites[(i + 1) % len(sites)]) for i, site in enumerate(sites)]


def _links(fleet: Fleet) -> Iterator[Document]:
    for rack in fleet.racks:
        yield {
            "name": f"{rack.site}/{rack.name}/uplink",
            "kind": "leaf-uplink",
            "site": rack.site,
            "rack": rack.name,
            "capacity_bits_per_s": uplink_bits_per_s(rack),
            "latency_s": 2e-6,
            "control_share": 0.05,
        }
    for site in fleet.sites:
        yield {
            "name": f"{site}/spine",
            "kind": "spine",
            "site": site,
            "capacity_bits_per_s": spine_bits_per_s(fleet.racks_of(site)),
            "latency_s": 5e-6,
            "control_share": 0.05,
        }
    for site, peer in wan_pairs(fleet):
        yield {
            "name": f"{site}/wan-{peer}",
            "kind": "wan",
            "site": site,
            "peer_site": peer,
            "capacity_bits_per_s": WAN_BITS_PER_S,
            "latency_s": WAN_LATENCY_S,
            "control_share": 0.1,
        }


def _meters(fleet: Fleet) -> Iterator[Document]:
    for site in fleet.sites:
        for domain in ("utility", "feed-a", "feed-b"):
            yield _meter(site, domain, power_domain=domain)
    for site, row in fleet.rows:
        for side in "ab":
            domain = f"pdu-{row.lower()}-{side}"
            yield _meter(site, domain, power_domain=domain)
        zone = f"zone-{row.lower()}"
        yield {**_meter(site, zone, cooling_zone=zone), "kind": "temperature"}
    for rack in fleet.racks:
        yield _meter(rack.site, rack.name, rack=rack.name)


def _meter(site: str, name: str, **target: str) -> Document:
    return {"name": f"{site}/{name}", "kind": "power", "site": site, **target}
