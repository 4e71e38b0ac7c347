"""A twin set up like a published measurement, and meters to read it with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.fleet import GPUS_PER_NODE, NODES_PER_RACK, RACKS_PER_ROW, Fleet, Rack, RowKind
from lab.hardware import GpuModel, HostModel
from lab.training import NEVER_S, JobKind
from lab.twin import Twin

Array = NDArray[np.float64]

#: A wall meter gives the mean over this long, each at instants of its own.
METER_S = 2.0
#: So long after each other: the mean of the first run of each kind. So meters and steps of a job
#: drift against each other.
READ_EVERY_S = 2.005
#: Step of the twin.
STEP_S = 0.5
#: More than anything here draws or gives off: what is measured is not held back by it.
_AMPLE_W = 1e6


@dataclass(frozen=True)
class Metered:
    """Power of nodes read by meters: each row is one reading, each column a node.

    Reading ``i`` of a node is the mean over :data:`METER_S` up to ``t_s[i]`` of that node.
    """

    t_s: Array
    power_w: Array


def row_kind(
    gpu: GpuModel,
    host: HostModel,
    *,
    power_limits_w: tuple[float, ...] | None = None,
    supply_c: float = 25.0,
    cooling: str = "immersion",
    resistance_factor: float = 1.0,
) -> RowKind:
    """Return a kind of row without a budget or a cooling capacity that anything comes near to."""
    return RowKind(
        name="measured",
        gpu=gpu,
        host=host,
        power_limits_w=power_limits_w or (gpu.rated_w,),
        budgets_w=(_AMPLE_W,),
        cooling=cooling,
        zone_capacity_w_per_rack=_AMPLE_W,
        supply_c=supply_c,
        resistance_factor=resistance_factor,
        occupancy=0.0,
        mix=(("train", 1.0),),
    )


def fleet_of(kind: RowKind, nodes: int, *, racks_per_row: int = RACKS_PER_ROW) -> Fleet:
    """Return a fleet of ``nodes`` nodes, full racks first."""
    racks = -(-nodes // NODES_PER_RACK)
    return Fleet(
        tuple(
            Rack(
                site="measured",
                row=f"R{at // racks_per_row + 1}-",
                position=at % racks_per_row,
                kind=kind,
                nodes=min(NODES_PER_RACK, nodes - at * NODES_PER_RACK),
            )
            for at in range(racks)
        )
    )


@dataclass(frozen=True)
class Rig:
    """A twin on which nothing runs but tasks, and those of its nodes that are measured."""

    twin: Twin
    nodes: NDArray[np.intp]

    @property
    def gpus(self) -> NDArray[np.intp]:
        """The GPUs of the measured nodes."""
        return (GPUS_PER_NODE * self.nodes[:, None] + np.arange(GPUS_PER_NODE)).ravel()

    @property
    def power_w(self) -> Array:
        """Power of these GPUs."""
        return np.asarray(self.twin.power_w[self.gpus])

    @property
    def temp_c(self) -> Array:
        """Temperature of these GPUs."""
        return np.asarray(self.twin.temp_c[self.gpus])

    @property
    def temp_mem_c(self) -> Array:
        """Temperature of the memory of these GPUs."""
        return np.asarray(self.twin.temp_mem_c[self.gpus])

    @property
    def clock(self) -> Array:
        """Clock of these GPUs, as a share of the highest."""
        return np.asarray(self.twin.clock[self.gpus])


def idle_twin(fleet: Fleet, *, seed: int) -> Twin:
    """Return a twin on which nothing runs but tasks."""
    return Twin(fleet, seed=seed, queued=np.ones(len(fleet.nodes), dtype=np.bool_))


def rig_of(kind: RowKind, nodes: int, *, seed: int) -> Rig:
    """Return a rig of ``nodes`` nodes without a lemon among their GPUs.

    A fleet has at least one lemon, which would be one of eight here: there are nodes to spare.
    """
    twin = idle_twin(fleet_of(kind, nodes + 1 + nodes // 50), seed=seed)
    slow = (twin.parts.top_clock < 1.0).reshape(-1, GPUS_PER_NODE).any(axis=1)
    return Rig(twin, np.flatnonzero(~slow)[:nodes])


def steady_kind(activity: float, *, mem_share: float = 0.5) -> JobKind:
    """Return a kind of job that does the same all the time, from its start on."""
    return JobKind(
        name="steady",
        stems=("steady",),
        nodes=(1,),
        activity=(activity, activity),
        comm_activity=1.0,
        period_s=(10.0, 10.0),
        comm_share=(0.0, 0.0),
        checkpoint_every_s=(NEVER_S, NEVER_S),
        checkpoint_s=(1.0, 1.0),
        warmup_s=(0.0, 0.0),
        mean_life_s=NEVER_S,
        mem_share=(mem_share, mem_share),
    )


def begin(twin: Twin, kind: JobKind, gpus: NDArray[np.intp]) -> int:
    """Begin a task of ``kind`` on ``gpus`` and return its slot."""
    nodes = -(-len(gpus) // GPUS_PER_NODE)
    slot = twin.workload.begin_task(kind.name, kind, twin.now_s, nodes=nodes)
    if slot is None:
        raise ValueError("the twin has no slot left for a task: give it more nodes")
    twin.hold(gpus, slot)
    return slot


def metered(rig: Rig, duration_s: float, *, seed: int) -> Metered:
    """Advance the twin by ``duration_s`` and return the readings of each node's meter meanwhile."""
    steps = round(duration_s / STEP_S)
    drawn_w = np.empty((steps, len(rig.nodes)))
    for step in range(steps):
        rig.twin.advance(STEP_S)
        drawn_w[step] = rig.twin.node_w[rig.nodes]
    return _read(drawn_w, np.random.default_rng(seed))


def _read(drawn_w: Array, rng: np.random.Generator) -> Metered:
    """Return the means over each meter's spans; every meter begins at an instant of its own."""
    steps, nodes = drawn_w.shape
    readings = int((steps * STEP_S - 2.0 * METER_S) / READ_EVERY_S)
    first_s = rng.uniform(METER_S, 2.0 * METER_S, size=nodes)
    ends_s: Array = first_s + READ_EVERY_S * np.arange(readings, dtype=np.float64)[:, None]
    energy_j = np.vstack([np.zeros(nodes), np.cumsum(drawn_w * STEP_S, axis=0)])
    taken_j = _energy_j(energy_j, ends_s) - _energy_j(energy_j, ends_s - METER_S)
    return Metered(ends_s, taken_j / METER_S)


def _energy_j(energy_j: Array, at_s: Array) -> Array:
    """Return the energy of each node up to some moments; rows of ``energy_j`` are steps."""
    step = (at_s / STEP_S).astype(np.intp)
    part = at_s / STEP_S - step
    nodes = np.arange(energy_j.shape[1])
    before_j, after_j = energy_j[step, nodes], energy_j[step + 1, nodes]
    between_j: Array = before_j + part * (after_j - before_j)
    return between_j
