"""The placement of work that runs already, on GPUs that somebody else chose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from admission.core.placement.cluster import Cluster, up
from admission.core.placement.elastic import draw_of
from admission.core.placement.labels import labels_of
from admission.core.request import Placement, Request

__all__ = ["found_on"]


def found_on(cluster: Cluster, request: Request, gpus: Sequence[int]) -> Placement:
    """Return the placement of ``request`` on ``gpus``, rows of the inventory, at least one.

    It reserves what :func:`admission.core.placement.place.place` would for the same GPUs without a
    cap: nobody asked whether there is room for it.
    """
    fleet, topology, constants = cluster.fleet, cluster.topology, cluster.constants
    rows = np.array(sorted(gpus), dtype=np.int64)
    nodes, place = np.unique(fleet.gpus.node[rows], return_inverse=True)
    models = np.array(topology.gpu_models)
    kinds = np.searchsorted(models, fleet.gpus.model[rows])
    peak_of = {
        kind: draw_of(fleet, int(models[kind]), kind, request).peak_w
        for kind in np.unique(kinds).tolist()
    }
    gpus_w = np.bincount(place, [peak_of[kind] for kind in kinds.tolist()], len(nodes))
    share = topology.share_of(nodes, rows, place)
    peak_w = constants.factor[nodes] * gpus_w + constants.host_w[nodes] * share
    return Placement(
        gpus=tuple(rows.tolist()),
        nodes=tuple(nodes.tolist()),
        peak_w=tuple(up(peak_w).tolist()),
        power_cap_w=None,
        slowdown=0.0,
        storage=request.storage,
        **labels_of(topology, nodes),
    )
