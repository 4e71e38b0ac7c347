"""Time that GPUs spend on talking: transfers, collectives, and what they cost beside computation.

All times follow the alpha-beta model: a message takes a latency alpha, and its bytes divided by a
bandwidth B. Ranks send and receive at once. The arithmetic of a reduction, kernel launches,
congestion and shared links are left out: a measured bus bandwidth has them all.
``link_bytes_per_s`` is per direction.
"""

from physics.comm.collectives import (
    AllReduceTimes,
    algorithm_bandwidth_bytes_per_s,
    all_to_all_s,
    best_all_reduce,
    bus_bandwidth_bytes_per_s,
    double_tree_all_reduce_s,
    gradient_bytes,
    halving_doubling_all_reduce_s,
    hierarchical_all_reduce_s,
    ring_all_gather_s,
    ring_all_reduce_s,
    ring_broadcast_s,
    ring_reduce_scatter_s,
    ring_traffic_bytes,
    ring_traffic_factor,
    ring_tree_crossover_bytes,
    time_at_bus_bandwidth_s,
    tree_all_reduce_s,
)
from physics.comm.links import (
    FIBER_M_PER_S,
    bandwidth_ratio,
    fiber_latency_s,
    lanes_bytes_per_s,
    line_rate_bytes_per_s,
    links_bytes_per_s,
    transfer_s,
)
from physics.comm.ratio import (
    CommunicationRatio,
    RatioByModel,
    communication_ratio,
    exposed_communication_s,
    ratio_by_model,
)

__all__ = [
    "FIBER_M_PER_S",
    "AllReduceTimes",
    "CommunicationRatio",
    "RatioByModel",
    "algorithm_bandwidth_bytes_per_s",
    "all_to_all_s",
    "bandwidth_ratio",
    "best_all_reduce",
    "bus_bandwidth_bytes_per_s",
    "communication_ratio",
    "double_tree_all_reduce_s",
    "exposed_communication_s",
    "fiber_latency_s",
    "gradient_bytes",
    "halving_doubling_all_reduce_s",
    "hierarchical_all_reduce_s",
    "lanes_bytes_per_s",
    "line_rate_bytes_per_s",
    "links_bytes_per_s",
    "ratio_by_model",
    "ring_all_gather_s",
    "ring_all_reduce_s",
    "ring_broadcast_s",
    "ring_reduce_scatter_s",
    "ring_traffic_bytes",
    "ring_traffic_factor",
    "ring_tree_crossover_bytes",
    "time_at_bus_bandwidth_s",
    "transfer_s",
    "tree_all_reduce_s",
]
