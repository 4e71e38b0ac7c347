"""What a gang sends over the links of the network: data over the WAN, and its collectives. Pure.

Collectives are taken for a ring over all of its GPUs, as in the ratio of communication to
computing: the ring leaves each rack, each switch domain and each site of the gang once and comes
back once, so that each direction of what leads there carries what one rank sends. Links that lead
to the same place side by side share it by their capacity.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from admission.core.placement.topology import Ints, Topology
from admission.core.request import Request
from fleet.tables import LINK_KINDS
from physics.comm import ring_all_reduce_s

__all__ = ["collective_flows", "collectives_bits_per_s", "data_flows", "is_within"]

_UPLINK, _SPINE = LINK_KINDS.index("leaf-uplink"), LINK_KINDS.index("spine")
#: Of what jobs may use of a link, at most so much is reserved for one gang. One that the link makes
#: wait takes all that it gets, whatever is reserved; it would else start on a link without any
#: other traffic alone, which there is none of.
MOST_OF_LINK = 0.5


def data_flows(topology: Topology, sites: Sequence[str], request: Request) -> dict[int, float]:
    """Return the traffic of the data of a gang at ``sites`` on WAN links, bit/s by row.

    Raises KeyError where its data cannot reach one of them.
    """
    found: dict[int, float] = {}
    if not request.data_site or request.cross_site_bits_per_s <= 0.0:
        return found
    row_of = topology.fleet.sites.index_by_name
    for site in sites:
        if site != request.data_site:
            for row in topology.wan_paths[row_of[request.data_site], row_of[site]]:
                found[row] = found.get(row, 0.0) + request.cross_site_bits_per_s
    return found


def collectives_bits_per_s(request: Request, gpus: int) -> float:
    """Return what each rank of so many GPUs sends for its collectives on average, bit/s."""
    if not request.collective_bytes_per_step or not request.step_s or gpus < 2:
        return 0.0
    # At a byte a second, and without latency, a ring takes as many seconds as it sends bytes.
    sent_bytes = ring_all_reduce_s(
        ranks=gpus,
        message_bytes=request.collective_bytes_per_step,
        link_bytes_per_s=1.0,
        latency_s=0.0,
    )
    return 8.0 * float(sent_bytes) / request.step_s


def collective_flows(
    topology: Topology, nodes: Ints, gpus: int, request: Request
) -> dict[int, float]:
    """Return the traffic of a gang's collectives on leaf uplinks, spines and WAN, bit/s by row.

    ``nodes`` are rows of the inventory. Of no link it is more than ``MOST_OF_LINK`` of what jobs
    may use.
    """
    rate = collectives_bits_per_s(request, gpus)
    if not rate or is_within(topology, nodes):
        return {}
    links, found = topology.fleet.links, dict[int, float]()
    for rows, crossings in _crossings(topology, nodes):
        capacity = links.capacity_bits_per_s[rows]
        most = MOST_OF_LINK * capacity * (1.0 - links.control_share[rows])
        # Whole bits: sums of these are exact, so that what is freed leaves links as they were.
        carried = np.ceil(np.minimum(rate * crossings * capacity / capacity.sum(), most))
        for row, bits in zip(rows.tolist(), carried.tolist(), strict=True):
            found[row] = found.get(row, 0.0) + bits
    return found


def is_within(topology: Topology, nodes: Ints) -> bool:
    """Say whether a gang leaves no rack."""
    racks = topology.fleet.nodes.rack[nodes]
    return bool((racks == racks[0]).all())


def _crossings(topology: Topology, nodes: Ints) -> Iterator[tuple[Ints, int]]:
    """Yield links that lead side by side, and how often the ring passes them in each direction."""
    fleet, links = topology.fleet, topology.fleet.links
    has_capacity = links.capacity_bits_per_s > 0
    racks = np.unique(fleet.nodes.rack[nodes])
    uplinks = (links.kind == _UPLINK) & has_capacity
    for rack in racks.tolist():
        yield from _some(np.flatnonzero(uplinks & (links.rack == rack)), 1)
    node_site = topology.node_site[nodes]
    sites = np.unique(node_site)
    for site in sites.tolist():
        domains = len(set(topology.switch_domain[nodes[node_site == site]].tolist()))
        if domains > 1 or len(sites) > 1:
            spines = (links.kind == _SPINE) & (links.site == site) & has_capacity
            yield from _some(np.flatnonzero(spines), domains)
    around = list(itertools.pairwise(sites.tolist()))
    if len(sites) > 2:
        around.append((int(sites[-1]), int(sites[0])))
    for here, there in around:
        for row in topology.wan_paths.get((here, there), ()):
            if has_capacity[row]:
                yield np.array([row]), 1


def _some(rows: Ints, crossings: int) -> Iterator[tuple[Ints, int]]:
    if len(rows):
        yield rows, crossings
