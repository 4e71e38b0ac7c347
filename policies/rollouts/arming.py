"""Which racks a step changes: those named, all of a site, or a share that is like the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays
from policies.headroom.evaluate import Headroom
from policies.rollouts.arms import Arms, Racks, choose
from policies.rollouts.document import Plan

__all__ = ["NoRacks", "arms_of"]

Bools = NDArray[np.bool_]


class NoRacks(ValueError):
    """A step cannot be taken: there are no such racks, or none to compare with."""


def arms_of(
    plan: Plan, step: int, headroom: Headroom, changed: Bools, *, seed: int
) -> tuple[Bools, Arms | None]:
    """Return the racks that a step adds, and the arms with all that have the change then.

    ``changed``: racks that have it already. No arms: nothing is left to compare with. Raises
    :class:`NoRacks`.
    """
    fleet, wanted = headroom.fleet, plan.steps[step]
    eligible = _eligible(plan, fleet)
    gpus = np.bincount(fleet.nodes.rack[fleet.gpus.node], minlength=len(eligible))
    if wanted.is_all:
        return _some(eligible & ~changed), None
    named = None
    if wanted.racks or wanted.site:
        named = _named(fleet, wanted.racks, wanted.site)
    racks = _racks(headroom, gpus.astype(np.float64), eligible & ~changed)
    try:
        if named is None:
            most = (wanted.share or 0.0) * gpus[eligible].sum() - gpus[eligible & changed].sum()
            added = choose(racks, gpus=max(float(most), 1.0), seed=seed).canary
        else:
            added = _some(named & eligible & ~changed)
        racks.eligible[:] = eligible
        return added, choose(racks, gpus=0.0, seed=seed, fixed=(added | changed) & eligible)
    except ValueError as error:
        raise NoRacks(str(error)) from error


def _some(racks: Bools) -> Bools:
    if not racks.any():
        raise NoRacks("it names no rack that the rollout is about and that is not changed yet")
    return racks


def _named(fleet: FleetArrays, paths: tuple[str, ...], site: str) -> Bools:
    if site:
        return np.asarray(fleet.sites.names[fleet.racks.site] == site)
    unknown = sorted(set(paths) - set(fleet.racks.paths.tolist()))
    if unknown:
        raise NoRacks(f"there is no rack {unknown[0]}")
    return np.isin(fleet.racks.paths.astype(str), list(paths))


def _eligible(plan: Plan, fleet: FleetArrays) -> Bools:
    """Say of each rack whether the rollout is about it: it has GPUs, of the sites and models."""
    rack = fleet.nodes.rack[fleet.gpus.node]
    is_model = np.ones(len(rack), np.bool_)
    if plan.models:
        is_model = np.isin(fleet.models.names[fleet.gpus.model].astype(str), list(plan.models))
    found = np.bincount(rack[is_model], minlength=len(fleet.racks.ids)) > 0
    if plan.sites:
        found &= np.isin(fleet.sites.names[fleet.racks.site].astype(str), list(plan.sites))
    return found


def _racks(headroom: Headroom, gpus: NDArray[np.float64], eligible: Bools) -> Racks:
    """Return what is known of racks. Nobody states how old they are."""
    fleet, summary, count = headroom.fleet, headroom.summary, len(gpus)
    rack = fleet.nodes.rack[fleet.gpus.node]
    model = np.zeros(count, dtype=np.int64)
    model[rack] = fleet.gpus.model
    zone = fleet.racks.zone
    kinds = np.append(fleet.zones.kind, -1)
    budget_w = np.where(fleet.racks.budget_w > 0.0, fleet.racks.budget_w, np.nan)
    used = summary.gpus.load_w / np.maximum(fleet.gpus.rated_w, 1.0)
    mean = np.bincount(rack, np.nan_to_num(used), count) / np.maximum(gpus, 1.0)
    return Racks(
        gpus=gpus,
        model=model,
        cooling=kinds[zone] + 1,
        age_days=np.full(count, np.nan),
        load=np.stack([summary.racks.load_w / budget_w, mean], axis=1),
        load_names=("draw over budget", "draw of GPUs over their rating"),
        eligible=eligible.copy(),
    )
