"""Where a gang stands: on which GPUs, and under which limit; or why nowhere. Pure.

A gang's GPUs are all of one model. All of them at full power, as close together as they fit, is
tried first; then less of it, as far as the request accepts that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np

from admission.core.placement.candidates import Ground
from admission.core.placement.cluster import Cluster, up
from admission.core.placement.comm_ratio import comm_ratio
from admission.core.placement.elastic import Choice, Draw, lesser
from admission.core.placement.eligibility import Terrain
from admission.core.placement.refusals import policy_reasons, spec_reasons, storage_reasons, why_not
from admission.core.placement.topology import Bools, Ints
from admission.core.request import Locality, Placement, Refusal, Request
from fleet.tables import Texts

__all__ = ["fits_empty", "place", "shape_of"]

#: Requests that agree in these are placed alike on one cluster.
_shape = attrgetter(
    "gpus", "min_gpus", "gpus_per_node", "models", "cooling", "sites", "gpu_peak_w", "lowest_cap_w",
    "max_slowdown", "thermal_margin_c", "required", "preferred", "balanced",
    "cross_site_bits_per_s", "data_site", "storage", "storage_bytes_per_s",
    "collective_bytes_per_step", "step_s", "cross_site_checkpoint",
)  # fmt: skip


def shape_of(request: Request) -> object:
    """Return what a request wants, without who wants it. To be compared and hashed."""
    return _shape(request)


def place(cluster: Cluster, request: Request) -> Placement | Refusal:
    """Return where ``request`` may start now, or every reason why it may not. Holds nothing.

    What was refused is refused again, without a search, until something is released.
    """
    wrong = spec_reasons(cluster, request)
    if wrong:
        return Refusal(tuple(wrong))
    terrain = Terrain.of(cluster, request)
    policy = policy_reasons(cluster, request)
    shape = (shape_of(request), terrain.is_local)
    found = cluster.refused.get(shape) or _search(terrain)
    if isinstance(found, Refusal):
        cluster.refused[shape] = found
        return Refusal((*policy, *found.reasons)) if policy else found
    if policy:
        return Refusal(tuple(policy))
    return _placement(terrain, found)


def fits_empty(cluster: Cluster, request: Request) -> Placement | Refusal:
    """Return where ``request`` would stand if nothing ran, nothing were restricted or stale."""
    empty = cluster.sight.memo.get("empty")
    if not isinstance(empty, Cluster):
        empty = cluster.sight.memo["empty"] = cluster.empty()
    return place(empty, request)


# --- The choice -----------------------------------------------------------------------------------


def _search(terrain: Terrain) -> Choice | Refusal:
    wanting = storage_reasons(terrain)
    if not wanting:
        for nodes, widest in terrain.grounds:
            found = _full(terrain, nodes, widest) or _less(terrain, nodes, widest)
            if found is not None and not terrain.congested(found.picks.by_node):
                return _preferred(terrain, nodes, widest, found)
    missed = why_not(terrain, wanting)
    return missed if isinstance(missed, Choice) else Refusal(tuple(missed))


def _full(terrain: Terrain, nodes: Bools, widest: Locality) -> Choice | None:
    """Return all of the gang without a cap, on the first of its models that has it."""
    request = terrain.request
    ground_at = _ground_at(terrain, nodes)
    for draw in terrain.draws:
        ground = ground_at(draw, draw.peak_w)
        if request.gpus % ground.step:
            continue
        picks = ground.find(request.gpus, terrain.closest(draw, request.gpus), widest)
        if picks is not None:
            return Choice(ground, picks, None, 1.0)
    return None


def _less(terrain: Terrain, nodes: Bools, widest: Locality) -> Choice | None:
    """Return what does the most work with fewer GPUs or under a cap."""
    request, ground_at = terrain.request, _ground_at(terrain, nodes)
    if request.required is not widest:
        request = replace(request, required=widest)
    best: Choice | None = None
    for draw in terrain.draws:
        found = lesser(partial(ground_at, draw), draw, request, partial(terrain.closest, draw))
        if found is not None and (best is None or found.work > best.work):
            best = found
    return best


def _preferred(terrain: Terrain, nodes: Bools, widest: Locality, found: Choice) -> Choice:
    """Return the same where it would rather be, if that is as good; else ``found``."""
    for better in terrain.better(nodes):
        other = _full(terrain, better, widest)
        if other is None and found.work < terrain.request.gpus:
            other = _less(terrain, better, widest)
        if other is None or other.work < found.work:
            continue
        if not terrain.congested(other.picks.by_node):
            return other
    return found


def _ground_at(terrain: Terrain, nodes: Bools) -> Callable[[Draw, float], Ground]:
    """Return how to get the ground at a draw."""
    cluster, request = terrain.cluster, terrain.request
    return lambda draw, gpu_w: Ground.of(cluster, request, draw.kind, gpu_w, nodes)


# --- The placement --------------------------------------------------------------------------------


def _placement(terrain: Terrain, choice: Choice) -> Placement:
    cluster, request = terrain.cluster, terrain.request
    layout, sight, ground = cluster.layout, cluster.sight, choice.ground
    nodes, count, gpus = ground.rows(choice.picks)
    share = count / layout.node_gpus[nodes]
    peak_w = sight.factor[nodes] * ground.gpu_w * count + sight.host_w[nodes] * share
    racks = np.unique(cluster.fleet.nodes.rack[nodes])
    sites = np.unique(cluster.fleet.racks.site[racks])
    site_names = layout.node_site[nodes]
    domains = [
        f"{cluster.fleet.sites.names[site]}/{name}"
        for site, name in zip(site_names.tolist(), layout.switch_domain[nodes], strict=True)
    ]
    found = Placement(
        gpus=tuple(gpus.tolist()),
        nodes=tuple(nodes.tolist()),
        peak_w=tuple(up(peak_w).tolist()),
        power_cap_w=choice.cap_w,
        slowdown=max(1.0 - choice.work / request.gpus, 0.0),
        locality=_locality(terrain, nodes),
        sites=_words(cluster.fleet.sites.names[sites]),
        racks=_words(cluster.fleet.racks.paths[racks]),
        switch_domains=tuple(dict.fromkeys(domains)),
        storage=request.storage or _storage(terrain, nodes),
    )
    ratio = comm_ratio(layout, found, request, choice.speed)
    warnings = _warnings(request, found)
    if ratio is None:
        return replace(found, warnings=warnings)
    if ratio.warning:
        warnings = (*warnings, ratio.warning)
    return replace(found, comm_ratio=ratio.ratio, comm_model=ratio.model, warnings=warnings)


def _locality(terrain: Terrain, nodes: Ints) -> Locality:
    """Return the closest locality that all of ``nodes`` share."""
    if len(nodes) == 1:
        return Locality.NODE
    for level, group in terrain.cluster.layout.groups.items():
        if (group[nodes] == group[nodes[0]]).all():
            return level
    return Locality.FLEET


def _words(names: Texts) -> tuple[str, ...]:
    return tuple(str(name) for name in names)


def _storage(terrain: Terrain, nodes: Ints) -> str:
    """Return the storage endpoint that all of the nodes use; empty where they differ."""
    rows = set(terrain.cluster.fleet.nodes.storage[nodes].tolist())
    if len(rows) > 1 or -1 in rows:
        return ""
    return str(terrain.cluster.fleet.storage.paths[rows.pop()])


def _warnings(request: Request, placement: Placement) -> tuple[str, ...]:
    if placement.locality <= request.preferred:
        return ()
    preferred, found = (each.name.lower().replace("_", " ") for each in (
        request.preferred, placement.locality
    ))  # fmt: skip
    return (f"it prefers to stand within one {preferred}, and stands within one {found}",)
