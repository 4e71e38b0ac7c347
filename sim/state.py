"""The physics of the twin: every GPU, node, rack and cooling zone, stepped as arrays.

One GPU goes round this loop in each step: its job asks for work; the lowest of its limits (power
cap, temperature, power brake) sets its clock; the clock and the work set its power; the power heats
it and its rack's air; and the heat comes back as a limit. The laws are those of ``physics``.

There is no wall clock and no global state here: the same fleet, seed and steps
give the same values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headroom.contracts import ThrottleCause
from physics.power import gpu_power_w, node_power_w, throughput_under_cap
from physics.thermal import power_at_temperature_w, rc_step_c
from sim.fleet import GPUS_PER_NODE, RACK_SWITCHES_W, Fleet
from sim.jobs import Load, Pool, Workload

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: NVML's clocks-event-reason bit of a GPU without work.
GPU_IDLE = 0x1

#: Clocks and heat react within seconds, so longer steps are cut up.
MAX_SUBSTEP_S = 2.0
#: A thermal limit, once met, holds until the part is this much cooler.
THERMAL_RELEASE_C = 3.0
#: The software thermal limit steers to this much below its threshold.
THERMAL_MARGIN_C = 1.0
#: How fast a clock that a limit has lowered creeps up again, as a share of the top clock: limits
#: act at once and let go slowly, or they would flutter with every phase of a job.
CLOCK_RISE_PER_S = 0.0002
#: Over its threshold by this much, the hardware's own thermal limit cuts in.
HW_THERMAL_OVER_C = 2.0
#: No limit but the power cap lowers a clock below this.
MIN_CLOCK = 0.2
#: Clock that the hardware falls to under its own thermal limit or a power brake.
HW_SLOWDOWN_CLOCK = 0.5
#: A rack's power brake: pulled above this share of its budget for so long, let go below that share.
BRAKE_PULL_SHARE = 1.03
BRAKE_PULL_S = 8.0
BRAKE_RELEASE_SHARE = 0.9
BRAKE_HOLD_S = 10.0
#: What a limit that somebody sets cannot go below, as a share of the power limit and of the top
#: clock: what drivers take.
LEAST_CAP_SHARE = 0.25
LEAST_CLOCK_SHARE = 0.1
#: After a brake the rack's controller lowers the caps of its GPUs for a while; else it would pull
#: again at once.
BRAKE_CAP_SHARE = 0.92
BRAKE_CAP_S = 1200.0

#: How far the supply temperature of a zone wanders, and how slowly.
SUPPLY_WANDER_C = 0.8
SUPPLY_WANDER_S = 600.0
#: Heat of a zone, as a share of its capacity, above which the air that it supplies grows warmer.
ZONE_STRAIN_SHARE = 0.85
ZONE_STRAIN_C = 45.0
#: What the air warms on its way past a rack's neighbors, at full budget.
RECIRCULATION_C = 3.0
INLET_SETTLES_S = 180.0
#: GPUs in the second row of a chassis breathe what the first row has warmed.
REAR_OFFSET_C = 3.0

MEMORY_OFFSET_C = 12.0
MEMORY_C_PER_W = 0.027
MEMORY_SETTLES_S = 60.0

XID_PER_GPU_S = 4e-8
ECC_PER_GPU_S = 2e-7
XID_KEPT_S = 900.0
XIDS = (31, 63, 79, 94)
#: Of 192 nodes, one falls silent about every ten minutes.
SILENCE_PER_NODE_S = 1 / (600.0 * 192)
SILENCE_S = (120.0, 360.0)

COUNTED_CAUSES = (
    ThrottleCause.SW_POWER_CAP,
    ThrottleCause.HW_SLOWDOWN,
    ThrottleCause.SYNC_BOOST,
    ThrottleCause.SW_THERMAL,
    ThrottleCause.HW_THERMAL,
    ThrottleCause.HW_POWER_BRAKE,
)


@dataclass(frozen=True)
class Parts:
    """What does not change: one value for each GPU, unless the name says node, rack or zone."""

    idle_w: Array
    static_w: Array
    dynamic_w: Array
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
    nvlink_bytes_per_s: Array
    pcie_bytes_per_s: Array
    nic_bytes_per_s: Array
    inlet_offset_c: Array
    top_clock: Array
    node_host_rated_w: Array
    node_host_idle_w: Array
    node_cpu_mem_bytes: Array
    rack_budget_w: Array
    rack_offset_c: Array
    zone_capacity_w: Array
    zone_supply_c: Array


def make_parts(fleet: Fleet, rng: np.random.Generator) -> Parts:
    """Draw the parts of ``fleet``: no two GPUs are quite alike, and one in 1,500 is a lemon."""
    count = fleet.gpu_count
    rack_of_gpu = np.repeat(fleet.rack_of_node, GPUS_PER_NODE)
    gpus = [rack.kind.gpu for rack in fleet.racks]
    hosts = [rack.kind.host for rack in fleet.racks]

    def per_gpu(values: list[float]) -> Array:
        return np.array(values, dtype=np.float64)[rack_of_gpu]

    def per_node(values: list[float]) -> Array:
        return np.array(values, dtype=np.float64)[fleet.rack_of_node]

    lemons = rng.choice(count, size=max(1, count // 1500), replace=False)
    resistance = per_gpu(
        [r.kind.gpu.resistance_c_per_w * r.kind.resistance_factor for r in fleet.racks]
    )
    resistance *= rng.normal(1.0, 0.04, count).clip(0.9, 1.12)
    resistance[lemons] *= 1.75
    top_clock = np.ones(count)
    top_clock[lemons] = 0.93
    rear = np.arange(count) % GPUS_PER_NODE >= GPUS_PER_NODE // 2
    first_rack_of_row = np.unique(fleet.row_of_rack, return_index=True)[1]
    return Parts(
        idle_w=per_gpu([g.idle_w for g in gpus]) * rng.normal(1.0, 0.03, count).clip(0.9, 1.1),
        static_w=per_gpu([g.static_w for g in gpus]) * rng.normal(1.0, 0.02, count).clip(0.9, 1.1),
        dynamic_w=per_gpu([g.dynamic_w for g in gpus])
        * rng.normal(1.0, 0.02, count).clip(0.9, 1.1),
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
        nvlink_bytes_per_s=per_gpu([g.nvlink_bytes_per_s or np.nan for g in gpus]),
        pcie_bytes_per_s=per_gpu([g.pcie_bytes_per_s for g in gpus]),
        nic_bytes_per_s=per_gpu([g.nic_bytes_per_s for g in gpus]),
        inlet_offset_c=np.where(rear, REAR_OFFSET_C, 0.0),
        top_clock=top_clock,
        node_host_rated_w=per_node([h.rated_w for h in hosts]),
        node_host_idle_w=per_node([h.idle_w for h in hosts]),
        node_cpu_mem_bytes=per_node([h.cpu_mem_bytes for h in hosts]),
        rack_budget_w=np.array([rack.budget_w for rack in fleet.racks]),
        rack_offset_c=rng.uniform(0.0, 1.5, len(fleet.racks)),
        zone_capacity_w=_total(
            fleet.row_of_rack,
            np.array([rack.kind.zone_capacity_w_per_rack for rack in fleet.racks]),
        ),
        zone_supply_c=np.array([fleet.racks[i].kind.supply_c for i in first_rack_of_row]),
    )


class XidLine(NamedTuple):
    """An Xid error in the log of a node's kernel."""

    at_s: float
    gpu: int
    xid: int


class Twin:
    """The state of a fleet at ``now_s``; :meth:`advance` is its only way forward."""

    def __init__(self, fleet: Fleet, *, seed: int, queued: Bools | None = None) -> None:
        """``queued`` says of each node whether it is for tasks alone; None: no node is."""
        self._rng = np.random.default_rng(seed)
        self.fleet = fleet
        self.parts = make_parts(fleet, self._rng)
        self.now_s = 0.0
        gpus, nodes, racks = fleet.gpu_count, len(fleet.nodes), len(fleet.racks)
        self._rack_of_gpu = np.repeat(fleet.rack_of_node, GPUS_PER_NODE)
        self.queued: Bools = np.zeros(nodes, dtype=np.bool_) if queued is None else queued
        pools = _pools(fleet, ~self.queued)
        tasks = int(self.queued.sum()) * GPUS_PER_NODE
        self.workload = Workload(pools, nodes, self._rng, tasks=tasks)
        self.workload.fill(0.0)
        #: By GPU: the slot of the task that holds it, or 0.
        self._task_of_gpu: Ints = np.zeros(gpus, dtype=np.int64)
        #: What tasks hold their GPUs to; +inf: nothing.
        self._task_cap_w: Array = np.full(gpus, np.inf)
        self._place()

        zones = len(self.parts.zone_supply_c)
        self._noise: Array = np.zeros(gpus)
        self.load = self.workload.load(0.0)
        self.activity: Array = np.zeros(gpus)
        self._pace: Array = np.ones(len(self.workload.names))
        self.clock: Array = np.ones(gpus)
        self._power_clock: Array = np.ones(gpus)
        self._thermal_clock: Array = np.ones(gpus)
        #: What somebody has set on each GPU; +inf: nothing.
        self.cap_w: Array = np.full(gpus, np.inf)
        self.cap_mhz: Array = np.full(gpus, np.inf)
        self.throttle: Ints = np.zeros(gpus, dtype=np.int64)
        self.throttle_ns = {cause: np.zeros(gpus, dtype=np.int64) for cause in COUNTED_CAUSES}
        self.power_w: Array = self.parts.idle_w.copy()
        self.energy_j: Array = self._rng.uniform(1e9, 5e9, gpus).round()
        self._hot: Bools = np.zeros(gpus, dtype=np.bool_)
        self._very_hot: Bools = np.zeros(gpus, dtype=np.bool_)
        self.ecc = self._rng.poisson(0.05, gpus)
        self.xid = np.zeros(gpus, dtype=np.int64)
        self._xid_at_s = np.full(gpus, -np.inf)
        #: What the kernels have logged, in order of time.
        self.xid_log: list[XidLine] = []
        self.host_w: Array = self.parts.node_host_idle_w.copy()
        self.silent_until_s = np.zeros(nodes)
        self.rack_w: Array = np.zeros(racks)
        self.rack_energy_j = np.zeros(racks)
        self._capped_until_s = np.full(racks, -np.inf)
        self._over_s: Array = np.zeros(racks)
        self._braked_s: Array = np.zeros(racks)
        self.braked: Bools = np.zeros(racks, dtype=np.bool_)
        self._supply_off_c = np.zeros(zones)
        self.zone_heat_w: Array = np.zeros(zones)
        self.inlet_c: Array = self.parts.zone_supply_c[fleet.row_of_rack] + self.parts.rack_offset_c
        self.temp_c: Array = self.inlet_c[self._rack_of_gpu] + self.parts.inlet_offset_c + 5.0
        self.temp_mem_c: Array = self.temp_c + MEMORY_OFFSET_C

    @property
    def silent(self) -> Bools:
        """Nodes whose agent says nothing now."""
        return self.silent_until_s > self.now_s

    @property
    def ambient_c(self) -> Array:
        """Temperature of the air before each GPU."""
        return self.inlet_c[self._rack_of_gpu] + self.parts.inlet_offset_c

    @property
    def node_w(self) -> Array:
        """Power of each node with its GPUs."""
        gpus_w: Array = self.power_w.reshape(-1, GPUS_PER_NODE).sum(axis=1)
        return gpus_w + self.host_w

    @property
    def own_limit_w(self) -> Array:
        """The power limit of each GPU without what :meth:`set_caps` has set."""
        lowered = (self._capped_until_s > self.now_s)[self._rack_of_gpu]
        return self.parts.power_limit_w * np.where(lowered, BRAKE_CAP_SHARE, 1.0)

    @property
    def power_limit_w(self) -> Array:
        """The power limit in force on each GPU."""
        return np.minimum(np.minimum(self.own_limit_w, self.cap_w), self._task_cap_w)

    def set_caps(self, gpus: Ints, *, cap_w: Array, cap_mhz: Array) -> None:
        """Hold ``gpus`` to a power and a clock, no lower than drivers take; +inf: let go.

        As with a real GPU both act at once, also when they let go.
        """
        least_w = LEAST_CAP_SHARE * self.parts.power_limit_w[gpus]
        least_mhz = LEAST_CLOCK_SHARE * self.parts.sm_max_mhz[gpus]
        raised = gpus[np.maximum(cap_w, least_w) > self.cap_w[gpus]]
        self._power_clock[raised] = 1.0
        self.cap_w[gpus] = np.maximum(cap_w, least_w)
        self.cap_mhz[gpus] = np.maximum(cap_mhz, least_mhz)

    def hold(self, gpus: Ints, slot: int) -> None:
        """Give ``gpus``, which nobody holds, to the task in ``slot``."""
        self._task_of_gpu[gpus] = slot
        self._place()

    def let_go(self, slot: int) -> None:
        """Take the GPUs of a task back."""
        gpus = self._task_of_gpu == slot
        self._task_of_gpu[gpus], self._task_cap_w[gpus] = 0, np.inf
        self._place()

    def cap_task(self, slot: int, cap_w: float) -> None:
        """Hold the GPUs of a task to a power, no lower than drivers take; +inf: let them go."""
        gpus = self._task_of_gpu == slot
        least_w = LEAST_CAP_SHARE * self.parts.power_limit_w[gpus]
        self._task_cap_w[gpus] = np.maximum(cap_w, least_w)

    def pace(self, slot: int) -> float:
        """Return the clock of the slowest GPU of a job, as a share: what it makes of its time."""
        return float(self._pace[slot])

    def advance(self, dt_s: float) -> None:
        """Move on by ``dt_s`` seconds, in steps of at most :data:`MAX_SUBSTEP_S`."""
        if not 0.0 <= dt_s < np.inf:
            raise ValueError(f"dt_s must be finite and at least 0, not {dt_s}")
        steps = int(np.ceil(dt_s / MAX_SUBSTEP_S))
        for _ in range(steps):
            self._step(dt_s / steps)

    def _step(self, dt_s: float) -> None:
        self.now_s += dt_s
        if self.workload.advance(self.now_s):
            self._place()
        self._work(self.workload.load(self.now_s))
        self._draw_power(dt_s)
        self._heat_gpus(dt_s)
        self._sum_racks(dt_s)
        self._heat_air(dt_s)
        self._count(dt_s)
        self._misfortunes(dt_s)

    def _place(self) -> None:
        of_pools = np.repeat(self.workload.job_of_node, GPUS_PER_NODE)
        self.job_of_gpu = np.where(self._task_of_gpu > 0, self._task_of_gpu, of_pools)
        #: Of several tasks on one node, one of them.
        self.job_of_node = self.job_of_gpu.reshape(-1, GPUS_PER_NODE).max(axis=1)
        self.busy = self.job_of_gpu > 0
        job, rack = self.job_of_gpu, self._rack_of_gpu
        first = np.full(len(self.workload.names), len(self.fleet.racks))
        last = np.full(len(self.workload.names), -1)
        np.minimum.at(first, job, rack)
        np.maximum.at(last, job, rack)
        #: By job slot: whether the gang stands in more than one rack.
        self.spans_racks = first < last
        self.spans_racks[0] = False

    def _work(self, load: Load) -> None:
        """Set each GPU's activity: its job's, slowed to the pace of the gang's slowest GPU."""
        self.load = load
        pace = np.ones(len(load.activity))
        np.minimum.at(pace, self.job_of_gpu, self.clock)
        pace[0] = 1.0
        self._pace = pace
        # Those that wait at the barrier spin: they save part of the power, not all of it.
        gang_activity = load.activity * (0.5 + 0.5 * pace)
        self._noise = 0.9 * self._noise + self._rng.normal(0.0, 0.007, len(self._noise))
        activity = gang_activity[self.job_of_gpu] * (1.0 + self._noise)
        self.activity = np.where(self.busy, activity.clip(0.02, 1.25), 0.0)

    def _draw_power(self, dt_s: float) -> None:
        """Find the clock that every limit allows, then the power at that clock."""
        parts = self.parts
        awake = np.where(self.busy, np.minimum(1.0, 0.2 + 1.2 * self.activity), 0.0)
        static_w = parts.idle_w + (parts.static_w - parts.idle_w) * awake
        dynamic_w = parts.dynamic_w * self.activity
        self._lower_clocks(static_w, dynamic_w, dt_s)
        braked = self.braked[self._rack_of_gpu] & self.busy
        very_hot = self._very_hot & self.busy
        hardware_clock = np.where(braked | very_hot, HW_SLOWDOWN_CLOCK, 1.0)
        self.clock = np.minimum.reduce(
            [
                self._power_clock,
                self._thermal_clock,
                hardware_clock,
                parts.top_clock,
                self.cap_mhz / parts.sm_max_mhz,
            ]
        )
        self.power_w = gpu_power_w(
            static_w=static_w, dynamic_w=dynamic_w, relative_throughput=self.clock
        )
        self.throttle = self._throttle_mask(braked, very_hot)

    def _lower_clocks(self, static_w: Array, dynamic_w: Array, dt_s: float) -> None:
        """Set the clocks that the power caps and the temperatures allow."""
        parts = self.parts
        power_clock = throughput_under_cap(
            cap_w=self.power_limit_w, static_w=static_w, dynamic_w=dynamic_w
        )
        cool_w = power_at_temperature_w(
            temp_c=parts.slowdown_c - THERMAL_MARGIN_C,
            ambient_c=self.ambient_c,
            resistance_c_per_w=parts.resistance_c_per_w,
        )
        cool_clock = throughput_under_cap(cap_w=cool_w, static_w=static_w, dynamic_w=dynamic_w)
        thermal_clock = np.where(self._hot, cool_clock.clip(MIN_CLOCK), 1.0)
        rise = CLOCK_RISE_PER_S * dt_s
        self._power_clock = np.minimum(power_clock, self._power_clock + rise)
        self._thermal_clock = np.minimum(thermal_clock, self._thermal_clock + rise)
        self._power_clock[~self.busy] = 1.0
        self._thermal_clock[~self.busy] = 1.0

    def _throttle_mask(self, braked: Bools, very_hot: Bools) -> Ints:
        """Return NVML's mask of each GPU. As there, the hardware's causes also set HW_SLOWDOWN."""
        top = self.parts.top_clock
        capped = (self._power_clock < top) & (self._power_clock <= self.clock)
        mask: Ints = np.where(self.busy, 0, GPU_IDLE).astype(np.int64)
        for cause, active in (
            (ThrottleCause.SW_POWER_CAP, capped),
            (ThrottleCause.SW_THERMAL, self._thermal_clock < top),
            (ThrottleCause.HW_SLOWDOWN, braked | very_hot),
            (ThrottleCause.HW_THERMAL, very_hot),
            (ThrottleCause.HW_POWER_BRAKE, braked),
        ):
            mask[active] |= int(cause)
        return mask

    def _heat_gpus(self, dt_s: float) -> None:
        parts = self.parts
        ambient_c = self.ambient_c
        self.temp_c = rc_step_c(
            temp_c=self.temp_c,
            power_w=self.power_w,
            ambient_c=ambient_c,
            resistance_c_per_w=parts.resistance_c_per_w,
            capacitance_j_per_c=parts.capacitance_j_per_c,
            dt_s=dt_s,
        )
        self.temp_mem_c = rc_step_c(
            temp_c=self.temp_mem_c,
            power_w=self.power_w,
            ambient_c=ambient_c + MEMORY_OFFSET_C,
            resistance_c_per_w=MEMORY_C_PER_W,
            capacitance_j_per_c=MEMORY_SETTLES_S / MEMORY_C_PER_W,
            dt_s=dt_s,
        )
        over_c = np.maximum(self.temp_c - parts.slowdown_c, self.temp_mem_c - parts.slowdown_mem_c)
        released = over_c < -THERMAL_RELEASE_C
        self._hot = (self._hot & ~released) | (over_c >= 0.0)
        self._very_hot = (self._very_hot & ~released) | (over_c >= HW_THERMAL_OVER_C)

    def _sum_racks(self, dt_s: float) -> None:
        """Add up hosts and racks, and pull or let go the power brakes of the racks."""
        parts, fleet = self.parts, self.fleet
        by_node = (-1, GPUS_PER_NODE)
        warmth = ((self.temp_c.reshape(by_node).max(axis=1) - 40.0) / 50.0).clip(0.0, 1.0)
        work = self.activity.reshape(by_node).mean(axis=1).clip(0.0, 1.0)
        self.host_w = node_power_w(
            gpus_w=0.0,
            host_idle_w=parts.node_host_idle_w,
            host_rated_w=parts.node_host_rated_w,
            host_load=0.02 + 0.28 * work + 0.3 * warmth**2,
        )
        self.rack_w = _total(fleet.rack_of_node, self.node_w) + RACK_SWITCHES_W
        self.rack_energy_j += self.rack_w * dt_s
        share = self.rack_w / parts.rack_budget_w
        self._over_s = np.where(share > BRAKE_PULL_SHARE, self._over_s + dt_s, 0.0)
        self._braked_s = np.where(self.braked, self._braked_s + dt_s, 0.0)
        let_go = (share < BRAKE_RELEASE_SHARE) & (self._braked_s >= BRAKE_HOLD_S)
        pulled = self._over_s >= BRAKE_PULL_S
        self._capped_until_s[pulled] = self.now_s + BRAKE_CAP_S
        self.braked = (self.braked & ~let_go) | pulled

    def _heat_air(self, dt_s: float) -> None:
        """Warm the air before each rack by its zone's strain and its own recirculation."""
        parts, zone_of_rack = self.parts, self.fleet.row_of_rack
        self.zone_heat_w = _total(zone_of_rack, self.rack_w)
        strain = np.maximum(self.zone_heat_w / parts.zone_capacity_w - ZONE_STRAIN_SHARE, 0.0)
        decay = np.exp(-dt_s / SUPPLY_WANDER_S)
        shock = self._rng.normal(0.0, SUPPLY_WANDER_C * np.sqrt(1 - decay**2), len(strain))
        self._supply_off_c = self._supply_off_c * decay + shock
        supply_c = parts.zone_supply_c + self._supply_off_c + ZONE_STRAIN_C * strain
        target_c = (
            supply_c[zone_of_rack]
            + parts.rack_offset_c
            + RECIRCULATION_C * self.rack_w / parts.rack_budget_w
        )
        self.inlet_c = target_c + (self.inlet_c - target_c) * np.exp(-dt_s / INLET_SETTLES_S)

    def _count(self, dt_s: float) -> None:
        self.energy_j += self.power_w * dt_s
        step_ns = round(dt_s * 1e9)
        for cause, counter in self.throttle_ns.items():
            counter += np.where(self.throttle & int(cause), step_ns, 0)

    def _misfortunes(self, dt_s: float) -> None:
        """Let rare things happen: memory errors, lost GPUs (their jobs end), silent agents."""
        rng, gpus, nodes = self._rng, len(self.power_w), len(self.silent_until_s)
        for i in rng.integers(0, gpus, rng.poisson(ECC_PER_GPU_S * gpus * dt_s)):
            self.ecc[i] += 1
        for i in rng.integers(0, gpus, rng.poisson(XID_PER_GPU_S * gpus * dt_s)):
            self.xid[i] = rng.choice(XIDS)
            self._xid_at_s[i] = self.now_s
            self.xid_log.append(XidLine(self.now_s, int(i), int(self.xid[i])))
            self.workload.fail(int(self.job_of_gpu[i]), self.now_s)
        self.xid[self._xid_at_s < self.now_s - XID_KEPT_S] = 0
        for i in rng.integers(0, nodes, rng.poisson(SILENCE_PER_NODE_S * nodes * dt_s)):
            self.silent_until_s[i] = self.now_s + rng.uniform(*SILENCE_S)


def _total(group: NDArray[np.intp], values: Array) -> Array:
    """Return the sum of ``values`` for each group."""
    return np.bincount(group, weights=values).astype(np.float64, copy=False)


def _pools(fleet: Fleet, pooled: Bools) -> list[Pool]:
    """One pool for each site and kind of row, of those nodes that are ``pooled``."""
    members: dict[tuple[str, str], list[int]] = {}
    for node, rack in enumerate(fleet.rack_of_node):
        if not pooled[node]:
            continue
        key = fleet.racks[rack].site, fleet.racks[rack].kind.name
        members.setdefault(key, []).append(node)
    kinds = {rack.kind.name: rack.kind for rack in fleet.racks}
    return [
        Pool(np.array(nodes, dtype=np.intp), kinds[kind].occupancy, kinds[kind].mix)
        for (_, kind), nodes in members.items()
    ]
