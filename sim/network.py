"""Traffic on the twin's links, from what its jobs do.

Within a node GPUs talk over NVLink; a gang over several nodes talks through its racks' uplinks and
the spine; checkpoints are copied to the next site over the WAN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.fleet import (
    GPUS_PER_NODE,
    WAN_BITS_PER_S,
    WAN_LATENCY_S,
    spine_bits_per_s,
    uplink_bits_per_s,
    wan_pairs,
)
from sim.state import Twin

Array = NDArray[np.float64]

#: Share of its NICs that a gang over several nodes uses: communicating, and computing.
BUSY_SHARE = 0.85
QUIET_SHARE = 0.25
#: Share of a gang's traffic that leaves the rack: most when it spans racks, else storage only.
LEAVES_SHARE = 0.4
STORAGE_SHARE = 0.05
#: Of what enters a rack's uplink, this much crosses the spine.
SPINE_SHARE = 0.4
WAN_BACKGROUND_BYTES_PER_S = 3e9
WAN_CHECKPOINT_BYTES_PER_NODE_S = 0.5e9
#: Counters are read as rates over about this long.
SMOOTHING_S = 8.0
WAN_LOSS_PER_S = 0.4
ERRORS_PER_LINK_S = 1e-5


@dataclass(frozen=True)
class LinkState:
    """One value for each link, in the order of the inventory: uplinks, spines, WAN."""

    names: list[str]
    site: NDArray[np.intp]
    capacity_bytes_per_s: Array
    base_latency_s: Array


class Network:
    """The links of the fleet of ``twin``. :meth:`advance` is to follow each step of the twin."""

    def __init__(self, twin: Twin, *, seed: int) -> None:
        fleet = twin.fleet
        self._twin = twin
        self._rng = np.random.default_rng([seed, 1])
        sites = {site: i for i, site in enumerate(fleet.sites)}
        pairs = wan_pairs(fleet)
        uplinks, spines = len(fleet.racks), len(fleet.sites)
        self.links = LinkState(
            names=[
                *(f"{rack.site}/{rack.name}/uplink" for rack in fleet.racks),
                *(f"{site}/spine" for site in fleet.sites),
                *(f"{site}/wan-{peer}" for site, peer in pairs),
            ],
            site=np.array(
                [*fleet.site_of_rack, *range(spines), *(sites[site] for site, _ in pairs)],
                dtype=np.intp,
            ),
            capacity_bytes_per_s=np.array(
                [
                    *(uplink_bits_per_s(rack) for rack in fleet.racks),
                    *(spine_bits_per_s(fleet.racks_of(site)) for site in fleet.sites),
                    *(WAN_BITS_PER_S for _ in pairs),
                ]
            )
            / 8,
            base_latency_s=np.array(
                [2e-6] * uplinks + [5e-6] * spines + [WAN_LATENCY_S] * len(pairs)
            ),
        )
        count = len(self.links.names)
        self._wan_from = uplinks + spines
        self._wan_peer = np.array([sites[peer] for _, peer in pairs], dtype=np.intp)
        self.tx_bytes_per_s = np.zeros(count)
        self.rx_bytes_per_s = np.zeros(count)
        self.retransmits_per_s = np.zeros(count)
        self.errors = np.zeros(count, dtype=np.int64)

    @property
    def latency_s(self) -> Array:
        """One-way latency: it grows as a queue does when the link fills."""
        use = np.maximum(self.tx_bytes_per_s, self.rx_bytes_per_s)
        share = (use / self.links.capacity_bytes_per_s).clip(0.0, 0.98)
        latency: Array = self.links.base_latency_s * (1.0 + 0.1 * share / (1.0 - share))
        return latency

    def gpu_bytes_per_s(self) -> Array:
        """What each GPU sends to other nodes."""
        twin = self._twin
        load, job = twin.load, twin.job_of_gpu
        share = np.where(load.communicating, BUSY_SHARE, QUIET_SHARE) * twin.workload.spans
        sent: Array = share[job] * twin.activity.clip(0.0, 1.0) * twin.parts.nic_bytes_per_s
        return sent

    def advance(self, dt_s: float) -> None:
        """Take the twin's present traffic into the rates, ``dt_s`` after the last time."""
        sent = self._offered()
        wobble = self._rng.normal(1.0, 0.03, (2, len(sent))).clip(0.8, 1.2)
        capacity = self.links.capacity_bytes_per_s
        keep = np.exp(-dt_s / SMOOTHING_S)
        for rate, offered in (
            (self.tx_bytes_per_s, sent * wobble[0]),
            (self.rx_bytes_per_s, self._received(sent) * wobble[1]),
        ):
            rate *= keep
            rate += (1.0 - keep) * np.minimum(offered, capacity)
        wan = slice(self._wan_from, None)
        use = self.tx_bytes_per_s[wan] / capacity[wan]
        self.retransmits_per_s[wan] = WAN_LOSS_PER_S * (1.0 + 20.0 * use**4)
        self.errors += self._rng.poisson(ERRORS_PER_LINK_S * dt_s, len(sent))

    def _offered(self) -> Array:
        """What each link would carry outwards if nothing held it back."""
        twin, fleet = self._twin, self._twin.fleet
        leaves = np.where(twin.spans_racks, LEAVES_SHARE, STORAGE_SHARE)
        node = (self.gpu_bytes_per_s() * leaves[twin.job_of_gpu]).reshape(-1, GPUS_PER_NODE)
        uplink = np.bincount(fleet.rack_of_node, weights=node.sum(axis=1))
        spine = SPINE_SHARE * np.bincount(fleet.site_of_rack, weights=uplink)
        writes = twin.load.checkpointing[twin.job_of_node]
        site_of_node = fleet.site_of_rack[fleet.rack_of_node]
        wan = WAN_BACKGROUND_BYTES_PER_S + WAN_CHECKPOINT_BYTES_PER_NODE_S * np.bincount(
            site_of_node, weights=writes.astype(np.float64), minlength=len(fleet.sites)
        )
        return np.concatenate([uplink, spine, wan[self.links.site[self._wan_from :]]])

    def _received(self, sent: Array) -> Array:
        """Collectives send as much as they receive; a WAN link receives what its peer sends."""
        received = sent.copy()
        wan = sent[self._wan_from :]
        back = np.zeros(len(self._twin.fleet.sites))
        np.add.at(back, self._wan_peer, wan)
        received[self._wan_from :] = back[self.links.site[self._wan_from :]]
        return received
