"""The links of the inventory, and the throughput of a link that loses packets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.fleet import (
    WAN_BITS_PER_S,
    WAN_LATENCY_S,
    Fleet,
    spine_bits_per_s,
    uplink_bits_per_s,
    wan_pairs,
)

Array = NDArray[np.float64]
Indexes = NDArray[np.intp]

#: One way, without a queue.
UPLINK_LATENCY_S = 2e-6
SPINE_LATENCY_S = 5e-6
#: What is kept for control traffic, so that training cannot starve it: as the inventory says.
FABRIC_CONTROL_SHARE = 0.05
WAN_CONTROL_SHARE = 0.1

#: Payload of a packet: of RoCE and InfiniBand, and of TCP over jumbo frames.
FABRIC_PACKET_BYTES = 4096.0
TCP_SEGMENT_BYTES = 8948.0
#: Connections over which a gang, or a copy of a checkpoint, sends to another site.
WAN_STREAMS = 256
#: Constant of Mathis and others: periodic loss, each segment acknowledged.
_MATHIS = np.sqrt(1.5)


@dataclass(frozen=True)
class Links:
    """One value for each link, in the order of the inventory: uplinks by rack, spines by site, WAN.

    ``site`` is where a link starts; ``wan_peer`` the site where each WAN link ends.
    """

    names: list[str]
    site: Indexes
    capacity_bytes_per_s: Array
    base_latency_s: Array
    control_share: Array
    racks: int
    sites: int
    wan_peer: Indexes

    @property
    def wan_from(self) -> int:
        """Number of the first WAN link."""
        return self.racks + self.sites


def link_table(fleet: Fleet) -> Links:
    """Return the links of ``fleet``."""
    sites = {site: i for i, site in enumerate(fleet.sites)}
    pairs = wan_pairs(fleet)
    uplinks, spines, wans = len(fleet.racks), len(sites), len(pairs)
    bits_per_s = [
        *(uplink_bits_per_s(rack) for rack in fleet.racks),
        *(spine_bits_per_s(fleet.racks_of(site)) for site in fleet.sites),
        *(WAN_BITS_PER_S for _ in pairs),
    ]
    by_kind = [uplinks, spines, wans]
    return Links(
        names=[
            *(f"{rack.site}/{rack.name}/uplink" for rack in fleet.racks),
            *(f"{site}/spine" for site in fleet.sites),
            *(f"{site}/wan-{peer}" for site, peer in pairs),
        ],
        site=np.array(
            [*fleet.site_of_rack, *range(spines), *(sites[site] for site, _ in pairs)],
            dtype=np.intp,
        ),
        capacity_bytes_per_s=np.array(bits_per_s) / 8,
        base_latency_s=np.repeat([UPLINK_LATENCY_S, SPINE_LATENCY_S, WAN_LATENCY_S], by_kind),
        control_share=np.repeat(
            [FABRIC_CONTROL_SHARE, FABRIC_CONTROL_SHARE, WAN_CONTROL_SHARE], by_kind
        ),
        racks=uplinks,
        sites=spines,
        wan_peer=np.array([sites[peer] for _, peer in pairs], dtype=np.intp),
    )


def lossy_fabric_share(*, loss: Array, bytes_per_s: Array, round_trip_s: Array) -> Array:
    """Return the share of a fabric's rate under packet loss: ``(1-p) / (1 - p + p·W)``.

    RDMA adapters go back to the packet that was lost, and send all W that were under way after it
    once more. Valid for go-back-N with errors that come one by one. Source: Bertsekas and
    Gallager, Data Networks, 2.4.1.
    """
    window = np.maximum(bytes_per_s * round_trip_s / FABRIC_PACKET_BYTES, 1.0)
    share: Array = (1.0 - loss) / (1.0 - loss + loss * window)
    return share


def lossy_tcp_bytes_per_s(*, loss: Array, round_trip_s: Array, streams: int = WAN_STREAMS) -> Array:
    """Return the highest TCP throughput over a path that loses packets, of all streams together.

    ``MSS/RTT · √(3/2) / √p`` for each; without loss, no limit. Valid for losses up to some percent,
    where recovery goes without timeouts. Source: Mathis, Semke, Mahdavi and Ott 1997.
    """
    limit = np.full(np.shape(loss), np.inf)
    stream = TCP_SEGMENT_BYTES / round_trip_s * _MATHIS
    np.divide(streams * stream, np.sqrt(loss), out=limit, where=loss > 0.0)
    return limit
