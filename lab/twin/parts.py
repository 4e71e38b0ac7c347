"""The parts of a twin: the constants of every GPU, node, rack and cooling zone, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.fleet import GPUS_PER_NODE, Fleet

Array = NDArray[np.float64]

#: One GPU in so many is a lemon: badly seated, hotter and slower than its neighbors.
GPUS_PER_LEMON = 1500
LEMON_RESISTANCE_FACTOR = 1.75
LEMON_TOP_CLOCK = 0.93


@dataclass(frozen=True)
class Parts:
    """The constants of parts: one value for each GPU, unless the name says node, rack or zone."""

    idle_w: Array
    #: At full clock: of one that is awake, and on top of it by a full load.
    awake_w: Array
    dynamic_w: Array
    #: The curve of power over clock: what is drawn at any, and how the rest falls with it.
    standing_w: Array
    linear_share: Array
    exponent: Array
    rated_w: Array
    power_limit_w: Array
    slowdown_c: Array
    slowdown_mem_c: Array
    shutdown_c: Array
    sm_max_mhz: Array
    sm_idle_mhz: Array
    mem_mhz: Array
    mem_bytes: Array
    resistance_c_per_w: Array
    capacitance_j_per_c: Array
    fast_resistance_c_per_w: Array
    fast_time_s: Array
    nvlink_bytes_per_s: Array
    pcie_bytes_per_s: Array
    nic_bytes_per_s: Array
    #: Of GPUs that breathe (or are fed) what others have warmed.
    inlet_offset_c: Array
    top_clock: Array
    node_host_rated_w: Array
    node_host_idle_w: Array
    node_psu_loss_share: Array
    node_cpu_mem_bytes: Array
    rack_budget_w: Array
    rack_offset_c: Array
    zone_capacity_w: Array
    zone_supply_c: Array


def make_parts(fleet: Fleet, rng: np.random.Generator) -> Parts:
    """Draw the parts of ``fleet``: no two GPUs are quite alike, and a few are lemons."""
    count = fleet.gpu_count
    rack_of_gpu = np.repeat(fleet.rack_of_node, GPUS_PER_NODE)
    kinds = [rack.kind for rack in fleet.racks]
    gpus, hosts = [kind.gpu for kind in kinds], [kind.host for kind in kinds]

    def per_gpu(values: list[float]) -> Array:
        return np.array(values, dtype=np.float64)[rack_of_gpu]

    def per_node(values: list[float]) -> Array:
        return np.array(values, dtype=np.float64)[fleet.rack_of_node]

    lemons = rng.choice(count, size=max(1, count // GPUS_PER_LEMON), replace=False)
    resistance = per_gpu([k.gpu.resistance_c_per_w * k.resistance_factor for k in kinds])
    resistance *= rng.normal(1.0, 0.04, count).clip(0.9, 1.12)
    resistance[lemons] *= LEMON_RESISTANCE_FACTOR
    top_clock = np.ones(count)
    top_clock[lemons] = LEMON_TOP_CLOCK
    rear = np.arange(count) % GPUS_PER_NODE >= GPUS_PER_NODE // 2
    first_rack_of_row = np.unique(fleet.row_of_rack, return_index=True)[1]
    zone_racks_w = np.array([kind.zone_capacity_w_per_rack for kind in kinds])
    idle_w = per_gpu([g.idle_w for g in gpus]) * rng.normal(1.0, 0.03, count).clip(0.9, 1.1)
    # Chips that leak more draw more at any clock.
    leaks = rng.normal(1.0, 0.02, count).clip(0.9, 1.1)
    curves = [gpu.power_curve for gpu in gpus]
    return Parts(
        idle_w=idle_w,
        awake_w=per_gpu([g.awake_w for g in gpus]) * leaks,
        dynamic_w=per_gpu([g.dynamic_w for g in gpus])
        * rng.normal(1.0, 0.02, count).clip(0.9, 1.1),
        standing_w=per_gpu([g.rated_w * c.static_share for g, c in zip(gpus, curves, strict=True)])
        * leaks,
        linear_share=per_gpu([c.linear_share for c in curves]),
        exponent=per_gpu([c.exponent for c in curves]),
        rated_w=per_gpu([g.rated_w for g in gpus]),
        power_limit_w=per_gpu([rack.power_limit_w for rack in fleet.racks]),
        slowdown_c=per_gpu([g.slowdown_c for g in gpus]),
        slowdown_mem_c=per_gpu(
            [np.inf if g.slowdown_mem_c is None else g.slowdown_mem_c for g in gpus]
        ),
        shutdown_c=per_gpu([g.shutdown_c for g in gpus]),
        sm_max_mhz=per_gpu([g.sm_max_mhz for g in gpus]),
        sm_idle_mhz=per_gpu([g.sm_idle_mhz for g in gpus]),
        mem_mhz=per_gpu([g.mem_mhz for g in gpus]),
        mem_bytes=per_gpu([g.mem_bytes for g in gpus]),
        resistance_c_per_w=resistance,
        capacitance_j_per_c=per_gpu([g.capacitance_j_per_c for g in gpus]),
        fast_resistance_c_per_w=per_gpu([g.fast_resistance_c_per_w for g in gpus]),
        fast_time_s=per_gpu([g.fast_time_s for g in gpus]),
        nvlink_bytes_per_s=per_gpu([g.nvlink_bytes_per_s or np.nan for g in gpus]),
        pcie_bytes_per_s=per_gpu([g.pcie_bytes_per_s for g in gpus]),
        nic_bytes_per_s=per_gpu([g.nic_bytes_per_s for g in gpus]),
        inlet_offset_c=np.where(rear, per_gpu([COOLING[k.cooling].rear_c for k in kinds]), 0.0),
        top_clock=top_clock,
        node_host_rated_w=per_node([h.rated_w for h in hosts]),
        node_host_idle_w=per_node([h.idle_w for h in hosts]),
        node_psu_loss_share=per_node([h.psu_loss_share for h in hosts]),
        node_cpu_mem_bytes=per_node([h.cpu_mem_bytes for h in hosts]),
        rack_budget_w=np.array([rack.budget_w for rack in fleet.racks]),
        rack_offset_c=rng.uniform(0.0, 1.5, len(fleet.racks)),
        zone_capacity_w=total(fleet.row_of_rack, zone_racks_w, len(fleet.rows)),
        zone_supply_c=np.array([fleet.racks[i].kind.supply_c for i in first_rack_of_row]),
    )


def total(group: NDArray[np.intp], values: Array, groups: int) -> Array:
    """Return the sum of ``values`` for each of ``groups`` groups."""
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64, copy=False)


@dataclass(frozen=True, kw_only=True)
class Cooling:
    """How heat leaves racks of one kind of cooling."""

    #: How slowly what enters a rack follows its zone's supply.
    settles_s: float
    #: What the air or the coolant of a rack warms on its way past it and its neighbors, at budget.
    recirculation_c: float
    #: What the second row of GPUs gets warmer than the first.
    rear_c: float
    #: Heat that the room, its air or its loop holds, for each rack: without any cooling it warms by
    #: the racks' power over this, and no faster.
    heat_j_per_c_per_rack: float


#: By the kinds of zones in the inventory. Set by the masses that hold the heat (the air of a
#: contained aisle and the metal around it, a loop of some 50 l a rack, a tank of 1,000 l of oil),
#: not measured.
COOLING = {
    "air": Cooling(settles_s=180.0, recirculation_c=3.0, rear_c=3.0, heat_j_per_c_per_rack=4e5),
    "rear-door": Cooling(
        settles_s=180.0, recirculation_c=3.0, rear_c=3.0, heat_j_per_c_per_rack=5e5
    ),
    "direct-to-chip": Cooling(
        settles_s=40.0, recirculation_c=0.0, rear_c=1.0, heat_j_per_c_per_rack=2.5e5
    ),
    "immersion": Cooling(
        settles_s=600.0, recirculation_c=0.0, rear_c=0.0, heat_j_per_c_per_rack=2e6
    ),
}
