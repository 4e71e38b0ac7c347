"""The cycle where a controller holds running load: jobs start low, and where most power is left.

A job that accepts a cap starts under the lowest one that keeps it as fast as it insists on; the
controller raises it as there is room (:mod:`policies.controller`). So what waits needs room for
that, and no more. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np

from admission.core.cycle.decide import Decisions
from admission.core.placement.cluster import Cluster
from admission.core.placement.elastic import in_steps
from admission.core.placement.topology import Bools
from admission.core.request import Request
from admission.core.snapshot import Snapshot
from physics.hardware.drivers import LEAST_POWER_SHARE

__all__ = ["at_caps", "capped", "lowered", "starting_low", "tighter"]

#: Racks are as good as the roomiest within this share of what sets it apart from the tightest.
_ROOMY_SHARE = 0.5


def starting_low(snapshot: Snapshot) -> tuple[Snapshot, dict[str, float]]:
    """Return the snapshot in which jobs ask for their lowest caps, where most power is left.

    And those caps, W, by the key of each job that has one.
    """
    cluster = snapshot.cluster
    caps_w = {
        each.request.key: cap_w
        for each in snapshot.pending
        if (cap_w := _start_w(cluster, each.request)) is not None
    }
    constants = replace(cluster.constants, roomiest_first=True, _heat={}, memo={})
    cluster = replace(cluster, constants=constants, refused={}, hopeless={}, scratch={})
    return at_caps(replace(snapshot, cluster=cluster, starts_low=True), caps_w), caps_w


def lowered(cluster: Cluster, request: Request) -> Request:
    """Return a request for the lowest cap that it accepts."""
    return _at_cap(request, _start_w(cluster, request))


def _start_w(cluster: Cluster, request: Request) -> float | None:
    """Return the cap under which a job is to start on the fleet's most common model; None: none."""
    lowest_w, max_slowdown = request.lowest_cap_w, request.max_slowdown
    if lowest_w is None or max_slowdown <= 0.0:
        return None
    # A queue has many jobs, of few kinds.
    memo, key = cluster.constants.memo, ("start_w", request.gpu_peak_w, lowest_w, max_slowdown)
    if key not in memo:
        memo[key] = _lowest_w(cluster, request.gpu_peak_w, lowest_w, max_slowdown)
    return cast(float | None, memo[key])


def _lowest_w(
    cluster: Cluster, told_w: float | None, lowest_w: float, max_slowdown: float
) -> float | None:
    curves, topology = cluster.fleet.models.power_curves, cluster.topology
    model = int(topology.gpu_models[topology.commonest_kind])
    rated_w = float(curves.rated_w[model])
    peak_w = rated_w if told_w is None else told_w
    by_speed_w = float(curves.power_w(model, 1.0 - max_slowdown, peak_w))
    cap_w = in_steps(max(by_speed_w, lowest_w, LEAST_POWER_SHARE * rated_w))
    return cap_w if cap_w < peak_w else None


def at_caps(snapshot: Snapshot, caps_w: Mapping[str, float]) -> Snapshot:
    """Return a snapshot in which jobs draw no more than their caps, and take no others."""
    pending = tuple(
        replace(each, request=_at_cap(each.request, caps_w.get(each.request.key)))
        for each in snapshot.pending
    )
    return replace(snapshot, pending=pending)


def _at_cap(request: Request, cap_w: float | None) -> Request:
    if cap_w is None:
        return request
    return replace(request, gpu_peak_w=cap_w, lowest_cap_w=None, max_slowdown=0.0)


def capped(decisions: Decisions, caps_w: Mapping[str, float]) -> Decisions:
    """Set the power cap on the placements of jobs that start capped."""
    admitted = tuple(
        replace(each, placement=replace(each.placement, power_cap_w=caps_w[each.request.key]))
        if each.request.key in caps_w
        else each
        for each in decisions.admitted
    )
    return replace(decisions, admitted=admitted)


def tighter(cluster: Cluster) -> Bools:
    """Return the nodes of racks of those with free GPUs that have clearly less room than others."""
    fleet, room_w = cluster.fleet, cluster.admit_w
    free = np.bincount(fleet.nodes.rack, cluster.node_free.sum(axis=0), len(fleet.racks)) > 0
    free &= np.isfinite(room_w)
    if not free.any():
        return np.zeros(len(fleet.nodes), dtype=bool)
    least_w, most_w = room_w[free].min(), room_w[free].max()
    return np.asarray((room_w < most_w - _ROOMY_SHARE * (most_w - least_w))[fleet.nodes.rack])
