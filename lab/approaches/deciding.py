"""How each approach decides on starts: the cycle of admission, given less of the fleet's state.

All approaches order, place and backfill by the same code (``admission.core.cycle``), so that what
sets them apart is what they look at, and not how well they pack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from admission.core.cycle.controlled import at_cap
from admission.core.cycle.decide import Decisions, decide
from admission.core.placement.cluster import Cluster
from admission.core.placement.elastic import Draw, draw_of
from admission.core.placement.topology import Bools
from admission.core.request import Locality, Request
from admission.core.snapshot import Pending, Snapshot
from policies.restrictions.strictest import InForce

__all__ = ["by_free_gpus", "by_margin", "by_site", "under_caps", "with_everything"]

#: A cap below this share of the rating saves less than it costs: what GPU and host draw at any
#: clock is then the larger part.
LEAST_CAP_SHARE = 0.5
#: Heat never makes a job wait that knows none.
_NO_STAGGER = 1e9
#: Racks are as good as the roomiest within this share of what sets it apart from the tightest.
_ROOMY_SHARE = 0.5


def by_free_gpus(snapshot: Snapshot) -> Decisions:
    """Start jobs wherever GPUs are free; power, heat, links and restrictions are unknown."""
    return decide(_blind(snapshot, _nowhere(snapshot)))


def by_margin(snapshot: Snapshot) -> Decisions:
    """Start jobs wherever GPUs are free, first in the racks with the most power left now.

    It chooses, and holds nobody back: where all racks are full of watts it takes any.
    """
    return decide(_blind(snapshot, _tighter(snapshot.cluster), nearby=True))


def by_site(snapshot: Snapshot) -> Decisions:
    """Start jobs wherever GPUs are free, first at the site with the most power left now."""
    return decide(_blind(snapshot, _other_sites(snapshot.cluster)))


def under_caps(snapshot: Snapshot) -> Decisions:
    """Start the jobs that fit within all budgets, power-capped from the start.

    A job is capped as low as it accepts, but not below half of what its GPUs are rated for.
    """
    caps_w = {
        each.request.key: cap_w
        for each in snapshot.pending
        if (cap_w := _cap_w(snapshot.cluster, each.request)) is not None
    }
    return _capped(decide(_at_caps(snapshot, caps_w)), caps_w)


def with_everything(snapshot: Snapshot) -> Decisions:
    """Start the jobs that fit within all budgets, capped or on fewer GPUs as each accepts."""
    return decide(snapshot)


def _draw(cluster: Cluster, request: Request) -> Draw:
    """Return the power that a job draws on the fleet's most common GPU model."""
    topology = cluster.topology
    kind = topology.commonest_kind
    key = ("draw", kind, request.gpu_peak_w, request.lowest_cap_w, request.max_slowdown)
    found = cluster.constants.memo.get(key)
    if not isinstance(found, Draw):
        found = draw_of(cluster.fleet, int(topology.gpu_models[kind]), kind, request)
        cluster.constants.memo[key] = found
    return found


def _cap_w(cluster: Cluster, request: Request) -> float | None:
    """Return the cap under which a job is to start; None: none."""
    draw = _draw(cluster, request)
    rated_w = float(cluster.fleet.models.rated_w[cluster.topology.gpu_models[draw.kind]])
    cap_w = max(draw.lowest_w, LEAST_CAP_SHARE * rated_w)
    return cap_w if cap_w < draw.peak_w else None


def _at_caps(snapshot: Snapshot, caps_w: Mapping[str, float]) -> Snapshot:
    """Return a snapshot in which jobs draw no more than their caps, and take no others."""
    pending = tuple(
        replace(each, request=at_cap(each.request, caps_w.get(each.request.key)))
        for each in snapshot.pending
    )
    return replace(snapshot, pending=pending)


def _capped(decisions: Decisions, caps_w: Mapping[str, float]) -> Decisions:
    """Set the power cap on the placements of jobs that start capped."""
    admitted = tuple(
        replace(each, placement=replace(each.placement, power_cap_w=caps_w[each.request.key]))
        if each.request.key in caps_w
        else each
        for each in decisions.admitted
    )
    return replace(decisions, admitted=admitted)


def _tighter(cluster: Cluster) -> Bools:
    """Return the nodes of racks of those with free GPUs that have clearly less room than others."""
    fleet, room_w = cluster.fleet, cluster.admit_w
    free = np.bincount(fleet.nodes.rack, cluster.node_free.sum(axis=0), len(fleet.racks)) > 0
    free &= np.isfinite(room_w)
    if not free.any():
        return np.zeros(len(fleet.nodes), dtype=bool)
    least_w, most_w = room_w[free].min(), room_w[free].max()
    return np.asarray((room_w < most_w - _ROOMY_SHARE * (most_w - least_w))[fleet.nodes.rack])


def _blind(snapshot: Snapshot, away: Bools, *, nearby: bool = False) -> Snapshot:
    """Return a snapshot of free GPUs alone. ``nearby``: jobs stand as close as they would like."""
    tuning = replace(snapshot.tuning, stagger_above=_NO_STAGGER)
    change = _uncapped if nearby else _anywhere
    cluster = _endless(snapshot.cluster, away)
    return _with_requests(replace(snapshot, cluster=cluster, caps=(), tuning=tuning), change)


def _endless(cluster: Cluster, away: Bools) -> Cluster:
    """Return a cluster of the same free GPUs without any other limit."""
    constants, fleet = cluster.constants, cluster.fleet
    open_sites = np.zeros(len(fleet.sites), dtype=bool)
    open_nodes = np.zeros(len(fleet.nodes), dtype=bool)
    return replace(
        cluster,
        constants=replace(
            constants,
            in_force=InForce(constants.in_force.at),
            limit_c=np.full(len(fleet.gpus), np.inf),
            cap_w=np.full(len(fleet.gpus), np.inf),
            gap_w=np.zeros(len(fleet.nodes)),
            closed=open_nodes,
            review=open_nodes,
            away=away,
            link_heard=np.ones(len(fleet.links), dtype=bool),
            link_closed=np.zeros(len(fleet.links), dtype=bool),
            local_only=open_sites,
            keeps_checkpoints=open_sites,
            empty_room_w=np.full(len(constants.empty_room_w), np.inf),
            _heat={},
            memo={},
        ),
        room_w=np.full(len(cluster.room_w), np.inf),
        admit_w=np.full(len(cluster.admit_w), np.inf),
        link_room_bits_per_s=np.full(len(fleet.links), np.inf),
        storage_room_bytes_per_s=np.full(len(fleet.storage), np.inf),
        refused={},
        hopeless={},
        scratch={},
    )


def _nowhere(snapshot: Snapshot) -> Bools:
    return np.zeros(len(snapshot.cluster.fleet.nodes), dtype=bool)


def _has_free(cluster: Cluster) -> Bools:
    """Say which racks have free GPUs."""
    fleet = cluster.fleet
    free = np.bincount(fleet.nodes.rack, cluster.node_free.sum(axis=0), len(fleet.racks))
    return np.asarray(free > 0)


def _other_sites(cluster: Cluster) -> Bools:
    """Return the nodes of all sites but the one whose racks may draw the most more."""
    site, fleet = cluster.fleet.racks.site, cluster.fleet
    room_w = np.where(_has_free(cluster), np.maximum(cluster.admit_w, 0.0), 0.0)
    best = np.argmax(np.bincount(site, room_w, len(fleet.sites)))
    return np.asarray(site[fleet.nodes.rack] != best)


def _with_requests(snapshot: Snapshot, change: Callable[[Request], Request]) -> Snapshot:
    changed = tuple(_changed(each, change) for each in snapshot.pending)
    return replace(snapshot, pending=changed)


def _changed(pending: Pending, change: Callable[[Request], Request]) -> Pending:
    return replace(pending, request=change(pending.request))


def _rigid(request: Request) -> Request:
    return replace(request, min_gpus=request.gpus)


def _uncapped(request: Request) -> Request:
    return replace(_rigid(request), lowest_cap_w=None, max_slowdown=0.0)


def _anywhere(request: Request) -> Request:
    return replace(_uncapped(request), preferred=Locality.FLEET)
