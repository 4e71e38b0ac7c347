"""Placement of a gang: its GPUs, and its power cap; or why there is none. Pure.

A gang's GPUs are all of one model. All of them at full power, as close together as they fit, is
tried first; then less of it, as far as the request accepts that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np

from admission.core.placement.candidates import CandidatePool
from admission.core.placement.cluster import Cluster, up
from admission.core.placement.comm_ratio import comm_ratio
from admission.core.placement.elastic import Choice, Draw, lesser
from admission.core.placement.eligibility import Eligibility
from admission.core.placement.labels import labels_of
from admission.core.placement.refusals import (
    missed,
    policy_reasons,
    spec_reasons,
    storage_reasons,
    why_not,
)
from admission.core.placement.topology import Bools, Ints
from admission.core.request import Locality, Placement, Refusal, Request

__all__ = ["fits_empty", "may_stand", "place", "placed", "shape_of"]

#: Requests that agree in these are placed alike on one cluster.
_shape = attrgetter(
    "gpus", "min_gpus", "gpus_per_node", "slice", "cores", "models", "cooling", "sites", "nodes",
    "artifact_sites",
    "executor", "gpu_peak_w", "lowest_cap_w", "max_slowdown", "thermal_margin_c", "required",
    "preferred", "balanced",
    "cross_site_bits_per_s", "data_site", "storage", "storage_bytes_per_s",
    "collective_bytes_per_step", "step_s", "cross_site_checkpoint",
)  # fmt: skip


def shape_of(request: Request) -> object:
    """Return the fields of a request that decide its placement, to be compared and hashed."""
    return _shape(request)


def place(cluster: Cluster, request: Request) -> Placement | Refusal:
    """Return where ``request`` may start now, or every reason why it may not. Holds nothing.

    What was refused is refused again, without a search, until something is freed.
    """
    wrong = spec_reasons(cluster, request)
    if wrong:
        return Refusal(tuple(wrong))
    eligibility = Eligibility.of(cluster, request)
    policy = policy_reasons(cluster, request)
    shape = (shape_of(request), eligibility.is_local, eligibility.closing)
    found = cluster.refused.get(shape) or _search(eligibility)
    if isinstance(found, Refusal):
        cluster.refused[shape] = found
        if eligibility.closing:
            found = _but_for_bookings(eligibility, shape)
        return Refusal((*policy, *found.reasons)) if policy else found
    if policy:
        return Refusal(tuple(policy))
    return _placement(eligibility, found)


def placed(cluster: Cluster, request: Request) -> Placement | None:
    """Return where ``request`` may start now; None: nowhere. As :func:`place`, without reasons.

    To make them takes longer than to find that there are some.
    """
    if spec_reasons(cluster, request) or policy_reasons(cluster, request):
        return None
    eligibility = Eligibility.of(cluster, request)
    shape = (shape_of(request), eligibility.is_local, eligibility.closing)
    if shape in cluster.refused or shape in cluster.nowhere:
        return None
    found = None
    if not storage_reasons(eligibility):
        found = _found(eligibility) or missed(eligibility)
    if found is None:
        cluster.nowhere.add(shape)
        return None
    return _placement(eligibility, found)


def _but_for_bookings(eligibility: Eligibility, shape: object) -> Refusal:
    """Return why a request does not start that runs into bookings: for them, or anyway."""
    cluster, request = eligibility.cluster, eligibility.request
    free = replace(eligibility, closing=())
    found = cluster.kept(("but for bookings", shape), lambda: _search(free))
    if isinstance(found, Refusal):
        return found
    nodes = np.fromiter(found.selection.by_node, dtype=np.int64)
    bookings = cluster.bookings
    return Refusal((bookings.reason(request, eligibility.closing, nodes, cluster.now),))


def may_stand(cluster: Cluster, request: Request, placement: Placement) -> bool:
    """Say whether ``request`` may start just there: it fits, and nothing closes a place of it."""
    if spec_reasons(cluster, request) or policy_reasons(cluster, request):
        return False
    open_nodes = Eligibility.of(cluster, request).reached
    return bool(open_nodes[list(placement.nodes)].all()) and cluster.admits(placement, request)


def fits_empty(cluster: Cluster, request: Request) -> Placement | Refusal:
    """Return where ``request`` would stand if nothing ran, nothing were restricted or stale."""
    empty = cluster.constants.memo.get("empty")
    if not isinstance(empty, Cluster):
        empty = cluster.constants.memo["empty"] = cluster.empty()
    return place(empty, request)


# --- The choice -----------------------------------------------------------------------------------


def _search(eligibility: Eligibility) -> Choice | Refusal:
    wanting = storage_reasons(eligibility)
    if not wanting and (found := _found(eligibility)) is not None:
        return found
    instead = why_not(eligibility, wanting)
    return instead if isinstance(instead, Choice) else Refusal(tuple(instead))


def _found(eligibility: Eligibility) -> Choice | None:
    for nodes, widest in eligibility.node_masks:
        found = _full(eligibility, nodes, widest) or _less(eligibility, nodes, widest)
        if found is None:
            continue
        full = eligibility.congested(found.selection.by_node)
        if not full:
            return _preferred(eligibility, nodes, widest, found)
        if eligibility.talks:
            other = _off_links(eligibility, nodes, widest, full)
            if other is not None:
                return other
    return None


def _off_links(
    eligibility: Eligibility, nodes: Bools, widest: Locality, full: Iterable[int]
) -> Choice | None:
    """Return a place that overfills no link, in place of one that would overfill ``full``."""
    for instead, closer in eligibility.uncongested(nodes, widest, full):
        found = _full(eligibility, instead, closer) or _less(eligibility, instead, closer)
        if found is not None and not eligibility.congested(found.selection.by_node):
            return found
    return None


def _full(eligibility: Eligibility, nodes: Bools, widest: Locality) -> Choice | None:
    """Return the whole gang without a cap, on the first of its models that has enough."""
    request = eligibility.request
    pool_at = _pool_at(eligibility, nodes)
    for draw in eligibility.draws:
        pool = pool_at(draw, draw.peak_w)
        if request.gpus % pool.step:
            continue
        selection = pool.find(request.gpus, eligibility.closest(draw, request.gpus), widest)
        if selection is not None:
            return Choice(pool, selection, None, 1.0)
    return None


def _less(eligibility: Eligibility, nodes: Bools, widest: Locality) -> Choice | None:
    """Return the choice that does the most work with fewer GPUs or under a cap."""
    request, pool_at = eligibility.request, _pool_at(eligibility, nodes)
    if request.required is not widest:
        request = replace(request, required=widest)
    best: Choice | None = None
    for draw in eligibility.draws:
        found = lesser(partial(pool_at, draw), draw, request, partial(eligibility.closest, draw))
        if found is not None and (best is None or found.work > best.work):
            best = found
    return best


def _preferred(eligibility: Eligibility, nodes: Bools, widest: Locality, found: Choice) -> Choice:
    """Return an equally good choice in a preferred place; else ``found``."""
    for better in eligibility.better(nodes):
        other = _full(eligibility, better, widest)
        if other is None and found.work < eligibility.request.gpus:
            other = _less(eligibility, better, widest)
        if other is None or other.work < found.work:
            continue
        if not eligibility.congested(other.selection.by_node):
            return _steered(eligibility, better, widest, other)
    return _steered(eligibility, nodes, widest, found)


def _steered(eligibility: Eligibility, nodes: Bools, widest: Locality, found: Choice) -> Choice:
    """Return a choice as good as ``found`` that keeps the arms of a rollout alike; else ``found``.

    A gang that did not get all that it asks for stays where it gets the most.
    """
    if found.work < eligibility.request.gpus:
        return found
    for arm in eligibility.arms(nodes, found.selection.by_node):
        other = _full(eligibility, arm, widest)
        if other is None or not _is_as_good(other, found):
            continue
        if not eligibility.congested(other.selection.by_node):
            return other
    return found


def _is_as_good(other: Choice, found: Choice) -> bool:
    """Say whether a choice of the whole gang is no worse for it, and none for those after it.

    It stands as close together, on as few nodes of the same GPUs; it leaves no more pieces of nodes
    and racks; and its racks have the watts for all that is free there.
    """
    if other.pool.kind != found.pool.kind or other.selection.level > found.selection.level:
        return False
    if len(other.selection.by_node) > len(found.selection.by_node):
        return False
    spare = zip(other.pool.spare(other.selection), found.pool.spare(found.selection), strict=True)
    return all(one <= two for one, two in spare) and other.pool.has_watts_for_all(other.selection)


def _pool_at(eligibility: Eligibility, nodes: Bools) -> Callable[[Draw, float], CandidatePool]:
    """Return the function from a draw and its watts per GPU to the pool of candidates."""
    cluster, request = eligibility.cluster, eligibility.request
    return lambda draw, gpu_w: CandidatePool.of(cluster, request, draw.kind, gpu_w, nodes)


# --- The placement --------------------------------------------------------------------------------


def _placement(eligibility: Eligibility, choice: Choice) -> Placement:
    cluster, request = eligibility.cluster, eligibility.request
    topology, constants, pool = cluster.topology, cluster.constants, choice.pool
    nodes, count, gpus = pool.rows(choice.selection)
    share = topology.share_of(nodes, gpus, np.searchsorted(nodes, cluster.fleet.gpus.node[gpus]))
    peak_w = constants.factor[nodes] * pool.gpu_w * count + constants.host_w[nodes] * share
    found = Placement(
        gpus=tuple(gpus.tolist()),
        nodes=tuple(nodes.tolist()),
        peak_w=tuple(up(peak_w).tolist()),
        power_cap_w=choice.cap_w,
        slowdown=max(1.0 - choice.work / request.gpus, 0.0),
        storage=request.storage or _storage(eligibility, nodes),
        **labels_of(topology, nodes),
    )
    ratio = comm_ratio(topology, found, request, choice.speed)
    warnings = _warnings(request, found)
    if ratio is None:
        return replace(found, warnings=warnings)
    if ratio.warning:
        warnings = (*warnings, ratio.warning)
    return replace(found, comm_ratio=ratio.ratio, comm_model=ratio.model, warnings=warnings)


def _storage(eligibility: Eligibility, nodes: Ints) -> str:
    """Return the storage endpoint that all of the nodes use; empty where they differ."""
    rows = set(eligibility.cluster.fleet.nodes.storage[nodes].tolist())
    if len(rows) > 1 or -1 in rows:
        return ""
    return str(eligibility.cluster.fleet.storage.paths[rows.pop()])


def _warnings(request: Request, placement: Placement) -> tuple[str, ...]:
    if placement.locality <= request.preferred:
        return ()
    preferred, found = (each.name.lower().replace("_", " ") for each in (
        request.preferred, placement.locality
    ))  # fmt: skip
    return (f"it prefers to stand within one {preferred}, and stands within one {found}",)
