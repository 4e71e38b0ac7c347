"""The cycle where a controller holds running load: jobs start low, and where most power is left.

A job that accepts a cap starts under the lowest one that keeps it as fast as it insists on; the
controller raises it as there is room (:mod:`policies.controller`). So what waits needs room for
that, and no more. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from admission.core.placement.cluster import Cluster
from admission.core.placement.elastic import in_steps
from admission.core.request import Request
from admission.core.snapshot import Snapshot
from physics.hardware.drivers import LEAST_POWER_SHARE

__all__ = ["at_cap", "lowered", "starting_low"]


def starting_low(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot in which jobs ask for their lowest caps, where most power is left."""
    cluster = snapshot.cluster
    pending = tuple(
        replace(each, request=lowered(cluster, each.request)) for each in snapshot.pending
    )
    constants = replace(cluster.constants, roomiest_first=True, _heat={}, memo={})
    cluster = replace(
        cluster, constants=constants, refused={}, nowhere=set(), hopeless={}, scratch={}
    )
    return replace(snapshot, cluster=cluster, pending=pending, starts_low=True)


def lowered(cluster: Cluster, request: Request) -> Request:
    """Return a request for the lowest cap that it accepts."""
    return at_cap(request, _start_w(cluster, request))


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


def at_cap(request: Request, cap_w: float | None) -> Request:
    """Return a request that draws no more than a cap, W, and takes no other; None: none."""
    if cap_w is None:
        return request
    return replace(request, gpu_peak_w=cap_w, lowest_cap_w=None, max_slowdown=0.0)
