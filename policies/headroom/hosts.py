"""The draw of hosts beside their GPUs, fitted to what nodes of each model draw. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet.groups import count_by, sum_by
from fleet.tables import FleetArrays
from physics.errors import UnfittableError
from physics.power import fit_host
from policies.headroom.columns import Floats
from policies.headroom.evaluate import Headroom
from telemetry.summary import HostCurves

__all__ = [
    "HOST_EVERY_S",
    "HOST_ROUNDS",
    "FittedHost",
    "curves_of",
    "host_curve",
    "host_pairs",
    "rated_by_model",
]

#: Pairs of GPUs and node are taken so often, s, and kept for so many rounds, of at most so many
#: nodes each.
HOST_EVERY_S = 60.0
HOST_ROUNDS = 60
_HOST_NODES = 200
_HOST_FEWEST = 20
#: Hosts at rest do not show what they draw at work: GPUs of so many pairs have to have drawn this
#: share of what they are rated for.
_AT_WORK = 0.5


def host_pairs(headroom: Headroom) -> dict[int, Floats]:
    """Return pairs of GPU power and node power now, by id of the model: W, a row for each node.

    Those count whose GPUs all read, and whose meter does or whose host reads itself.
    """
    fleet, summary = headroom.fleet, headroom.summary
    node, count = fleet.gpus.node, len(fleet.nodes)
    gpus_w = sum_by(summary.gpus.load_w, node, count)
    silent = count_by(~summary.gpus.read, node, count)
    # Where host or meter do not read, what is measured is what the GPUs draw.
    whole = summary.nodes.measured_w > gpus_w + 1.0
    good = whole & (silent == 0) & (gpus_w > 0) & (fleet.nodes.model >= 0)
    pairs = {}
    for model in np.unique(fleet.nodes.model[good]).tolist():
        rows = np.flatnonzero(good & (fleet.nodes.model == model))
        rows = rows[:: -(-len(rows) // _HOST_NODES)]
        key = int(fleet.models.ids[model])
        pairs[key] = np.stack([gpus_w[rows], summary.nodes.measured_w[rows]], axis=1)
    return pairs


@dataclass(frozen=True)
class FittedHost:
    """What hosts of a model draw: at rest, W, for each W of their GPUs, and how far they stray."""

    idle_w: float
    share: float
    spread_w: float


def rated_by_model(fleet: FleetArrays) -> dict[int, float]:
    """Return what the GPUs of a node are rated for together, W, by id of its model: the lowest."""
    rated_w = sum_by(fleet.models.power_curves.rated_w[fleet.gpus.model], fleet.gpus.node,
                     len(fleet.nodes))  # fmt: skip
    return {
        int(fleet.models.ids[model]): float(rated_w[fleet.nodes.model == model].min())
        for model in np.unique(fleet.nodes.model[fleet.nodes.model >= 0]).tolist()
    }


def host_curve(pairs: Floats, rated_w: float) -> FittedHost | None:
    """Return the curve through pairs of :func:`host_pairs`; None: they are too few, or scatter.

    Or they say nothing of nodes at work: ``rated_w`` is what the GPUs of one are rated for, W.
    """
    gpus_w, node_w = pairs.T
    if np.count_nonzero(gpus_w >= _AT_WORK * rated_w) < _HOST_FEWEST:
        return None
    try:
        curve = fit_host(gpus_w=gpus_w, node_w=node_w)
    except UnfittableError:
        return None
    found = FittedHost(float(curve.host_idle_w), float(curve.host_share), float(curve.spread_w))
    # A host that draws less the more its GPUs do is an accident of few readings.
    return None if found.share < 0 or found.idle_w < 0 else found


def curves_of(fleet: FleetArrays, fits: Mapping[int, tuple[float, float]]) -> HostCurves | None:
    """Return the curves of all nodes from the draw at rest, W, and share by id of their model."""
    if not fits:
        return None
    unknown = (np.nan, np.nan)
    by_model = np.array([*(fits.get(key, unknown) for key in fleet.models.ids.tolist()), unknown])
    return HostCurves(*by_model[fleet.nodes.model].T)
