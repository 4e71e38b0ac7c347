"""The twin: every GPU, node, rack, zone and power domain of a fleet, stepped as arrays.

One GPU goes round this loop in each step: its job asks for work; the lowest of its limits (power
cap, temperature, power brake, clock lock) sets its clock; the clock and the work set its power; the
power heats it and its rack's air, and flows up the power tree; and what is too much there comes
back as a limit. The laws are those of ``physics``, written out: a step has no time for their
checks. A test holds the two to each other.

There is no wall clock and no global state here: the same fleet, seed, calls and conditions give the
same values. Arrays by GPU are updated in place: who keeps one keeps a copy.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headroom.contracts import ThrottleCause
from lab.fleet import GPUS_PER_NODE, RACK_SWITCHES_W, Fleet
from lab.training import BEHIND_S, Load, Pool, Workload
from lab.twin.air import Air
from lab.twin.conditions import Conditions
from lab.twin.curves import Curves
from lab.twin.failures import Failure, FailureModel, Failures, XidKind
from lab.twin.noise import Noise
from lab.twin.parts import Parts, make_parts, total
from lab.twin.protection import Brakes, Breakers
from lab.twin.tree import PowerTree, domains_of
from physics.hardware.drivers import LEAST_CLOCK_SHARE, LEAST_POWER_SHARE

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Indexes = NDArray[np.intp]
Masks = NDArray[np.uint8]

#: NVML's clocks-event-reason bit of a GPU without work.
GPU_IDLE = 0x1

#: Clocks and heat react within seconds, so longer steps are cut up.
MAX_SUBSTEP_S = 2.0
#: What takes longer (air, memory, fans, breakers, clocks that creep up) is stepped no more often.
SLOW_STEP_S = 4.0
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
#: Of its power limit, what a GPU draws that it holds back: an H200 held 692 of 700 W.
HELD_SHARE = 0.989

#: GPUs of one job do not draw quite the same: how far they stray, and how slowly.
STRAY_SHARE = 0.016
STRAY_S = 19.0
#: However little a job does, its GPUs do this much.
LEAST_ACTIVITY = 0.02
#: How far a GPU is awake, beside how much it does.
AWAKE_BASE, AWAKE_SLOPE = 0.2, 1.2

#: A GPU's memory: °C above its ambient when nothing is drawn, °C for each W, and time constant.
MEMORY_OFFSET_C = 12.0
MEMORY_C_PER_W = 0.027
MEMORY_SETTLES_S = 4.0

#: A host's load beside what it has at rest: feeding its GPUs, and its fans, which follow the
#: hottest GPU between these temperatures.
HOST_BASE_LOAD, HOST_WORK_LOAD, HOST_FAN_LOAD = 0.02, 0.28, 0.3
FANS_FROM_C, FANS_OVER_C = 40.0, 50.0

#: A GPU shows its last Xid for so long.
XID_KEPT_S = 900.0
#: A node that has got its power back is up again after so long.
BOOT_S = 240.0
#: A node with a GPU that has shut itself down for heat is back after so long.
SHUTDOWN_S = 1800.0

COUNTED_CAUSES = (
    ThrottleCause.SW_POWER_CAP,
    ThrottleCause.HW_SLOWDOWN,
    ThrottleCause.SYNC_BOOST,
    ThrottleCause.SW_THERMAL,
    ThrottleCause.HW_THERMAL,
    ThrottleCause.HW_POWER_BRAKE,
)
# Multiplying a mask of 0 and 1 by these sets the bit, eight GPUs to the instruction.
_CAPPED = np.uint8(ThrottleCause.SW_POWER_CAP.value)
_WARM = np.uint8(ThrottleCause.SW_THERMAL.value)
_BRAKED = np.uint8((ThrottleCause.HW_SLOWDOWN | ThrottleCause.HW_POWER_BRAKE).value)
_HOT = np.uint8((ThrottleCause.HW_SLOWDOWN | ThrottleCause.HW_THERMAL).value)

_ONES = np.ones(GPUS_PER_NODE)
#: So often are values put together by two until each node has one.
_PAIRINGS = GPUS_PER_NODE.bit_length() - 1
_EIGHTHS = np.full(GPUS_PER_NODE, 1.0 / GPUS_PER_NODE)


class XidLine(NamedTuple):
    """An Xid error in the log of a node's kernel."""

    at_s: float
    gpu: int
    xid: int


class Twin:
    """The state of a fleet at ``now_s``; :meth:`advance` is its only way forward."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        seed: int,
        queued: Bools | None = None,
        failures: FailureModel | None = None,
        substep_s: float = MAX_SUBSTEP_S,
    ) -> None:
        """``queued`` says of each node whether it is for tasks alone; None: no node is.

        ``substep_s``: longer steps are cut up into steps of at most so long.
        """
        if not 0.0 < substep_s < np.inf:
            raise ValueError(f"substep_s must be finite and over 0, not {substep_s}")
        self._rng = np.random.default_rng(seed)
        self._substep_s = substep_s
        self.fleet = fleet
        self.parts = make_parts(fleet, self._rng)
        self.now_s = 0.0
        #: What is wrong now; to be written by whoever plays a scenario.
        self.conditions = Conditions(fleet)
        #: Goes up whenever GPUs change hands.
        self.placement_version = 0
        self.queued: Bools = np.zeros(len(fleet.nodes), np.bool_) if queued is None else queued
        self._make_workload(seed)
        self._make_gpus(np.random.default_rng([seed, 4]))
        self._make_nodes()
        self._make_plant()
        self._failures = Failures(
            FailureModel() if failures is None else failures,
            np.random.default_rng([seed, 3]),
            gpus=fleet.gpu_count,
            feeds=len(self._feeds),
            sites=len(fleet.sites),
        )
        self._place()
        self._apply_limits()

    def _make_workload(self, seed: int) -> None:
        fleet, nodes, gpus = self.fleet, len(self.fleet.nodes), self.fleet.gpu_count
        tasks = int(self.queued.sum()) * GPUS_PER_NODE
        pools = _pools(fleet, ~self.queued)
        self.workload = Workload(pools, nodes, self._rng, tasks=tasks, seed=seed)
        self.workload.fill(0.0)
        #: By GPU: the slot of the task that holds it, or 0.
        self._task_of_gpu: Ints = np.zeros(gpus, dtype=np.int64)
        #: What tasks hold their GPUs to; +inf: nothing.
        self._task_cap_w: Array = np.full(gpus, np.inf)
        rng = np.random.default_rng([seed, 5])
        self._behind_of_node: Ints = rng.integers(0, len(BEHIND_S), nodes)
        self.load = self.workload.load(0.0)
        self._pace: Array = np.ones(len(self.workload.names))

    def _make_gpus(self, rng: np.random.Generator) -> None:
        fleet, parts, gpus = self.fleet, self.parts, self.fleet.gpu_count
        self._rack_of_gpu = np.repeat(fleet.rack_of_node, GPUS_PER_NODE)
        self._noise = Noise(gpus, rng)
        self._stray: Array = np.ones(gpus)
        self.activity: Array = np.zeros(gpus)
        self._wake_w: Array = parts.awake_w - parts.idle_w
        #: What each would draw at full clock.
        self._full_w: Array = parts.idle_w.copy()
        self._curves = Curves(linear_share=parts.linear_share, exponent=parts.exponent)
        self.clock: Array = np.ones(gpus)
        #: What each draws at its clock: this share of that at full clock, and so much besides.
        self._full_share: Array = np.ones(gpus)
        self._besides_w: Array = np.zeros(gpus)
        self._power_clock: Array = np.ones(gpus)
        self._thermal_clock: Array = np.ones(gpus)
        #: Whether a limit may have changed of which nobody has kept the GPUs.
        self._limits_moved = True
        #: What somebody has set on each GPU; +inf: nothing.
        self.cap_w: Array = np.full(gpus, np.inf)
        self.cap_mhz: Array = np.full(gpus, np.inf)
        self.power_w: Array = parts.idle_w.copy()
        self.energy_j: Array = self._rng.uniform(1e9, 5e9, gpus).round()
        #: GPUs that are too hot, and those of them that are far too hot.
        self._hot: Indexes = np.zeros(0, dtype=np.intp)
        self._very_hot: Indexes = np.zeros(0, dtype=np.intp)
        #: How many GPUs have shut themselves down for heat.
        self.shutdowns = 0
        #: The reasons for which the hardware itself slows GPUs.
        self._hardware_bits: Masks = np.zeros(gpus, dtype=np.uint8)
        #: GPUs whose clocks may have changed in this step; None: any.
        self._touched: Indexes | None = None
        #: Whether its power cap, or its heat, holds each back.
        self._capped_bit: Masks = np.zeros(gpus, dtype=np.uint8)
        self._warm_bit: Masks = np.zeros(gpus, dtype=np.uint8)
        self._clocks_moved = True
        #: The lowest power that a limit can hold each to.
        self._least_cap_w: Array = LEAST_POWER_SHARE * parts.rated_w
        self._mask: Masks = np.full(gpus, GPU_IDLE, dtype=np.uint8)
        self._mask_since_ns: Ints = np.zeros(gpus, dtype=np.int64)
        self._now_ns = 0
        self._throttle_ns = {cause: np.zeros(gpus, dtype=np.int64) for cause in COUNTED_CAUSES}
        # Enumerations are slow to combine.
        self._counters = [(cause.value, ns) for cause, ns in self._throttle_ns.items()]
        self.ecc = self._rng.poisson(0.05, gpus)
        self.xid = np.zeros(gpus, dtype=np.int64)
        self._xid_kept: deque[tuple[float, int]] = deque()
        self._xid_at_s: Array = np.full(gpus, -np.inf)
        #: What the kernels have logged, in order of time.
        self.xid_log: list[XidLine] = []
        self._scratch: Array = np.empty(gpus)
        self._flags: Bools = np.zeros(gpus, dtype=np.bool_)

    def _make_nodes(self) -> None:
        nodes = len(self.fleet.nodes)
        self.host_w: Array = self.parts.node_host_idle_w.copy()
        #: Power of each node with its GPUs, as a meter at the wall reads it.
        self.node_w: Array = self.power_w.reshape(-1, GPUS_PER_NODE) @ _ONES + self.host_w
        self.silent_until_s = np.zeros(nodes)
        self._out_until_s: Array = np.zeros(nodes)
        #: Nodes that draw no power: failed, dark, or stated to be down.
        self.down: Bools = np.zeros(nodes, dtype=np.bool_)
        self._seen_down = _Seen(self.down)
        self._off_gpus: Indexes = np.zeros(0, dtype=np.intp)
        parts = self.parts
        self._base_load: Array = np.full(nodes, HOST_BASE_LOAD)
        self._host_range_w: Array = parts.node_host_rated_w - parts.node_host_idle_w
        self._per_psu_share: Array = 1.0 / (1.0 - parts.node_psu_loss_share)

    def _make_plant(self) -> None:
        fleet, parts, racks = self.fleet, self.parts, len(self.fleet.racks)
        self.domains = domains_of(fleet)
        self._tree = PowerTree(self.domains)
        self._feeds = self.domains.of_kind("feed")
        self._utilities = self.domains.of_kind("utility")
        domains = len(self.domains.names)
        self._rack_brakes, self._domain_brakes = Brakes(racks), Brakes(domains)
        self._breakers = Breakers(domains)
        self._seen_lost = _Seen(np.zeros(domains, dtype=np.bool_))
        self._seen_draw = _Seen(self.conditions.gpu_draw_factor)
        self._draws_as_made = True
        self._dark: Bools = np.zeros(racks, dtype=np.bool_)
        self._lost_until_s: Array = np.zeros(domains)
        #: Racks whose GPUs a power brake holds back, their own or that of a domain above.
        self.braked: Bools = np.zeros(racks, dtype=np.bool_)
        self._cap_share: Array = np.ones(racks)
        self._seen_stuck = _Seen(self.conditions.brake_stuck)
        self._switches_w: Array = np.full(racks, RACK_SWITCHES_W)
        self.rack_w: Array = np.zeros(racks)
        self.rack_energy_j: Array = np.zeros(racks)
        #: What each power domain carries, with what is lost below it.
        self.domain_w: Array = np.zeros(domains)
        self.domain_energy_j: Array = np.zeros(domains)
        self.zone_heat_w: Array = np.zeros(len(fleet.rows))
        self._air = Air(fleet, parts, self._noise)
        #: Temperature of what enters each rack.
        self.inlet_c: Array = self._air.inlet_c
        #: Of the air or coolant before each GPU.
        self.ambient_c: Array = self.inlet_c[self._rack_of_gpu] + parts.inlet_offset_c
        self._sink_c: Array = self.ambient_c + 5.0
        self._die_c: Array = np.zeros(fleet.gpu_count)
        self.temp_c: Array = self._sink_c.copy()
        self.temp_mem_c: Array = self.temp_c + MEMORY_OFFSET_C
        self._memory_over_c: Array = self.temp_mem_c - parts.slowdown_mem_c
        self._memory_over_most_c = float(self._memory_over_c.max())
        self._slow_s = 0.0
        self._heat = _HeatConstants(
            parts, np.ones(fleet.gpu_count), self._noise, self.ambient_c, dt_s=0.0
        )

    @property
    def still_w(self) -> Array:
        """What each GPU draws while the job that holds it stands still, W."""
        awake = AWAKE_BASE + AWAKE_SLOPE * LEAST_ACTIVITY
        asleep_w = self.parts.idle_w + LEAST_ACTIVITY * self.parts.dynamic_w
        return np.asarray(asleep_w + awake * self._wake_w)

    @property
    def silent(self) -> Bools:
        """Nodes whose agent says nothing now."""
        return (self.silent_until_s > self.now_s) | self.conditions.node_silent | self.down

    @property
    def throttle(self) -> Ints:
        """NVML's mask of each GPU. As there, the hardware's causes also set HW_SLOWDOWN."""
        return self._mask.astype(np.int64)

    @property
    def throttle_ns(self) -> dict[ThrottleCause, Ints]:
        """Time that each GPU has been throttled so far, by cause, ns."""
        self._settle(_where(self._mask > GPU_IDLE), self._now_ns)
        return self._throttle_ns

    @property
    def own_limit_w(self) -> Array:
        """The power limit of each GPU without the caps of :meth:`set_caps`."""
        return self._own_limit_w

    @property
    def power_limit_w(self) -> Array:
        """The power limit in force on each GPU."""
        return self._limit_w

    @property
    def pace_by_slot(self) -> Array:
        """The clock of the slowest GPU of each job, as a share; 1 where it has none."""
        return self._pace

    @property
    def feed_w(self) -> Array:
        """The load of each feed, in the order of the domains."""
        return self.domain_w[self._feeds]

    @property
    def site_w(self) -> Array:
        """The draw of each site from its utility."""
        return self.domain_w[self._utilities]

    @property
    def trips(self) -> Ints:
        """How often the breaker of each domain has tripped: brakes and caps did not prevent it."""
        return self._breakers.trips

    def set_caps(self, gpus: Ints, *, cap_w: Array, cap_mhz: Array) -> None:
        """Hold ``gpus`` to a power and a clock, no lower than drivers take; +inf: let go.

        As with a real GPU both act at once, also when they let go.
        """
        least_w = self._least_cap_w[gpus]
        least_mhz = LEAST_CLOCK_SHARE * self.parts.sm_max_mhz[gpus]
        raised = gpus[np.maximum(cap_w, least_w) > self.cap_w[gpus]]
        self._power_clock[raised] = 1.0
        self.cap_w[gpus] = np.maximum(cap_w, least_w)
        self.cap_mhz[gpus] = np.maximum(cap_mhz, least_mhz)
        self._apply_limits()

    def hold(self, gpus: Ints, slot: int) -> None:
        """Give ``gpus``, which nobody holds, to the task in ``slot``."""
        self._task_of_gpu[gpus] = slot
        self._place()
        if self.down[np.asarray(gpus) // GPUS_PER_NODE].any():
            self.workload.fail(slot, self.now_s)

    def let_go(self, slot: int) -> None:
        """Take the GPUs of a task back."""
        gpus = self._task_of_gpu == slot
        self._task_of_gpu[gpus], self._task_cap_w[gpus] = 0, np.inf
        self._place()
        self._apply_limits()

    def cap_task(self, slot: int, cap_w: float) -> None:
        """Hold the GPUs of a task to a power, no lower than drivers take; +inf: let them go."""
        gpus = self._task_of_gpu == slot
        least_w = self._least_cap_w[gpus]
        self._task_cap_w[gpus] = np.maximum(cap_w, least_w)
        self._apply_limits()

    def pace(self, slot: int) -> float:
        """Return the clock of the slowest GPU of a job, as a share: the pace of the whole job."""
        return float(self._pace[slot])

    def advance(self, dt_s: float) -> None:
        """Move on by ``dt_s`` seconds, in equal steps of at most ``substep_s``."""
        if not 0.0 <= dt_s < np.inf:
            raise ValueError(f"dt_s must be finite and at least 0, not {dt_s}")
        steps = int(np.ceil(dt_s / self._substep_s))
        for _ in range(steps):
            self._step(dt_s / steps)

    def _step(self, dt_s: float) -> None:
        self.now_s += dt_s
        self._fail()
        self._see_conditions(dt_s)
        if self.workload.advance(self.now_s):
            self._place()
        self._work(self.workload.load(self.now_s))
        self._want_power()
        self._set_clocks()
        self._draw_power()
        self._set_masks(round(dt_s * 1e9))
        self._heat_gpus()
        self._mind_heat()
        self._sum_nodes()
        self._sum_racks(dt_s)
        self._slow_s += dt_s
        if self._slow_s >= SLOW_STEP_S:
            self._slow_step(self._slow_s)
            self._slow_s = 0.0

    def _slow_step(self, dt_s: float) -> None:
        self._air.step(self.rack_w, self.zone_heat_w, self.conditions, dt_s)
        self.inlet_c.take(self._rack_of_gpu, out=self.ambient_c, mode="clip")
        self.ambient_c += self.parts.inlet_offset_c
        self._heat.set_ambient(self.ambient_c)
        share = self.domain_w / self.domains.capacity_w
        self._breakers.step(share, now_s=self.now_s, dt_s=dt_s)
        self._heat_memory(dt_s)
        self._set_fans()
        self._creep(dt_s)

    # Who works on what.

    def _place(self) -> None:
        """Take in the assignment of GPUs to jobs."""
        self.placement_version += 1
        of_pools = np.repeat(self.workload.job_of_node, GPUS_PER_NODE)
        self.job_of_gpu = np.where(self._task_of_gpu > 0, self._task_of_gpu, of_pools)
        #: Of several tasks on one node, one of them.
        self.job_of_node = _most(self.job_of_gpu)
        self._set_busy(self.job_of_gpu > 0)
        job = self.job_of_gpu
        # GPUs of a job stand side by side, so these stretches are few.
        begins = np.ones(len(job), dtype=np.bool_)
        np.not_equal(job[1:], job[:-1], out=begins[1:])
        self._stretches: Indexes = _where(begins)
        #: The same, cut up by nodes: how many GPUs each has, and where its load stands: its job's
        #: row, and its node's column.
        begins[::GPUS_PER_NODE] = True
        pieces = _where(begins)
        self._gpus_of_piece: Ints = np.diff(pieces, append=len(job))
        behind = self._behind_of_node[pieces // GPUS_PER_NODE]
        self._load_of_piece: Ints = job[pieces] * len(BEHIND_S) + behind
        by_stretch = job[self._stretches]
        #: The stretches job by job, the jobs in that order, and where each of them begins.
        self._by_job: Indexes = np.argsort(by_stretch, kind="stable")
        by_job = by_stretch[self._by_job]
        self._first_by_job: Indexes = _where(np.diff(by_job, prepend=-1))
        self._jobs_placed: Indexes = by_job[self._first_by_job]
        ends = np.append(self._stretches[1:], len(job)) - 1
        first, last = (self._rack_of_gpu[at][self._by_job] for at in (self._stretches, ends))
        first = np.minimum.reduceat(first, self._first_by_job)
        last = np.maximum.reduceat(last, self._first_by_job)
        #: By job slot: whether the gang stands in more than one rack.
        self.spans_racks: Bools = np.zeros(len(self.workload.names), dtype=np.bool_)
        self.spans_racks[self._jobs_placed] = first < last
        self.spans_racks[0] = False
        self._clocks_moved = True

    def _set_busy(self, busy: Bools) -> None:
        """Say which GPUs work. One that does not is held back by nothing."""
        busy[self._off_gpus] = False
        self.busy: Bools = busy
        idle = ~busy
        self._power_clock[idle] = 1.0
        self._thermal_clock[idle] = 1.0
        self._limits_moved = True
        self._idle_bit: Masks = idle.view(np.uint8) * np.uint8(GPU_IDLE)

    def _work(self, load: Load) -> None:
        """Set each GPU's activity: its job's, slowed to the pace of the gang's slowest GPU."""
        self.load = load
        used = slice(0, self.workload.top)
        if self._clocks_moved:
            self._set_pace()
        pace = self._pace
        # Those that wait at the barrier spin: they save part of the power, not all of it.
        activity = load.behind[used] * (0.5 + 0.5 * pace[used])[:, None]
        np.maximum(activity, LEAST_ACTIVITY, out=activity)
        awake = np.minimum(AWAKE_BASE + AWAKE_SLOPE * activity, 1.0)
        activity[0] = awake[0] = 0.0
        self._stray *= self._heat.stray_keep
        start = self._noise.place()
        self._stray += self._heat.shocks[start : start + len(self._stray)]
        np.multiply(self._by_gpu(activity), self._stray, out=self.activity)
        self._awake: Array = self._by_gpu(awake)
        if self.conditions.least_activity.any():
            self._surge()

    def _set_pace(self) -> None:
        """Set the pace of each job to the clock of its slowest GPU."""
        pace = np.ones(len(self.workload.names))
        slowest = np.minimum.reduceat(self.clock, self._stretches).take(self._by_job)
        pace[self._jobs_placed] = np.minimum.reduceat(slowest, self._first_by_job)
        pace[0] = 1.0
        self._pace, self._clocks_moved = pace, False

    def _surge(self) -> None:
        """Have what works here without a task do as much as is stated."""
        least = np.repeat(self.conditions.least_activity, GPUS_PER_NODE)
        least *= self.busy & (self._task_of_gpu == 0)
        np.maximum(self.activity, least * self._stray, out=self.activity)
        np.maximum(self._awake, (least > 0.0), out=self._awake)

    def _by_gpu(self, by_load: Array) -> Array:
        """Return for each GPU the value of its job, in a row, and of its node, in a column."""
        return by_load.reshape(-1).take(self._load_of_piece).repeat(self._gpus_of_piece)

    def _want_power(self) -> None:
        """Set the power that each GPU would draw at its full clock, at its activity."""
        parts, full_w = self.parts, self._full_w
        np.multiply(self._wake_w, self._awake, out=full_w)
        full_w += parts.idle_w
        np.multiply(parts.dynamic_w, self.activity, out=self._scratch)
        full_w += self._scratch
        if not self._draws_as_made:
            full_w *= self.conditions.gpu_draw_factor
        if self._off_gpus.size:
            full_w[self._off_gpus] = 0.0

    # What holds them back.

    def _apply_limits(self) -> None:
        """Apply the limits of power and clock that are set on each GPU now."""
        parts, conditions = self.parts, self.conditions
        share = self._cap_share[self._rack_of_gpu] * conditions.power_limit_share
        self._own_limit_w: Array = np.maximum(parts.power_limit_w * share, self._least_cap_w)
        self._limit_w: Array = np.minimum(
            np.minimum(self._own_limit_w, self.cap_w), self._task_cap_w
        )
        #: What a GPU under its limit comes to draw.
        self._held_w: Array = HELD_SHARE * self._limit_w
        locked = np.minimum(self.cap_mhz / parts.sm_max_mhz, conditions.clock_share)
        self._top_clock: Array = np.minimum(parts.top_clock, np.maximum(locked, LEAST_CLOCK_SHARE))
        self._seen_limit_share = _Seen(conditions.power_limit_share)
        self._seen_clock_share = _Seen(conditions.clock_share)
        self._limits_moved = True

    def _creep(self, dt_s: float) -> None:
        """Let the clocks that limits have lowered creep up."""
        for clock in (self._power_clock, self._thermal_clock):
            clock += CLOCK_RISE_PER_S * dt_s
            np.minimum(clock, 1.0, out=clock)
        self._limits_moved = True

    def _set_clocks(self) -> None:
        """Set the clock that the heat, the brakes and the locks allow."""
        hot = self._hot[self.busy[self._hot]]
        self._slow_the_hot(hot)
        if self._limits_moved:
            self._slow_by_hardware()
            clock = np.minimum(self._power_clock, self._top_clock)
            np.minimum(clock, self._thermal_clock, out=clock)
            slowed = _where(self._hardware_bits > 0)
            if slowed.size:
                clock[slowed] = np.minimum(clock[slowed], HW_SLOWDOWN_CLOCK)
            self._touched, self._limits_moved = None, False
            moved = _where(clock != self.clock)
            self._set_clock(moved, clock[moved])
        else:
            self._touched = hot
            self._set_clock(hot, np.minimum(self.clock.take(hot), self._thermal_clock.take(hot)))

    def _slow_by_hardware(self) -> None:
        """Find the GPUs that brakes, or far too much heat, slow by hardware."""
        self._hardware_bits[:] = 0
        if self.braked.any():
            self._hardware_bits[self.braked[self._rack_of_gpu] & self.busy] |= _BRAKED
        if self._very_hot.size:
            self._hardware_bits[self._very_hot[self.busy[self._very_hot]]] |= _HOT

    def _set_clock(self, gpus: Indexes, clock: Array) -> None:
        """Set the clocks of ``gpus``, and what they draw at them of what they would at full clock.

        ``P = P_standing + (P_full - P_standing) · share``, but no more than at full clock.
        """
        if gpus.size:
            share = self._curves.share(clock, gpus)
            self.clock[gpus], self._full_share[gpus] = clock, share
            self._besides_w[gpus] = self.parts.standing_w.take(gpus) * (1.0 - share)
            self._clocks_moved = True

    def _slow_the_hot(self, hot: Indexes) -> None:
        """Lower the thermal clocks of hot GPUs until they stay just under their limit."""
        if not hot.size:
            return
        cool_c = self.parts.slowdown_c.take(hot) - THERMAL_MARGIN_C - self.ambient_c.take(hot)
        cool_w = np.maximum(cool_c, 0.0) / self._heat.resistance_c_per_w.take(hot)
        full_w, standing_w = self._full_w.take(hot), self.parts.standing_w.take(hot)
        share = _allowed_share(cool_w, full_w=full_w, standing_w=standing_w)
        allowed = self._curves.clock(share, hot)
        np.maximum(allowed, MIN_CLOCK, out=allowed)
        self._thermal_clock[hot] = np.minimum(self._thermal_clock.take(hot), allowed)

    def _draw_power(self) -> None:
        """Set the power at the present clocks, and lower the clocks of GPUs over their limit."""
        power_w = self.power_w
        np.multiply(self._full_w, self._full_share, out=power_w)
        power_w += self._besides_w
        # Who draws less at full clock than what stands at any is not slowed to draw more.
        np.minimum(power_w, self._full_w, out=power_w)
        over = _where(power_w > self._held_w)
        if not over.size:
            return
        full_w, standing_w = self._full_w.take(over), self.parts.standing_w.take(over)
        share = _allowed_share(self._held_w.take(over), full_w=full_w, standing_w=standing_w)
        allowed = self._curves.clock(share, over)
        low = _where(allowed < LEAST_CLOCK_SHARE)
        if low.size:
            # A cap under what is drawn at any clock cannot be kept; the clock stops at its least.
            allowed[low] = LEAST_CLOCK_SHARE
            share[low] = self._curves.share(allowed[low], over[low])
        self._power_clock[over] = allowed
        self.clock[over], self._full_share[over] = allowed, share
        standing_w *= 1.0 - share
        self._besides_w[over] = standing_w
        self._clocks_moved = True
        share *= full_w
        share += standing_w
        power_w[over] = np.minimum(share, full_w, out=share)
        if self._touched is not None:
            self._touched = np.concatenate([self._touched, over])

    def _set_masks(self, step_ns: int) -> None:
        """Set the throttle reasons of GPUs, and settle the times of those that change."""
        self._see_limits(slice(None) if self._touched is None else self._touched)
        mask = self._capped_bit | self._warm_bit
        mask |= self._idle_bit
        mask |= self._hardware_bits
        changed = _where(mask != self._mask)
        if changed.size:
            self._settle(changed, self._now_ns)
            self._mask[changed] = mask[changed]
        self._now_ns += step_ns

    def _see_limits(self, gpus: Indexes | slice) -> None:
        """Find out whether a cap or heat is what holds GPUs back."""
        top, by_power = self.parts.top_clock[gpus], self._power_clock[gpus]
        capped = by_power < top
        capped &= by_power <= self.clock[gpus]
        self._capped_bit[gpus] = capped.view(np.uint8) * _CAPPED
        self._warm_bit[gpus] = (self._thermal_clock[gpus] < top).view(np.uint8) * _WARM

    def _settle(self, gpus: Indexes, now_ns: int) -> None:
        """Add the time that ``gpus`` were throttled to the counters of their present reasons."""
        mask = self._mask[gpus]
        lasted_ns = now_ns - self._mask_since_ns[gpus]
        seen = int(np.bitwise_or.reduce(mask, initial=0))
        for bit, counter in self._counters:
            if seen & bit:
                counter[gpus] += lasted_ns * ((mask & np.uint8(bit)) > 0)
        self._mask_since_ns[gpus] = now_ns

    # What becomes of the power.

    def _heat_gpus(self) -> None:
        """Move each GPU towards the steady temperature of its draw."""
        heat, scratch = self._heat, self._scratch
        # T · keep + (T_ambient + P · R) · (1 - keep)
        np.multiply(self.power_w, heat.slow_rise_c_per_w, out=scratch)
        scratch += heat.toward_ambient_c
        self._sink_c *= heat.slow_keep
        self._sink_c += scratch
        np.multiply(self.power_w, heat.fast_c_per_w, out=scratch)
        if not heat.is_at_once:
            self._die_c -= scratch
            self._die_c *= heat.fast_keep
            scratch += self._die_c
        self._die_c, self._scratch = scratch, self._die_c
        np.add(self._sink_c, self._die_c, out=self.temp_c)

    def _heat_memory(self, dt_s: float) -> None:
        toward_c, keep = self._scratch, float(np.exp(-dt_s / MEMORY_SETTLES_S))
        np.multiply(self.power_w, MEMORY_C_PER_W, out=toward_c)
        toward_c += self.ambient_c
        toward_c += MEMORY_OFFSET_C
        self.temp_mem_c -= toward_c
        self.temp_mem_c *= keep
        self.temp_mem_c += toward_c
        np.subtract(self.temp_mem_c, self.parts.slowdown_mem_c, out=self._memory_over_c)
        self._memory_over_most_c = float(self._memory_over_c.max())

    def _mind_heat(self) -> None:
        """Find the GPUs that are too hot, until they have cooled; those far too hot go off."""
        parts, over_c = self.parts, self._scratch
        np.subtract(self.temp_c, parts.slowdown_c, out=over_c)
        if self._memory_over_most_c >= -THERMAL_RELEASE_C:
            np.maximum(over_c, self._memory_over_c, out=over_c)
        elif not self._hot.size and over_c.max() < 0.0:
            return
        near = _where(over_c >= -THERMAL_RELEASE_C)
        over_c = over_c[near]
        is_far_over = over_c.max(initial=-np.inf) >= HW_THERMAL_OVER_C
        if is_far_over:
            # The hardware's own limit has had its chance: it was in force in this step.
            hottest = self._very_hot
            burnt = hottest[self.temp_c[hottest] >= parts.shutdown_c[hottest]]
            self.shutdowns += len(burnt)
            self._take_out(np.unique(burnt // GPUS_PER_NODE), SHUTDOWN_S)
        self._hot = self._still(self._hot, near, over_c >= 0.0)
        if self._very_hot.size or is_far_over:
            self._very_hot = self._still(self._very_hot, near, over_c >= HW_THERMAL_OVER_C)
            self._limits_moved = True

    def _still(self, before: Indexes, near: Indexes, begins: Bools) -> Indexes:
        """Return those of ``near`` for which a limit begins, or was in force before."""
        if before.size:
            was = self._flags
            was[before] = True
            begins |= was[near]
            was[before] = False
        return near[begins]

    def _set_fans(self) -> None:
        """Have the fans of each node follow its hottest GPU."""
        fans = ((_most(self.temp_c) - FANS_FROM_C) / FANS_OVER_C).clip(0.0, 1.0)
        self._base_load = HOST_BASE_LOAD + HOST_FAN_LOAD * fans**2

    def _sum_nodes(self) -> None:
        """Add up each node: its GPUs, its host, and the losses of its power supplies."""
        gpus_w = self.power_w.reshape(-1, GPUS_PER_NODE) @ _ONES
        load = self.activity.reshape(-1, GPUS_PER_NODE) @ _EIGHTHS
        np.minimum(load, 1.0, out=load)
        load *= HOST_WORK_LOAD
        load += self._base_load
        load *= self._host_range_w
        load += self.parts.node_host_idle_w
        load += gpus_w
        load *= self._per_psu_share
        if self._off_gpus.size:
            load[self.down] = 0.0
        self.node_w = load
        self.host_w = load - gpus_w

    def _sum_racks(self, dt_s: float) -> None:
        """Add up racks and power domains, and pull or let go their brakes."""
        fleet, conditions, domains = self.fleet, self.conditions, self.domains
        self.rack_w = total(fleet.rack_of_node, self.node_w, len(fleet.racks))
        self.rack_w += self._switches_w
        #: What each cooling zone has to carry away.
        self.zone_heat_w = total(fleet.row_of_rack, self.rack_w, len(fleet.rows))
        self.rack_energy_j += self.rack_w * dt_s
        self.domain_w = self._tree.flow(self.rack_w)
        self.domain_energy_j += self.domain_w * dt_s
        rack_budget_w = self.parts.rack_budget_w * conditions.rack_budget_share
        domain_budget_w = domains.budget_w * conditions.domain_budget_share
        moved = self._rack_brakes.step(self.rack_w / rack_budget_w, now_s=self.now_s, dt_s=dt_s)
        moved |= self._domain_brakes.step(
            self.domain_w / domain_budget_w, now_s=self.now_s, dt_s=dt_s
        )
        if moved:
            self._brake()
        np.multiply(self.power_w, dt_s, out=self._scratch)
        self.energy_j += self._scratch

    def _brake(self) -> None:
        """Apply the brakes of racks, and those of the domains above them."""
        works = ~self.conditions.brake_stuck
        above = self._tree.racks_under(self._domain_brakes.braked)
        self.braked = (self._rack_brakes.braked | above) & works
        self._limits_moved = True
        cap_share = np.minimum(
            self._rack_brakes.cap_share, self._tree.least_above(self._domain_brakes.cap_share)
        )
        cap_share = np.where(works, cap_share, 1.0)
        self._seen_stuck = _Seen(self.conditions.brake_stuck)
        if not np.array_equal(cap_share, self._cap_share):
            self._cap_share = cap_share
            self._apply_limits()

    # What goes wrong.

    def _see_conditions(self, dt_s: float) -> None:
        """Take in the present conditions. Whoever states them need not announce a change."""
        stated = self.conditions
        lost = stated.domain_lost | self._breakers.is_open(self.now_s)
        lost |= self._lost_until_s > self.now_s
        if not self._seen_lost.is_still(lost):
            self._seen_lost = _Seen(lost)
            self._tree.lose(lost)
            self._dark = self._tree.dark
            self._switches_w = np.where(self._dark, 0.0, RACK_SWITCHES_W)
        if self._dark.any():
            dark = self._dark[self.fleet.rack_of_node]
            self._out_until_s[dark] = np.maximum(self._out_until_s[dark], self.now_s + BOOT_S)
        down = self._out_until_s > self.now_s
        down |= stated.node_down
        if not self._seen_down.is_still(down):
            self._take_down(down)
        if not (
            self._seen_limit_share.is_still(stated.power_limit_share)
            and self._seen_clock_share.is_still(stated.clock_share)
        ):
            self._apply_limits()
        if not self._seen_stuck.is_still(stated.brake_stuck):
            self._brake()
        if not self._seen_draw.is_still(stated.gpu_draw_factor):
            self._seen_draw = _Seen(stated.gpu_draw_factor)
            self._draws_as_made = bool((stated.gpu_draw_factor == 1.0).all())
        heat = self._heat
        if dt_s != heat.dt_s or not heat.seen_factor.is_still(stated.gpu_resistance_factor):
            self._heat = _HeatConstants(
                self.parts, stated.gpu_resistance_factor, self._noise, self.ambient_c, dt_s=dt_s
            )

    def _take_down(self, down: Bools) -> None:
        """Let these nodes, and no others, be without power. Their jobs fail."""
        fresh = down & ~self.down
        self.down, self._seen_down = down, _Seen(down)
        self._off_gpus = _where(np.repeat(down, GPUS_PER_NODE))
        for slot in np.unique(self.job_of_gpu.reshape(-1, GPUS_PER_NODE)[fresh]):
            self.workload.fail(int(slot), self.now_s)
        self.workload.out_of_use[:] = down
        self._set_busy(self.job_of_gpu > 0)

    def _take_out(self, nodes: Indexes, lasts_s: float) -> None:
        """Have nodes be down from the next step on, for so long at least."""
        self._out_until_s[nodes] = np.maximum(self._out_until_s[nodes], self.now_s + lasts_s)

    def _fail(self) -> None:
        """Carry out the failures that are due, and let old Xids go."""
        while self._xid_kept and self._xid_kept[0][0] <= self.now_s - XID_KEPT_S:
            at_s, gpu = self._xid_kept.popleft()
            if self._xid_at_s[gpu] == at_s:
                self.xid[gpu] = 0
        if self._failures.next_s <= self.now_s:
            for failure in self._failures.until(self.now_s):
                self._happen(failure)

    def _happen(self, failure: Failure) -> None:
        where, until_s = failure.where, failure.at_s + failure.lasts_s
        if failure.xid is not None:
            self._log_xid(failure, failure.xid)
        elif failure.what == "ecc":
            self.ecc[where] += 1
        elif failure.what == "silence":
            self.silent_until_s[where] = until_s
        elif failure.what == "node":
            self._out_until_s[where] = max(self._out_until_s[where], until_s)
        else:
            domains = self._feeds if failure.what == "feed" else self._utilities
            self._lost_until_s[domains[where]] = until_s

    def _log_xid(self, failure: Failure, kind: XidKind) -> None:
        gpu = failure.where
        self.xid[gpu], self._xid_at_s[gpu] = kind.code, failure.at_s
        self._xid_kept.append((failure.at_s, gpu))
        self.xid_log.append(XidLine(failure.at_s, gpu, kind.code))
        if kind.ends_job:
            self.workload.fail(int(self.job_of_gpu[gpu]), self.now_s)
        if kind.downs_node:
            self._take_out(np.array([gpu // GPUS_PER_NODE]), failure.lasts_s)


class _HeatConstants:
    """Constants that depend on the length of a step, and on how well the GPUs are seated now."""

    def __init__(
        self, parts: Parts, factor: Array, noise: Noise, ambient_c: Array, *, dt_s: float
    ) -> None:
        self.dt_s, self.seen_factor = dt_s, _Seen(factor)
        self.resistance_c_per_w: Array = parts.resistance_c_per_w * factor
        self.fast_c_per_w: Array = parts.fast_resistance_c_per_w
        self.slow_c_per_w: Array = np.maximum(self.resistance_c_per_w - self.fast_c_per_w, 1e-6)
        self.slow_keep: Array = np.exp(-dt_s / (self.slow_c_per_w * parts.capacitance_j_per_c))
        self._slow_loss: Array = 1.0 - self.slow_keep
        self.slow_rise_c_per_w: Array = self.slow_c_per_w * self._slow_loss
        self.set_ambient(ambient_c)
        self.fast_keep: Array = np.exp(-dt_s / parts.fast_time_s)
        #: Whether the fast part has settled at the end of such a step.
        self.is_at_once = bool(((self.fast_keep < 0.01) | (self.fast_c_per_w == 0.0)).all())
        self.stray_keep = float(np.exp(-dt_s / STRAY_S))
        shock = STRAY_SHARE * float(np.sqrt(1.0 - self.stray_keep**2))
        #: The noise with the size of a step's, around what draws the stray back to 1.
        self.shocks: Array = noise.table * shock + (1.0 - self.stray_keep)

    def set_ambient(self, ambient_c: Array) -> None:
        """Take in what is before each GPU now."""
        self.toward_ambient_c: Array = self._slow_loss * ambient_c


class _Seen:
    """What an array held when it was seen last: its bytes, since those compare the fastest."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._bytes = bytearray(values.data)

    def is_still(self, values: NDArray[Any]) -> bool:
        """Say whether ``values``, an array of the same kind, hold the same."""
        return self._bytes == values.data


def _where(flags: Bools) -> Indexes:
    """As ``np.flatnonzero``, without its detour for arrays that are not flat."""
    return flags.nonzero()[0]


def _allowed_share(cap_w: Array, *, full_w: Array, standing_w: Array) -> Array:
    """Return the share of its dynamic power with which each GPU draws ``cap_w``."""
    share = cap_w - standing_w
    share /= np.maximum(full_w - standing_w, 1e-9)
    np.maximum(share, 0.0, out=share)
    return np.minimum(share, 1.0, out=share)


def _most(by_gpu: NDArray[Any]) -> NDArray[Any]:
    """Return the highest value of each node. Pairs of pairs are faster than a short axis."""
    most = by_gpu
    for _ in range(_PAIRINGS):
        most = np.maximum(most[0::2], most[1::2])
    return most


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
