"""The inventory by what can be held: a GPU is one row, a partitioned one has a row for each slice.

And each CPU core of a node without GPUs is one, where the inventory states how many it has.
Everything else is as it was. A slice is a GPU of a hardware model of its own, such as
``NVIDIA H100 80GB HBM3 1g.10gb``, which is rated for its share of what its GPU is rated for. What
of a partitioned GPU belongs to no slice is a row, too, that nobody can ask for: what the rows of a
GPU draw adds up to what the GPU draws. A core is of a model such as ``EPYC 9654 core``, rated for
its share of what its node may draw beyond idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from fleet.partitions import profiles_of
from fleet.tables import FleetArrays, Floats, GpuTable, Ints, ModelTable, PartTable
from physics.partitions import shares

__all__ = ["CORE", "REST", "holdable", "model_name", "sliced"]

#: Stands for a profile where a part of a partitioned GPU belongs to none of its slices.
REST = "rest"
#: Stands for a profile of what nodes without GPUs hand out.
CORE = "core"
#: In place of the id of a GPU where it is none: larger than any, so that nothing was read of it.
_NO_ID = 2**62


@dataclass(frozen=True)
class _Part:
    gpu: int
    profile: str
    place: int
    share: float
    #: of its profile, however its GPU is split
    rated_share: float


def model_name(model: str, profile: str) -> str:
    """Return the name of the hardware model that slices of a GPU are of."""
    return f"{model} {profile}"


@lru_cache(maxsize=4)
def sliced(fleet: FleetArrays) -> FleetArrays:
    """Return ``fleet`` by GPUs and slices: itself where no GPU is partitioned."""
    return _by_parts(fleet, {}) if fleet.slices else fleet


@lru_cache(maxsize=4)
def holdable(fleet: FleetArrays) -> FleetArrays:
    """Return ``fleet`` by all that can be held: :func:`sliced` where no node hands out cores."""
    return _by_parts(fleet, fleet.cores) if fleet.cores else sliced(fleet)


def _by_parts(fleet: FleetArrays, cores: Mapping[int, int]) -> FleetArrays:
    parts = list(_parts(fleet))
    models, row_of = _with_slices(fleet, parts)
    gpu = np.array([each.gpu for each in parts], dtype=np.int64)
    share = np.array([each.share for each in parts], dtype=np.float64)
    place = np.array([each.place for each in parts], dtype=np.int64)
    model = np.array(
        [row_of.get((int(fleet.gpus.model[each.gpu]), each.profile), -1) for each in parts],
        dtype=np.int64,
    )
    gpus = _gpus(fleet.gpus, gpu, np.where(model >= 0, model, fleet.gpus.model[gpu]), share)
    if cores:
        models, more, of_node = _cores(fleet, models, cores)
        gpus, order = _in_order(gpus, more)
        none = np.full(len(more), -1)
        gpu, place = np.append(gpu, none)[order], np.append(place, none)[order]
        share = np.append(share, of_node)[order]
    return replace(
        fleet,
        models=models,
        gpus=gpus,
        slices={},
        cores={},
        parts=PartTable(fleet, gpu, share, place),
    )


def _cores(
    fleet: FleetArrays, models: ModelTable, cores: Mapping[int, int]
) -> tuple[ModelTable, GpuTable, Floats]:
    """Return the models with those of cores, the cores as rows, and the share of its node of each.

    All nodes of a model have as many cores, so that their cores are of one model, too.
    """
    node = np.array(sorted(cores), dtype=np.int64)
    count = np.array([cores[row] for row in node.tolist()], dtype=np.int64)
    kinds, first, kind = np.unique(fleet.nodes.model[node], return_index=True, return_inverse=True)
    idle_w = np.nan_to_num(models.idle_w[kinds])
    rated_w = np.maximum(models.rated_w[kinds] - idle_w, 0.0) / count[first]
    unknown = np.full(len(kinds), np.nan)
    names = [model_name(str(models.names[row]), CORE) for row in kinds]
    grown = ModelTable(
        ids=np.append(models.ids, np.full(len(kinds), -1)),
        names=np.append(models.names, np.array(names, dtype=np.object_)),
        rated_w=np.append(models.rated_w, rated_w),
        idle_w=np.append(models.idle_w, np.zeros(len(kinds))),
        slowdown_c=np.append(models.slowdown_c, unknown),
        slowdown_mem_c=np.append(models.slowdown_mem_c, unknown),
        shutdown_c=np.append(models.shutdown_c, unknown),
        sm_max_mhz=np.append(models.sm_max_mhz, unknown),
    )
    model, rows = len(models) + np.repeat(kind, count), int(count.sum())
    unknown = np.full(rows, np.nan)
    begin = np.cumsum(count) - count
    made = GpuTable(
        ids=np.full(rows, _NO_ID),
        node=np.repeat(node, count),
        index=np.arange(rows) - np.repeat(begin, count),
        model=model,
        rated_w=grown.rated_w[model],
        idle_w=np.zeros(rows),
        slowdown_c=unknown.copy(),
        slowdown_mem_c=unknown.copy(),
        shutdown_c=unknown.copy(),
        sm_max_mhz=unknown.copy(),
    )
    return grown, made, np.repeat(1.0 / count, count)


def _in_order(gpus: GpuTable, more: GpuTable) -> tuple[GpuTable, Ints]:
    """Return the rows of both by node, and the order in which they stand one after the other."""
    order = np.argsort(np.append(gpus.node, more.node), kind="stable")
    columns = {
        each.name: np.append(getattr(gpus, each.name), getattr(more, each.name))[order]
        for each in fields(gpus)
    }
    return GpuTable(**columns), order


def _parts(fleet: FleetArrays) -> Iterator[_Part]:
    names = fleet.models.names[fleet.gpus.model].tolist()
    for gpu, name in enumerate(names):
        if gpu not in fleet.slices:
            yield _Part(gpu, "", -1, 1.0, 1.0)
            continue
        profiles, left = [profiles_of(name)[each] for each in fleet.slices[gpu]], 1.0
        for place, (each, share) in enumerate(zip(profiles, shares(profiles), strict=True)):
            yield _Part(gpu, each.profile, place, share, each.share)
            left -= share
        if left > 0.0:
            yield _Part(gpu, REST, -1, left, 1.0)


def _with_slices(
    fleet: FleetArrays, parts: list[_Part]
) -> tuple[ModelTable, Mapping[tuple[int, str], int]]:
    """Return the hardware models with those of slices, and the rows of these by model and profile.

    New rows have no id: nothing but solvers knows of them.
    """
    models = fleet.models
    found = {(int(fleet.gpus.model[e.gpu]), e.profile): e.rated_share for e in parts if e.profile}
    of = np.array([model for model, _ in found], dtype=np.int64)
    share = np.array(list(found.values()), dtype=np.float64)
    names = [model_name(str(models.names[model]), profile) for model, profile in found]
    grown = ModelTable(
        ids=np.append(models.ids, np.full(len(of), -1)),
        names=np.append(models.names, np.array(names, dtype=np.object_)),
        rated_w=np.append(models.rated_w, share * models.rated_w[of]),
        idle_w=np.append(models.idle_w, share * models.idle_w[of]),
        slowdown_c=np.append(models.slowdown_c, models.slowdown_c[of]),
        slowdown_mem_c=np.append(models.slowdown_mem_c, models.slowdown_mem_c[of]),
        shutdown_c=np.append(models.shutdown_c, models.shutdown_c[of]),
        sm_max_mhz=np.append(models.sm_max_mhz, models.sm_max_mhz[of]),
    )
    return grown, {key: len(models) + place for place, key in enumerate(found)}


def _gpus(gpus: GpuTable, gpu: Ints, model: Ints, share: np.ndarray) -> GpuTable:
    return GpuTable(
        ids=gpus.ids[gpu],
        node=gpus.node[gpu],
        index=gpus.index[gpu],
        model=model,
        rated_w=share * gpus.rated_w[gpu],
        idle_w=share * gpus.idle_w[gpu],
        slowdown_c=gpus.slowdown_c[gpu],
        slowdown_mem_c=gpus.slowdown_mem_c[gpu],
        shutdown_c=gpus.shutdown_c[gpu],
        sm_max_mhz=gpus.sm_max_mhz[gpu],
    )
