"""The network between the GPUs of a gang, and the time of an all-reduce over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from physics.comm import hierarchical_all_reduce_s, ring_all_reduce_s

Array = NDArray[np.float64]
Indexes = NDArray[np.intp]

#: Between two GPUs of a node, and of two nodes at one leaf switch.
NODE_LATENCY_S = 1e-6
HEALTHY_RAIL_LATENCY_S = 5e-6
#: Less than this is nothing at all.
LEAST_BYTES_PER_S = 1.0
#: What a collective gets out of the NICs.
NIC_SHARE = 0.85


@dataclass(frozen=True)
class Speeds:
    """Rates at which gangs exchange data: one value for each slot.

    ``rail`` is what each GPU sends to other nodes of its site, ``wan`` what the gang sends to its
    part at another site: +inf where it has none, 0 where nothing gets through. ``wait_s`` is what
    a barrier of the whole gang waits for the latest packet, beyond the mean delay.
    """

    rail_bytes_per_s: Array
    rail_latency_s: Array
    wan_bytes_per_s: Array
    wan_latency_s: Array
    wait_s: Array


@dataclass(frozen=True)
class Paths:
    """Places of gangs and the rates that they get, by slot; slots without GPUs have 0 nodes.

    ``alone`` is what a gang would get in the same place on a healthy network without others.
    """

    gpus: Array
    nodes: Array
    racks: Array
    sites: Array
    #: Site whose storage the gang uses.
    site: Indexes
    node_bytes_per_s: Array
    now: Speeds
    alone: Speeds
    #: Share of packets that are lost on the worst link, inside of sites and between them.
    fabric_loss: Array
    wan_loss: Array
    #: What the gang can write to storage, all nodes together.
    storage_bytes_per_s: Array


def all_reduce_s(paths: Paths, speeds: Speeds, message_bytes: Array) -> Array:
    """Return the time of an all-reduce of ``message_bytes`` by each gang; +inf: it is cut off.

    Inside of each node, then across nodes over all rails, then, if the gang stands at several
    sites, across these, one behind the other (laws: ``physics.comm``). A gang whose GPUs do not
    divide by its nodes counts as one with as many in each as in the fullest.
    """
    there = paths.nodes > 0
    nodes = np.where(there, paths.nodes, 1.0)
    sites = np.where(there, paths.sites, 1.0)
    per_node = np.ceil(np.where(there, paths.gpus, 1.0) / nodes)
    apart, far = nodes > 1.0, sites > 1.0
    inside_s = hierarchical_all_reduce_s(
        ranks=per_node * np.ceil(nodes / sites),
        ranks_per_node=per_node,
        message_bytes=message_bytes,
        node_link_bytes_per_s=np.where(there, paths.node_bytes_per_s, 1.0),
        node_latency_s=NODE_LATENCY_S,
        rails=per_node,
        link_bytes_per_s=np.where(apart, speeds.rail_bytes_per_s, 1.0).clip(LEAST_BYTES_PER_S),
        latency_s=speeds.rail_latency_s,
    )
    across_s = ring_all_reduce_s(
        ranks=sites,
        message_bytes=message_bytes,
        link_bytes_per_s=np.where(far, speeds.wan_bytes_per_s, 1.0).clip(LEAST_BYTES_PER_S),
        latency_s=speeds.wan_latency_s,
    )
    taken_s = inside_s + across_s + np.where(apart, speeds.wait_s, 0.0)
    cut = (apart & (speeds.rail_bytes_per_s < LEAST_BYTES_PER_S)) | (
        far & (speeds.wan_bytes_per_s < LEAST_BYTES_PER_S)
    )
    return np.where(cut, np.inf, np.where(there, taken_s, 0.0))
