"""The draw of hosts beside their GPUs, fitted to what nodes of each model draw. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleet.groups import count_by, sum_by
from fleet.tables import FleetArrays
from physics.errors import UnfittableError
from physics.power import fit_host
from policies.headroom.columns import Floats
from policies.headroom.evaluate import Headroom
from telemetry.summary import HostCurves, host_rated_w

__all__ = [
    "AT_WORK",
    "HOST_EVERY_S",
    "HOST_ROUNDS",
    "FittedHost",
    "Rating",
    "curves_of",
    "host_curve",
    "host_pairs",
    "ratings_of",
]

#: Pairs of GPUs and node are taken so often, s, and kept for so many rounds, of at most so many
#: nodes each.
HOST_EVERY_S = 60.0
HOST_ROUNDS = 60
_HOST_NODES = 200
_HOST_FEWEST = 20
#: Hosts at rest do not show what they draw at work: GPUs of so many pairs have to have drawn this
#: share of what they are rated for. Until then hosts are taken to draw this share of what is
#: written on them above rest.
AT_WORK = 0.5
_UNSEEN = 0.5
#: A curve through many nodes at rest says too little of those at work: so large a share of these
#: draw no more than it says.
_COVERED = 0.9


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


class Rating(NamedTuple):
    """What is written on a node: of its GPUs together, W, and of its host above rest, W."""

    gpus_w: float
    host_range_w: float


def ratings_of(fleet: FleetArrays) -> dict[int, Rating]:
    """Return what is written on nodes, by id of their model: on the one whose GPUs have least."""
    nodes, gpus = fleet.nodes, fleet.gpus
    gpus_w = sum_by(fleet.models.power_curves.rated_w[gpus.model], gpus.node, len(nodes))
    range_w = np.maximum(host_rated_w(fleet) - np.nan_to_num(nodes.host_idle_w), 0.0)
    found: dict[int, Rating] = {}
    for model in np.unique(nodes.model[nodes.model >= 0]).tolist():
        rows = np.flatnonzero((nodes.model == model) & (gpus_w > 0.0))
        if len(rows):
            row = rows[gpus_w[rows].argmin()]
            found[int(fleet.models.ids[model])] = Rating(float(gpus_w[row]), float(range_w[row]))
    return found


def host_curve(pairs: Floats, rating: Rating) -> FittedHost | None:
    """Return the curve through pairs of :func:`host_pairs`; None: they are too few, or scatter.

    It rises with the GPUs as far as most nodes at work do. While pairs say nothing of these, it
    rises to a half of what is written on the host, if it does not rise more by itself.
    """
    if len(pairs) < _HOST_FEWEST:
        return None
    gpus_w, node_w = pairs.T
    try:
        curve = fit_host(gpus_w=gpus_w, node_w=node_w)
    except UnfittableError:
        return None
    idle_w, share = float(curve.host_idle_w), float(curve.host_share)
    works = gpus_w >= AT_WORK * rating.gpus_w
    if np.count_nonzero(works) < _HOST_FEWEST:
        steeper = max(_UNSEEN * rating.host_range_w / rating.gpus_w - share, 0.0)
        share, idle_w = share + steeper, max(idle_w - steeper * float(np.median(gpus_w)), 0.0)
    else:
        seen = ((node_w - idle_w) / gpus_w)[works] - 1.0
        share = max(share, float(np.quantile(seen, _COVERED)))
    found = FittedHost(idle_w, share, float(curve.spread_w))
    # A host that draws less the more its GPUs do is an accident of few readings.
    return None if found.share < 0 or found.idle_w < 0 else found


def curves_of(fleet: FleetArrays, fits: Mapping[int, tuple[float, float]]) -> HostCurves | None:
    """Return the curves of all nodes from the draw at rest, W, and share by id of their model."""
    if not fits:
        return None
    unknown = (np.nan, np.nan)
    by_model = np.array([*(fits.get(key, unknown) for key in fleet.models.ids.tolist()), unknown])
    return HostCurves(*by_model[fleet.nodes.model].T)
