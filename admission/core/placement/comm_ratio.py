"""The ratio of communication to computing of a placement, with the model behind it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from admission.core.placement.topology import Ints, Topology
from admission.core.request import Placement, Request
from fleet.tables import LINK_KINDS
from physics.comm import communication_ratio, ring_all_reduce_s
from policies.headroom.binding import quantity

__all__ = ["CommRatio", "comm_ratio", "crossed_by"]

_NVLINK, _RAIL, _UPLINK, _SPINE, _WAN = (
    LINK_KINDS.index(kind) for kind in ("nvlink", "rail", "leaf-uplink", "spine", "wan")
)


@dataclass(frozen=True)
class CommRatio:
    """Time of one all-reduce over that of the computing of a step, and the model that gave it.

    ``warning`` is empty unless the ratio is above 1.
    """

    ratio: float
    model: str
    warning: str = ""


@dataclass(frozen=True)
class _Narrowest:
    """The link that a ring goes through with the least capacity."""

    name: str
    bits_per_s: float
    latency_s: float


def comm_ratio(
    topology: Topology, placement: Placement, request: Request, speed: float
) -> CommRatio | None:
    """Return the ratio of a gang at ``speed`` (a share of full speed); None where it is not known.

    A ring all-reduce over all GPUs goes through each link between their parts once in each
    direction, so the narrowest one sets its pace. What else the links carry is left out.
    """
    if not request.collective_bytes_per_step or not request.step_s or len(placement.gpus) < 2:
        return None
    narrowest = _narrowest(topology, placement)
    if narrowest is None:
        return None
    communication_s = ring_all_reduce_s(
        ranks=len(placement.gpus),
        message_bytes=request.collective_bytes_per_step,
        link_bytes_per_s=narrowest.bits_per_s / 8.0,
        latency_s=narrowest.latency_s,
    )
    found = communication_ratio(
        communication_s=communication_s, compute_s=request.step_s / max(speed, 1e-9), model="ring"
    )
    ratio = float(found.ratio)
    where = f"{narrowest.name} ({quantity(narrowest.bits_per_s, 'bit/s')})"
    warning = ""
    if ratio > 1.0:
        warning = (
            f"communication takes {ratio:.1f} times as long as computing (ring all-reduce through"
            f" {where}): GPUs will wait for the network"
        )
    return CommRatio(ratio, f"ring through {where}", warning)


def _narrowest(topology: Topology, placement: Placement) -> _Narrowest | None:
    crossed = crossed_by(topology, placement)
    if not len(crossed):
        return None
    links = topology.fleet.links
    row = int(crossed[np.argmin(links.capacity_bits_per_s[crossed])])
    latency_s = np.nan_to_num(links.latency_s[crossed]).max()
    return _Narrowest(
        str(links.names[row]), float(links.capacity_bits_per_s[row]), float(latency_s)
    )


def crossed_by(topology: Topology, placement: Placement, among: Ints | None = None) -> Ints:
    """Return the rows of links between the parts of a gang, as far as the inventory has them.

    ``among`` are the rows of the links that are looked at; None: all.
    """
    fleet, links = topology.fleet, topology.fleet.links
    rows = np.arange(len(links)) if among is None else among
    kind = links.kind[rows]
    nodes = np.asarray(placement.nodes)
    racks = np.unique(fleet.nodes.rack[nodes])
    sites = np.unique(fleet.racks.site[racks])
    on_node, on_rack = np.isin(links.node[rows], nodes), np.isin(links.rack[rows], racks)
    if len(nodes) == 1:
        return np.asarray(rows[(kind == _NVLINK) & on_node])
    crossed = (kind == _RAIL) & on_node
    if len(racks) > 1:
        crossed |= (kind == _UPLINK) & on_rack
    if len(set(topology.switch_domain[nodes].tolist())) > 1:
        crossed |= (kind == _SPINE) & np.isin(links.site[rows], sites)
    for here, there in itertools.pairwise(sites.tolist()):
        crossed |= np.isin(rows, topology.wan_paths.get((here, there), ()))
    return np.asarray(rows[crossed & (links.capacity_bits_per_s[rows] > 0)])
