"""Requests to the solver, and its answers: one phase of a job as values."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from admission.core.reasons import Reason
from fleet.tables import FleetArrays

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: An artifact of an earlier phase of the same job: the phase, and the artifact's name there.
Taken = tuple[str, str]


class Locality(enum.IntEnum):
    """How close together a gang stands, the closest first."""

    NODE = 0
    RACK = 1
    SWITCH_DOMAIN = 2
    ZONE = 3
    SITE = 4
    #: sites may differ
    FLEET = 5


@dataclass(frozen=True, kw_only=True)
class Request:
    """One phase that wants to run. Names are the inventory's; empty means "any"."""

    #: "job/phase", unique
    key: str
    job: str
    phase: str
    project: str
    job_class: str
    #: larger is more urgent; the class has added its own
    priority: int
    #: who submitted its job; empty: nobody whose limits count
    user: str = ""
    #: Unix seconds
    submitted_at: float
    #: Unix seconds by which it should begin; None: none
    deadline_at: float | None = None

    gpus: int
    #: MIG profile of the slice that it takes in place of a GPU, such as "1g.10gb"; empty: GPUs
    slice: str = ""
    #: its ``gpus`` are CPU cores of nodes that have no GPUs, and its ``models`` those of nodes
    cores: bool = False
    #: what one of its ``gpus`` counts for against quotas and shares, of a GPU
    gpu_share: float = 1.0
    #: the fewest it runs with; equal to ``gpus`` where it is not elastic
    min_gpus: int
    #: the most that it grows to once it runs; None: ``gpus``
    max_gpus: int | None = None
    #: GPUs on each node that it uses; None: as it comes
    gpus_per_node: int | None = None
    #: hardware models that it takes
    models: tuple[str, ...] = ()
    cooling: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    #: the only ones that it may use
    nodes: tuple[str, ...] = ()
    #: the scheduler on whose nodes alone it runs; empty: nodes that no scheduler has
    executor: str = ""

    #: expected peak of each GPU, W; None: what its model is rated for
    gpu_peak_w: float | None = None
    #: the lowest power cap that it accepts; None: none
    lowest_cap_w: float | None = None
    #: work lost to a cap that it accepts at most, as a share of its speed
    max_slowdown: float = 0.0
    #: predicted margin to slowdown that each of its GPUs has to keep, °C
    thermal_margin_c: float = 0.0

    required: Locality = Locality.FLEET
    preferred: Locality = Locality.FLEET
    #: spread evenly over the parts that it stands on
    balanced: bool = False
    #: what it reads over the WAN if it is not where its data is, bit/s
    cross_site_bits_per_s: float = 0.0
    data_site: str = ""
    #: "site/name" of the storage endpoint that it uses, and how much, byte/s
    storage: str = ""
    storage_bytes_per_s: float = 0.0
    #: of each step, for the ratio of communication to computing; None: not known
    collective_bytes_per_step: float | None = None
    step_s: float | None = None

    walltime_s: float
    preemptible: bool = False
    #: between checkpoints, s; None: it writes none
    checkpoint_interval_s: float | None = None
    cross_site_checkpoint: bool = False

    #: "price" or "carbon": it prefers sites and hours of little; empty: any will do
    prefers: str = ""
    #: it agrees to begin so much later than it could, for such an hour, s
    may_wait_s: float = 0.0

    #: artifacts of earlier phases that it takes
    takes: tuple[Taken, ...] = ()
    #: sites where all of these are; empty: any, or it takes none
    artifact_sites: tuple[str, ...] = ()
    #: it promotes them: it waits until copies are wherever they are wanted
    promotes: bool = False
    #: results of matrices that have to have passed before
    matrices: tuple[Taken, ...] = ()

    def counted(self, gpus: int) -> float:
        """Return what so many of its GPUs, slices or cores count for, in GPUs."""
        return gpus * self.gpu_share

    @property
    def least_gpus(self) -> int:
        """The fewest that it runs with, in whole steps where it wants so many of a node."""
        step = self.gpus_per_node or 1
        return -(-self.min_gpus // step) * step

    @property
    def most_gpus(self) -> int:
        """The most that it grows to."""
        return self.gpus if self.max_gpus is None else self.max_gpus

    @property
    def is_elastic(self) -> bool:
        """Whether it runs on more than one number of GPUs."""
        return self.min_gpus < self.most_gpus

    @property
    def unit(self) -> str:
        """What it asks for so many of."""
        if self.cores:
            return "cores"
        return "slices" if self.slice else "GPUs"

    @property
    def may_carry(self) -> bool:
        """Whether it may use links or storage, by its data or its collectives."""
        return bool(self.data_site or self.collective_bytes_per_step or self.storage)

    def told(self, gpus: int) -> str:
        """Return so many of its GPUs, slices or cores in words."""
        if self.slice:
            return f"{gpus} {self.slice} slice{'' if gpus == 1 else 's'}"
        return f"{gpus} {self.unit}"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The GPUs of a gang, with cap, reserved power and labels.

    ``gpus`` are rows of the inventory's GPU table by what can be held (``fleet.slicing``),
    ``nodes`` those of the node table, each sorted;
    ``peak_w`` is what the gang reserves on each node of ``nodes``, hosts included, W.
    """

    gpus: tuple[int, ...]
    nodes: tuple[int, ...]
    peak_w: tuple[float, ...]
    #: per GPU, W; None: none
    power_cap_w: float | None
    #: predicted, as a share of its speed without the cap and with all of its GPUs
    slowdown: float
    locality: Locality
    #: names, for labels
    sites: tuple[str, ...]
    racks: tuple[str, ...]
    switch_domains: tuple[str, ...]
    storage: str
    #: ratio of communication to computing and the model behind it; None: not known
    comm_ratio: float | None = None
    comm_model: str = ""
    warnings: tuple[str, ...] = ()

    @cached_property
    def total_w(self) -> float:
        return float(sum(self.peak_w))

    @cached_property
    def gpu_rows(self) -> Ints:
        """``gpus`` as an array, made once: a cycle asks for it again and again."""
        return np.array(self.gpus, dtype=np.int64)

    @cached_property
    def node_rows(self) -> Ints:
        """``nodes`` as an array."""
        return np.array(self.nodes, dtype=np.int64)

    @cached_property
    def node_peak_w(self) -> Floats:
        """``peak_w`` as an array, by node of ``nodes``, W."""
        return np.array(self.peak_w, dtype=np.float64)


@dataclass(frozen=True)
class Refusal:
    """Why a request does not fit now: all reasons, at least one."""

    reasons: tuple[Reason, ...]


# --- As attempts keep it -------------------------------------------------------------------------


def placement_as_json(placement: Placement, fleet: FleetArrays) -> dict[str, Any]:
    """Return a placement for the database: by names, since rows move with the inventory."""
    names, parts = fleet.nodes.names, fleet.parts
    gpus: dict[str, list[int]] = {str(names[row]): [] for row in placement.nodes}
    cores: dict[str, list[int]] = {}
    for row in placement.gpus:
        node, index = str(names[fleet.gpus.node[row]]), int(fleet.gpus.index[row])
        if parts is not None and parts.is_core[row]:
            cores.setdefault(node, []).append(index)
        else:
            gpus[node].append(index)
    return {
        "nodes": list(gpus),
        "gpus": gpus,
        **({"cores": cores} if cores else {}),
        **_slices_as_json(placement, fleet),
        "peak_w": dict(zip(gpus, placement.peak_w, strict=True)),
        "power_cap_w": placement.power_cap_w,
        "total_w": placement.total_w,
        "slowdown": placement.slowdown,
        "locality": placement.locality.name,
        "sites": list(placement.sites),
        "racks": list(placement.racks),
        "switch_domains": list(placement.switch_domains),
        "storage": placement.storage,
        "comm_ratio": placement.comm_ratio,
        "comm_model": placement.comm_model,
        "warnings": list(placement.warnings),
    }


def _slices_as_json(placement: Placement, fleet: FleetArrays) -> dict[str, Any]:
    """Return the slices that a placement has on each node, in order of its GPUs; {}: none."""
    parts = fleet.parts
    rows = [] if parts is None else [row for row in placement.gpus if parts.place[row] >= 0]
    if parts is None or not rows:
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        place = int(parts.place[row])
        profiles = parts.whole.slices[int(parts.gpu[row])]
        found.setdefault(str(fleet.nodes.names[fleet.gpus.node[row]]), []).append(
            {"profile": profiles[place], "place": place}
        )
    return {"slices": found}


def placement_from_json(document: dict[str, Any], fleet: FleetArrays) -> Placement:
    """Return a stored placement as the solver has it, without parts gone from the inventory.

    On a GPU that was split since, it has all of its slices.
    """
    row_of = fleet.nodes.index_by_name
    nodes = sorted((row_of[name], name) for name in document["nodes"] if name in row_of)
    gpus = [row for _, name in nodes for row in rows_on(name, document, fleet)]
    return Placement(
        gpus=tuple(sorted(gpus)),
        nodes=tuple(row for row, _ in nodes),
        peak_w=tuple(float(document["peak_w"][name]) for _, name in nodes),
        power_cap_w=document["power_cap_w"],
        slowdown=document.get("slowdown", 0.0),
        locality=Locality[document.get("locality", "FLEET")],
        sites=tuple(document["sites"]),
        racks=tuple(document["racks"]),
        switch_domains=tuple(document["switch_domains"]),
        storage=document["storage"],
        comm_ratio=document.get("comm_ratio"),
        comm_model=document.get("comm_model", ""),
        warnings=tuple(document.get("warnings", ())),
    )


def rows_on(node: str, document: dict[str, Any], fleet: FleetArrays) -> list[int]:
    """Return the rows of what a stored placement has on one of its nodes."""
    if (cores := document.get("cores", {}).get(node)) is not None:
        row_of = fleet.core_rows
        return [row_of[node, index] for index in cores if (node, index) in row_of]
    gpus, slices = document["gpus"][node], document.get("slices", {}).get(node)
    if fleet.parts is None:
        gpu_of = fleet.gpu_index_by_node
        return [gpu_of[node, index] for index in gpus if (node, index) in gpu_of]
    if slices is not None:
        keys = [(node, gpu, each["place"]) for gpu, each in zip(gpus, slices, strict=True)]
        return [fleet.gpu_rows_by_place[key] for key in keys if key in fleet.gpu_rows_by_place]
    whole, gpu_of = fleet.parts.gpu, fleet.parts.whole.gpu_index_by_node
    named = [gpu_of[node, index] for index in gpus if (node, index) in gpu_of]
    return np.flatnonzero(np.isin(whole, named)).tolist()
