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
    spared_w = {
        low.request.key: _peak_w(cluster, each.request.gpu_peak_w) - low.request.gpu_peak_w
        for each, low in zip(snapshot.pending, pending, strict=True)
        if low.request is not each.request and low.request.gpu_peak_w is not None
    }
    constants = replace(cluster.constants, roomiest_first=True, _heat={}, memo={})
    cluster = replace(
        cluster, constants=constants, refused={}, nowhere=set(), hopeless={}, scratch={}
    )
    return replace(snapshot, cluster=cluster, pending=pending, starts_low=True, spared_w=spared_w)


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


def _peak_w(cluster: Cluster, told_w: float | None) -> float:
    """Return what a GPU draws without a cap, W: as rated where its job does not say."""
    if told_w is not None:
        return told_w
    return float(cluster.fleet.models.power_curves.rated_w[_commonest(cluster)])


def _commonest(cluster: Cluster) -> int:
    """Return the fleet's most common model, by row."""
    return int(cluster.topology.gpu_models[cluster.topology.commonest_kind])


def _lowest_w(
    cluster: Cluster, told_w: float | None, lowest_w: float, max_slowdown: float
) -> float | None:
    curves, model = cluster.fleet.models.power_curves, _commonest(cluster)
    rated_w, peak_w = float(curves.rated_w[model]), _peak_w(cluster, told_w)
    by_speed_w = float(curves.power_w(model, 1.0 - max_slowdown, peak_w))
    cap_w = in_steps(max(by_speed_w, lowest_w, LEAST_POWER_SHARE * rated_w))
    return cap_w if cap_w < peak_w else None


def at_cap(request: Request, cap_w: float | None) -> Request:
    """Return a request that draws no more than a cap, W, and takes no other; None: none."""
    if cap_w is None:
        return request
    return replace(request, gpu_peak_w=cap_w, lowest_cap_w=None, max_slowdown=0.0)
