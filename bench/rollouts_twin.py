"""Rollouts on a fleet of the twin: jobs that come and go, a change, and what is read of both.

Racks are changed and changed back as an operator would: their jobs stand still meanwhile. What is
read of jobs is what the server has of real ones: steps as loops report them, and power, heat,
utilization and throttling of GPUs each ten seconds. Arms, evidence and verdicts are those of the
server (``policies.rollouts``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headroom.contracts import ThrottleCause
from lab.fleet import GPUS_PER_NODE, Fleet, make_even_fleet
from lab.training.making import NODE_WRITE_BYTES_PER_S
from lab.training.spec import TrainingSpec
from lab.training.table import TRAINING
from lab.twin import Twin
from lab.twin.failures import FailureModel
from lab.twin.network import Network
from lab.twin.storage import Storage
from policies.rollouts.arms import Racks
from policies.rollouts.evidence import Observed, Units
from policies.rollouts.judging import Counts

__all__ = ["BLOCK_S", "Change", "Plant", "Seen"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: In 32 racks.
GPUS, NODES_PER_RACK = 512, 2
BLOCK_S = 120.0
_STEP_S, _READ_EVERY_S = 2.0, 10.0
#: A rack is changed within so long, in which its jobs stand still.
UPDATE_S = 300.0
#: A step is slow that takes so many times as long as the job's usual.
_SLOW = 1.5
_MEAN_LIFE_S, _LEAST_LIFE_S = 3 * 3600.0, 900.0
#: No node fails by itself, as that would end jobs on both arms alike; Xids go on.
_FAILURES = FailureModel(silence_per_node_s=0.0, loss_per_node_s=0.0)


class Change(NamedTuple):
    """A change by what it does to the racks that have it."""

    name: str
    draw_factor: float = 1.0
    hang_share: float = 0.0
    hang_times: float = 1.0


@dataclass(frozen=True)
class _Job:
    """A job that runs: its slot, its place and its end."""

    number: int
    slot: int
    nodes: NDArray[np.intp]
    rack: int
    ends_s: float
    spec: TrainingSpec


class Seen(NamedTuple):
    """One block: an element for each job that ran in all of it, and for each rack."""

    at_s: float
    job: NDArray[np.int64]
    rack: NDArray[np.intp]
    gpus: Array
    #: columns of ``Observed``
    values: Array
    #: of jobs: steps, and those of them that were slow
    steps: Array
    slow: Array
    #: of racks
    xids: Array
    gpu_hours: Array


class Plant:
    """The fleet with its jobs. The same seed and changes give the same readings."""

    def __init__(self, seed: int) -> None:
        self.fleet: Fleet = make_even_fleet(gpus=GPUS, nodes_per_rack=NODES_PER_RACK)
        nodes = len(self.fleet.nodes)
        self.racks = len(self.fleet.racks)
        self._rng = np.random.default_rng([seed, 11])
        self.twin = Twin(self.fleet, seed=seed, queued=np.ones(nodes, np.bool_), failures=_FAILURES)
        self._network = Network(self.twin, seed=seed)
        self._storage = Storage(self.fleet, self.twin.conditions)
        self._jobs: list[_Job] = []
        self._begun = 0
        self._held = np.zeros(nodes, np.bool_)
        #: Whether jobs came or went, or racks are being changed, since that was seen to.
        self._moved = True
        #: When each rack is done with being changed, and to what.
        self._busy_until_s = np.full(self.racks, -np.inf)
        self.has: list[Change | None] = [None] * self.racks
        self._wanted: list[Change | None] = [None] * self.racks
        self.harmed_gpu_h = 0.0
        self.blocks: list[Seen] = []
        self._xids_seen = 0
        slots = len(self.twin.workload.names)
        #: By slot: the step that it is at, and what its steps took in the first whole block.
        self._at_step, self._usual_s = np.zeros(slots), np.full(slots, np.nan)
        self._slots = np.zeros(0, dtype=np.intp)
        self._clear()

    @property
    def now_s(self) -> float:
        return self.twin.now_s

    # --- Changes ---------------------------------------------------------------------------------

    def change(self, racks: Bools, to: Change | None) -> None:
        """Begin to bring racks to a change, or back to what was before (None)."""
        for rack in np.flatnonzero(racks).tolist():
            self._wanted[rack] = to
            self._busy_until_s[rack] = self.now_s + UPDATE_S
        self._moved = True

    def reports(self, racks: Bools, to: Change | None) -> bool:
        """Say whether all of these racks report to have what is wanted."""
        return all(self.has[rack] is to for rack in np.flatnonzero(racks).tolist())

    def _apply(self) -> None:
        """Let the racks that are through with it have their change."""
        conditions, jobs = self.twin.conditions, self.twin.workload.jobs
        draw = conditions.gpu_draw_factor.reshape(-1, GPUS_PER_NODE)
        due = np.flatnonzero(np.abs(self._busy_until_s - self.now_s) < 0.5 * _STEP_S)
        for rack in due.tolist():
            now = self.has[rack] = self._wanted[rack]
            draw[self.fleet.rack_of_node == rack] = 1.0 if now is None else now.draw_factor
        if not (self._moved or due.size):
            return
        self._moved = False
        self._slots = np.array([each.slot for each in self._jobs], dtype=np.intp)
        for each in self._jobs:
            change = self.has[each.rack]
            jobs.hang_share[each.slot] = 0.0 if change is None else change.hang_share
            jobs.hang_times[each.slot] = 1.0 if change is None else change.hang_times
            busy = self._busy_until_s[each.rack] > self.now_s + 0.5 * _STEP_S
            self.twin.workload.scale_task(each.slot, 0.0 if busy else 1.0)

    # --- Time ------------------------------------------------------------------------------------

    def go(self, seconds: float) -> None:
        """Let whole blocks pass."""
        for _ in range(round(seconds / BLOCK_S)):
            self._block()

    def _block(self) -> None:
        self._clear()
        for second in np.arange(_STEP_S, BLOCK_S + _STEP_S, _STEP_S):
            self._schedule()
            self._apply()
            self.twin.advance(_STEP_S)
            self.twin.workload.train(
                _STEP_S, self.twin.pace_by_slot, network=self._network, storage=self._storage
            )
            self._note_steps()
            if second % _READ_EVERY_S == 0:
                self._read()
        self.blocks.append(self._seen())

    def _schedule(self) -> None:
        workload = self.twin.workload
        for each in [*self._jobs]:
            if self.now_s >= each.ends_s or each.slot in workload.lost:
                self.twin.let_go(each.slot)
                workload.end_task(each.slot)
                self._held[each.nodes] = False
                self._jobs.remove(each)
                self._moved = True
        self._held |= self.twin.down
        if self._held.all():
            return
        # What waits starts at once: a gang of one node, or of a whole rack.
        free = np.flatnonzero(~self._held)
        while free.size:
            rack = self.fleet.rack_of_node[free[0]]
            there = free[self.fleet.rack_of_node[free] == rack]
            size = min(int(self._rng.choice((1, NODES_PER_RACK))), there.size)
            self._begin(there[:size], int(rack))
            free = np.flatnonzero(~self._held)

    def _begin(self, nodes: NDArray[np.intp], rack: int) -> None:
        rng, workload = self._rng, self.twin.workload
        life_s = max(float(rng.exponential(_MEAN_LIFE_S)), _LEAST_LIFE_S)
        spec = TrainingSpec(
            base_step_s=float(rng.uniform(3.0, 8.0)),
            total_steps=10**6,
            collective_bytes=float(rng.uniform(1e9, 1e10)),
            overlap=0.5,
            activity=float(rng.uniform(0.5, 0.95)),
            step_stray=0.022 / 1.645,
            warmup_s=float(rng.uniform(30.0, 90.0)),
            checkpoint_bytes=float(rng.uniform(20.0, 45.0)) * nodes.size * NODE_WRITE_BYTES_PER_S,
            checkpoint_interval_s=float(rng.uniform(900.0, 1800.0)),
        )
        name = f"job-{self._begun}"
        slot = workload.begin_training(name, spec, self.now_s, nodes=nodes.size)
        if slot is None:
            raise RuntimeError("the twin runs no more tasks")
        self.twin.hold(_gpus_of(nodes), slot)
        self._held[nodes] = True
        self._jobs.append(_Job(self._begun, slot, nodes, rack, self.now_s + life_s, spec))
        self._begun += 1
        self._at_step[slot], self._usual_s[slot] = 0.0, np.nan
        self._moved = True

    # --- What is read ----------------------------------------------------------------------------

    def _clear(self) -> None:
        self._reads: list[tuple[Array, Array, Array]] = []
        slots = len(self.twin.workload.names)
        self._in_steps_s, self._steps, self._steps_s, self._slow = np.zeros((4, slots))
        self._throttled_ns = self._throttled()
        self._here = {each.number for each in self._jobs}

    def _throttled(self) -> Array:
        """Time that each GPU was throttled, but for its power limit, which is expected."""
        ns = self.twin.throttle_ns
        causes = (ThrottleCause.HW_SLOWDOWN, ThrottleCause.SW_THERMAL, ThrottleCause.HW_THERMAL)
        return np.asarray(sum(ns[cause] for cause in causes), dtype=np.float64)

    def _note_steps(self) -> None:
        jobs, slots = self.twin.workload.jobs, self._slots
        stands = jobs._saving(len(jobs.phase))[slots] | (jobs.scale[slots] <= 0.0)
        works = (jobs.phase[slots] == TRAINING) & ~stands
        self._in_steps_s[slots] += works * _STEP_S
        at, step_s = np.floor(jobs._cycles[slots]), jobs.step_s[slots]
        new = works & (at > self._at_step[slots])
        self._at_step[slots] = at
        self._steps[slots] += new
        self._steps_s[slots] += new * step_s
        self._slow[slots] += new & (step_s > _SLOW * self._usual_s[slots])
        self.harmed_gpu_h += self._changed_gpus() * _STEP_S / 3600.0

    def _changed_gpus(self) -> int:
        """Return how many GPUs with a change have a job."""
        changed = np.array([each is not None for each in self.has])[self.fleet.rack_of_node]
        return int((changed & self._held).sum()) * GPUS_PER_NODE

    def _read(self) -> None:
        twin = self.twin
        over_inlet_c = twin.temp_c - twin.inlet_c[twin._rack_of_gpu]
        self._reads.append((twin.power_w.copy(), twin.activity.copy(), over_inlet_c))

    def _seen(self) -> Seen:
        whole = [each for each in self._jobs if each.number in self._here]
        slots = np.array([each.slot for each in whole], dtype=np.intp)
        power, work, temp = (
            np.array(each).reshape(len(each), -1, GPUS_PER_NODE).mean(axis=2)
            for each in zip(*self._reads, strict=True)
        )
        throttled = (self._throttled() - self._throttled_ns) / (BLOCK_S * 1e9)
        throttled = throttled.reshape(-1, GPUS_PER_NODE).mean(axis=1)
        steps = self._steps[slots]
        # Slow is what is slow beside what a job took in its first whole block.
        counts = np.where(np.isfinite(self._usual_s[slots]), steps, 0.0)
        step_s = np.where(steps > 0, self._steps_s[slots] / np.maximum(steps, 1.0), np.nan)
        new = ~np.isfinite(self._usual_s[slots])
        self._usual_s[slots[new]] = step_s[new]
        of_nodes = [
            [np.median(value[:, each.nodes].mean(axis=1)) for value in (power, work, temp)]
            for each in whole
        ]
        held_back = [throttled[each.nodes].mean() for each in whole]
        in_steps = self._in_steps_s[slots] / BLOCK_S
        saved = np.array([each.spec.checkpoint_bytes for each in whole])
        lines = self.twin.xid_log[self._xids_seen :]
        self._xids_seen = len(self.twin.xid_log)
        rack_of_gpu = self.fleet.rack_of_node[[line.gpu // GPUS_PER_NODE for line in lines]]
        by_rack = np.bincount(self.fleet.rack_of_node, minlength=self.racks) * GPUS_PER_NODE
        return Seen(
            self.now_s,
            np.array([each.number for each in whole]),
            np.array([each.rack for each in whole]),
            np.array([float(each.nodes.size * GPUS_PER_NODE) for each in whole]),
            np.column_stack([step_s, held_back, of_nodes, in_steps, saved]),
            counts,
            self._slow[slots],
            np.bincount(rack_of_gpu, minlength=self.racks).astype(np.float64),
            np.asarray(by_rack * (BLOCK_S / 3600.0), dtype=np.float64),
        )

    def alike(self) -> Racks:
        """Return what is known of the racks, for the choice of arms."""
        last = self.blocks[-30:]
        load = np.zeros((self.racks, 2))
        for each in last:
            for at, column in enumerate((2, 3)):
                total = np.bincount(each.rack, each.gpus * each.values[:, column], self.racks)
                load[:, at] += total / (NODES_PER_RACK * GPUS_PER_NODE * len(last))
        one = np.zeros(self.racks, dtype=np.int64)
        return Racks(
            gpus=np.full(self.racks, float(NODES_PER_RACK * GPUS_PER_NODE)),
            model=one,
            cooling=one,
            age_days=np.full(self.racks, np.nan),
            load=load,
            load_names=("power", "work"),
            eligible=np.ones(self.racks, np.bool_),
        )


def evidence_of(
    after: list[Seen], before: list[Seen], changed: Bools, unchanged: Bools
) -> tuple[Observed, Observed, Units, dict[str, Counts]]:
    """Return what is judged: blocks after the change, blocks before it (the last first), jobs."""
    job = np.unique(np.concatenate([each.job for each in (*after, *before)]))
    rack, gpus = np.zeros(job.size, dtype=np.intp), np.zeros(job.size)
    for each in (*after, *before):
        at = np.searchsorted(job, each.job)
        rack[at], gpus[at] = each.rack, each.gpus
    units = Units(changed[rack], unchanged[rack], np.zeros(job.size, dtype=np.int64), gpus)
    arms = (changed, unchanged)
    xids = [
        np.array([getattr(each, name)[arm].sum() for each in after])
        for name in ("xids", "gpu_hours")
        for arm in arms
    ]
    slow = [
        np.array([getattr(each, name)[arm[each.rack]].sum() for each in after])
        for name in ("slow", "steps")
        for arm in arms
    ]
    counts = {"xids": Counts(*xids), "slow_steps": Counts(*slow)}
    return _observed(after, job), _observed(before, job), units, counts


def _observed(blocks: list[Seen], job: NDArray[np.int64]) -> Observed:
    found = np.full((len(blocks), job.size, 7), np.nan)
    for at, each in enumerate(blocks):
        found[at, np.searchsorted(job, each.job)] = each.values
    return Observed(*np.moveaxis(found, -1, 0))


def _gpus_of(nodes: NDArray[np.intp]) -> NDArray[np.int64]:
    found = nodes[:, None] * GPUS_PER_NODE + np.arange(GPUS_PER_NODE)
    return found.reshape(-1).astype(np.int64)
