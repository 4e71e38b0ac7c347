"""The inventory by what can be held: a GPU is one row, a partitioned one has a row for each slice.

Everything else is as it was. A slice is a GPU of a hardware model of its own, such as
``NVIDIA H100 80GB HBM3 1g.10gb``, which is rated for its share of what its GPU is rated for. What
of a partitioned GPU belongs to no slice is a row, too, that nobody can ask for: what the rows of a
GPU draw adds up to what the GPU draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fleet.partitions import profiles_of
from fleet.tables import FleetArrays, GpuTable, Ints, ModelTable, PartTable
from physics.partitions import shares

__all__ = ["REST", "model_name", "sliced"]

#: Stands for a profile where a part of a partitioned GPU belongs to none of its slices.
REST = "rest"


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
    """Return ``fleet`` by what can be held: itself where no GPU is partitioned."""
    if not fleet.slices:
        return fleet
    parts = list(_parts(fleet))
    models, row_of = _with_slices(fleet, parts)
    gpu = np.array([each.gpu for each in parts], dtype=np.int64)
    share = np.array([each.share for each in parts])
    model = np.array(
        [row_of.get((int(fleet.gpus.model[each.gpu]), each.profile), -1) for each in parts]
    )
    return replace(
        fleet,
        models=models,
        gpus=_gpus(fleet.gpus, gpu, np.where(model >= 0, model, fleet.gpus.model[gpu]), share),
        slices={},
        parts=PartTable(fleet, gpu, share, np.array([each.place for each in parts])),
    )


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
    share = np.array(list(found.values()))
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
