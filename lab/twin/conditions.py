"""The faults of a fleet that act now: of the plant, of the network, and of the sensors.

Whoever plays a scenario writes these arrays; the twin, its network and its storage act on them, and
those who read the twin bend what they read by them. All are neutral to begin with and after
:meth:`Conditions.reset`, so a fault is undone by no longer stating it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lab.fleet import Fleet, wan_pairs

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


def domain_names(fleet: Fleet) -> list[tuple[str, str]]:
    """Site and name of every power domain, in the order of the inventory.

    For each site its utility, its feeds A and B, then the PDUs of each row, A before B.
    """
    names = []
    for site in fleet.sites:
        names += [(site, "utility"), (site, "feed-a"), (site, "feed-b")]
        rows = [row.lower() for row_site, row in fleet.rows if row_site == site]
        names += [(site, f"pdu-{row}-{side}") for row in rows for side in "ab"]
    return names


class Conditions:
    """Faults in force, as arrays by GPU, node, rack, zone, power domain, site, link and storage.

    GPUs, nodes and racks are in the order of the fleet; zones are its rows; power domains are those
    of :func:`domain_names`; links are each rack's uplink, each site's spine, then the WAN links of
    ``wan_pairs``; storage endpoints are one for each site. Shares are of the healthy value, 1 being
    all of it.
    """

    def __init__(self, fleet: Fleet) -> None:
        zones, domains, sites = len(fleet.rows), len(domain_names(fleet)), len(fleet.sites)
        racks, nodes, gpus = len(fleet.racks), len(fleet.nodes), fleet.gpu_count
        links = racks + sites + len(wan_pairs(fleet))
        # The plant.
        self.supply_offset_c: Array = np.zeros(zones)
        self.zone_capacity_share: Array = np.ones(zones)
        self.domain_lost: Bools = np.zeros(domains, dtype=np.bool_)
        self.domain_budget_share: Array = np.ones(domains)
        self.rack_budget_share: Array = np.ones(racks)
        #: Racks whose GPUs obey no power brake.
        self.brake_stuck: Bools = np.zeros(racks, dtype=np.bool_)
        self.node_down: Bools = np.zeros(nodes, dtype=np.bool_)
        self.clock_share: Array = np.ones(gpus)
        self.power_limit_share: Array = np.ones(gpus)
        self.gpu_resistance_factor: Array = np.ones(gpus)
        #: What each GPU draws over what it is made to draw at the same work.
        self.gpu_draw_factor: Array = np.ones(gpus)
        #: What GPUs that work for no task do at least, by node; 1 is what they are made for.
        self.least_activity: Array = np.zeros(nodes)
        # The network and the storage.
        self.link_capacity_share: Array = np.ones(links)
        self.link_extra_latency_s: Array = np.zeros(links)
        self.link_jitter_s: Array = np.zeros(links)
        #: Share of packets that are lost.
        self.link_loss: Array = np.zeros(links)
        self.site_isolated: Bools = np.zeros(sites, dtype=np.bool_)
        self.storage_share: Array = np.ones(sites)
        self.storage_latency_s: Array = np.zeros(sites)
        #: Share of requests that fail and are made again.
        self.storage_loss: Array = np.zeros(sites)
        # What sensors and agents say: the twin itself does not change by these.
        self.node_silent: Bools = np.zeros(nodes, dtype=np.bool_)
        #: What is read over what is true, and what is read less what is true.
        self.power_bias: Array = np.ones(nodes)
        self.temp_bias_c: Array = np.zeros(nodes)
        #: Whether a node's readings stay what they were when this began.
        self.stuck: Bools = np.zeros(nodes, dtype=np.bool_)
        self.clock_skew_s: Array = np.zeros(nodes)
        self._neutral = {name: values.copy() for name, values in vars(self).items()}

    def reset(self) -> None:
        """Make all neutral again."""
        for name, values in self._neutral.items():
            getattr(self, name)[:] = values
