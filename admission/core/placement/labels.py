"""Where nodes stand, in the names by which placements are labelled."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from admission.core.placement.topology import Ints, Topology
from admission.core.request import Locality
from fleet.tables import Texts

__all__ = ["Labels", "labels_of"]


class Labels(TypedDict):
    """The labels of a :class:`~admission.core.request.Placement`, by its fields."""

    locality: Locality
    sites: tuple[str, ...]
    racks: tuple[str, ...]
    switch_domains: tuple[str, ...]


def labels_of(topology: Topology, nodes: Ints) -> Labels:
    """Return the labels of a placement on ``nodes``, rows of the inventory in order."""
    if len(nodes) > 1:
        return _labels(topology, nodes)
    # Most gangs stand on one node.
    node = int(nodes[0])
    found: Labels | None = topology.labels_of_node.get(node)
    if found is None:
        found = topology.labels_of_node[node] = _labels(topology, nodes)
    return found


def _labels(topology: Topology, nodes: Ints) -> Labels:
    fleet = topology.fleet
    racks = np.unique(fleet.nodes.rack[nodes])
    domains = [
        f"{fleet.sites.names[site]}/{name}"
        for site, name in zip(
            topology.node_site[nodes].tolist(), topology.switch_domain[nodes], strict=True
        )
    ]
    return {
        "locality": _locality(topology, nodes),
        "sites": _words(fleet.sites.names[np.unique(fleet.racks.site[racks])]),
        "racks": _words(fleet.racks.paths[racks]),
        "switch_domains": tuple(dict.fromkeys(domains)),
    }


def _locality(topology: Topology, nodes: Ints) -> Locality:
    """Return the closest locality that all of ``nodes`` share."""
    if len(nodes) == 1:
        return Locality.NODE
    for level, group in topology.groups.items():
        if (group[nodes] == group[nodes[0]]).all():
            return level
    return Locality.FLEET


def _words(names: Texts) -> tuple[str, ...]:
    return tuple(str(name) for name in names)
