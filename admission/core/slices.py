"""Headroom by what can be held: what a GPU or a node draws, told apart by its parts. Pure.

NVML reads the power of a GPU as a whole. What it draws at rest is each slice's by its share. What
it draws above that is theirs who hold a slice of it, by their shares, as far as these slices are
rated for it; what is more is drawn on the others. Where nobody holds any, all have their share of
it. So what the slices of a GPU draw, with what belongs to none, adds up to what the GPU draws.

What a node without GPUs draws above its rest is told apart by its cores in the same way, where the
inventory states these. They are read while their node is, and heat and caps of GPUs are not theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from admission.core.placement.topology import Bools, Floats
from fleet.groups import sum_by
from fleet.slicing import holdable
from fleet.tables import FleetArrays, PartTable
from policies.headroom import thermal
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Limits, Past, ThermalFits
from telemetry.summary import FleetSummary, GpuSummary

__all__ = ["apportioned_w", "in_parts", "whole_w"]


def in_parts(headroom: Headroom, held: Bools) -> Headroom:
    """Return ``headroom`` of one moment by what can be held: itself where all of that are GPUs.

    ``held`` says of each row of that inventory whether an attempt has it.
    """
    fleet = holdable(headroom.fleet)
    parts = fleet.parts
    if parts is None or fleet is headroom.fleet:
        return headroom
    whole = headroom.summary.gpus
    nodes, node = headroom.summary.nodes, fleet.gpus.node
    is_core, stated = parts.is_core, parts.of_gpus(_as_stated(headroom, parts), True)
    readings = replace(headroom.readings, fleet=fleet)
    gpus = GpuSummary(
        readings=readings,
        load_w=_loads_w(headroom, fleet, parts, held),
        rated_w=np.where(
            is_core, fleet.gpus.rated_w, parts.share * parts.of_gpus(whole.rated_w, 0.0)
        ),
        ts=np.where(is_core, nodes.ts[node], parts.of_gpus(whole.ts, 0.0)),
        read=np.where(is_core, ~nodes.stale[node], parts.of_gpus(whole.read, False)),
        fresh=np.where(
            is_core,
            ~nodes.stale[node],
            parts.of_gpus(whole.fresh, False) & (~parts.is_split | stated),
        ),
    )
    past = _past(headroom.past, parts)
    return replace(
        headroom,
        readings=readings,
        limits=_limits(headroom.limits, parts),
        past=past,
        summary=_summary(headroom.summary, gpus),
        sources=_Sources(gpus, past, headroom.sources, parts),
    )


def _as_stated(headroom: Headroom, parts: PartTable) -> Bools:
    """Say of each GPU whether NVML counts as many instances as the inventory states slices.

    Where it does not, nobody knows what a slice of it is: it is as if it were not read.
    """
    ids = parts.whole.gpus.ids
    stated = np.zeros(len(ids), dtype=np.int64)
    for row, profiles in parts.whole.slices.items():
        stated[row] = len(profiles)
    return np.asarray(headroom.frame.fields("gpu", ids, "mig_instances")["mig_instances"] == stated)


def _loads_w(headroom: Headroom, fleet: FleetArrays, parts: PartTable, held: Bools) -> Floats:
    """Return what each part draws, W: of a core what its node draws above its rest, told apart."""
    whole, nodes = headroom.summary.gpus, headroom.summary.nodes
    found_w = apportioned_w(parts, whole.load_w, whole.rated_w, held)
    node, is_core = fleet.gpus.node, parts.is_core
    above_w = np.maximum(nodes.load_w - np.nan_to_num(fleet.nodes.host_idle_w), 0.0)
    count = len(fleet.nodes)
    rated_w = sum_by(np.where(is_core, fleet.gpus.rated_w, 0.0), node, count)
    of_held = sum_by(np.where(is_core, parts.share * held, 0.0), node, count)
    held_w, others_w = whole_w(above_w, np.zeros(count), rated_w, of_held)
    return np.where(is_core, parts.share * np.where(held, held_w[node], others_w[node]), found_w)


def apportioned_w(parts: PartTable, load_w: Floats, rated_w: Floats, held: Bools) -> Floats:
    """Return what each part draws, W, of what the GPUs of ``parts.whole`` draw and are rated for.

    ``held`` says of each part whether an attempt has it. NaN for cores, which are part of none.
    """
    idle_w, of_gpus = np.nan_to_num(parts.whole.gpus.idle_w), parts.of_gpus
    gpu, is_part = parts.gpu, ~parts.is_core
    of_held = sum_by((parts.share * held)[is_part], gpu[is_part], len(load_w))
    held_w, others_w = whole_w(load_w, idle_w, rated_w, of_held)
    found_w = parts.share * np.where(held, of_gpus(held_w, np.nan), of_gpus(others_w, np.nan))
    return np.where(parts.is_split, found_w, of_gpus(load_w, np.nan))


def whole_w(
    load_w: Floats, idle_w: Floats, rated_w: Floats, of_held: Floats
) -> tuple[Floats, Floats]:
    """Return what GPUs would draw if all of them did as the held slices do, or as the others do, W.

    A slice draws its share of that. ``of_held`` is the share of each GPU that is held, 0 to 1.
    """
    rest_w = np.minimum(idle_w, load_w)
    above_w, of_others = load_w - rest_w, np.maximum(1.0 - of_held, 0.0)
    most_w = of_held * np.maximum(rated_w - rest_w, 0.0)
    held_w = np.where(of_others > 0.0, np.minimum(above_w, most_w), above_w)
    nothing = np.zeros(len(load_w))
    per_held_w = np.divide(held_w, of_held, out=nothing.copy(), where=of_held > 0.0)
    per_other_w = np.divide(above_w - held_w, of_others, out=nothing, where=of_others > 0.0)
    return rest_w + per_held_w, rest_w + per_other_w


@dataclass(frozen=True, eq=False)
class _Sources(thermal.Sources):
    """Parts as sources of heat: of two halves of a GPU each warms it half as much per GPU."""

    whole: thermal.Sources
    of: PartTable

    @cached_property
    def parts(self) -> thermal.Parts:
        found, of = self.whole.parts, self.of
        by_part = {each.name: of.of_gpus(getattr(found, each.name), 0.0) for each in fields(found)}
        share = np.where(of.is_core, 1.0, of.share)
        return replace(
            thermal.Parts(**by_part),
            resistance_c_per_w=np.where(of.is_core, 1.0, by_part["resistance_c_per_w"] / share),
            capacitance_j_per_c=by_part["capacitance_j_per_c"] * share,
            # The heat of hosts has no limit of its own here: that of their zone holds.
            limit_c=np.where(of.is_core, np.inf, by_part["limit_c"]),
        )


def _limits(limits: Limits, parts: PartTable) -> Limits:
    return replace(limits, gpu_cap_w=parts.share * parts.of_gpus(limits.gpu_cap_w, np.inf))


def _past(past: Past, parts: PartTable) -> Past:
    fits = past.thermal
    by_part = {
        each.name: parts.of_gpus(getattr(fits, each.name), np.nan) for each in fields(ThermalFits)
    }
    still_s = parts.of_gpus(past.gpu_still_s, 0.0)
    return replace(past, thermal=ThermalFits(**by_part), gpu_still_s=still_s)


def _summary(summary: FleetSummary, gpus: GpuSummary) -> FleetSummary:
    nodes = replace(summary.nodes, each=gpus)
    racks = replace(summary.racks, each=nodes)
    return replace(
        summary, gpus=gpus, nodes=nodes, racks=racks, sites=replace(summary.sites, each=racks)
    )
