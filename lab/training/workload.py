"""The work of the twin: jobs that come, hold whole nodes, and go.

A pool is the nodes of one site and one row kind. A job takes a gang of nodes of one pool, all at
once, and its GPUs work in step: compute, then communicate, now and then write a checkpoint.

A *task* is a job that somebody else begins and ends, on GPUs that no pool has. What a task does
goes by the pattern of its kind, or, where it was begun with a specification, by how far its
training has come: see :mod:`lab.training.table`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.training.kinds import JOB_KINDS, NEVER_S, JobKind
from lab.training.spec import TrainingSpec
from lab.training.table import BEHIND_S, Checkpoint, JobTable, Network, Storage

Array = NDArray[np.float64]

#: Load of GPUs whose job stands still to write a checkpoint.
CHECKPOINT_ACTIVITY = 0.15
#: A smaller batch keeps a GPU less busy, but not by as much: what is left at the smallest.
SMALLEST_BATCH_ACTIVITY = 0.4
#: Groups of a job's nodes: those that are not behind, and those that are.
_GROUPS = 1 + len(BEHIND_S)
_MEAN_GAP_S = 40.0
_MIN_LIFE_S = 240.0


@dataclass(frozen=True)
class Pool:
    """Nodes that the same jobs may use: indexes, the share they may fill, and the mix of kinds."""

    nodes: NDArray[np.intp]
    occupancy: float
    mix: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Load:
    """The present load of each job, by slot; slot 0 is no job."""

    activity: Array
    #: of its nodes: a column for each of :data:`lab.training.table.BEHIND_S`
    behind: Array
    communicating: NDArray[np.bool_]
    checkpointing: NDArray[np.bool_]


class Workload:
    """The jobs on ``node_count`` nodes, and ``tasks`` at most beside them.

    Slot 0 stands for "no job". Slots are used again, the lowest first, so that all that are in use
    lie below :attr:`top`. ``seed`` and ``repeat`` are those of :class:`JobTable`.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        node_count: int,
        rng: np.random.Generator,
        *,
        tasks: int = 0,
        seed: int = 0,
        repeat: int = 0,
    ) -> None:
        self._pools = list(pools)
        self._rng = rng
        self.job_of_node = np.zeros(node_count, dtype=np.intp)
        #: Nodes that no job is started on.
        self.out_of_use = np.zeros(node_count, dtype=np.bool_)
        slots = node_count + tasks + 1
        self.names: list[str | None] = [None] * slots
        self._free = list(range(1, slots))
        #: One more than the highest slot that was ever in use.
        self.top = 1
        self._started = 0
        self._start_s = np.zeros(slots)
        self._end_s = np.full(slots, np.inf)
        self._activity = np.zeros(slots)
        self._comm_activity = np.zeros(slots)
        self._period_s = np.ones(slots)
        self._comm_share = np.zeros(slots)
        self._checkpoint_every_s = np.full(slots, NEVER_S)
        self._checkpoint_s = np.zeros(slots)
        self._warmup_s = np.zeros(slots)
        self._warmup_activity = np.zeros(slots)
        self._eval_every_s = np.full(slots, NEVER_S)
        self._eval_s = np.zeros(slots)
        self._eval_from_s = np.zeros(slots)
        self._eval_pause_s = np.zeros(slots)
        self._eval_activity = np.zeros(slots)
        self.mem_share = np.zeros(slots)
        #: Whether the gang spans nodes, so that its traffic leaves them.
        self.spans = np.zeros(slots, dtype=np.bool_)
        #: How far behind the first of its gang each group of nodes is.
        self._behind_s = np.zeros((slots, len(BEHIND_S)))
        self._next_launch_s = np.zeros(len(self._pools))
        #: When the next job ends or may start.
        self._next_s = -np.inf
        #: Tasks that were begun with a specification.
        self.jobs = JobTable(slots, seed=seed, repeat=repeat)
        #: Of tasks: how much of its batch each works on, 0 while it is paused; until when it saves.
        self._scale = self.jobs.scale
        self._saves_until_s = np.full(slots, -np.inf)
        #: What each does but for its exchanges, until when at least, and when the first may change.
        self._stages = _Stages(slots)
        self._tasks: set[int] = set()
        #: Tasks that have lost a GPU. Whoever began them is to end them.
        self.lost: set[int] = set()

    def fill(self, now_s: float) -> None:
        """Start jobs of all ages, as if the pools had been in use for long."""
        for pool in self._pools:
            while self._launch(pool, now_s, aged=True):
                pass
        self._next_launch_s = now_s + self._rng.exponential(_MEAN_GAP_S, len(self._pools))

    def advance(self, now_s: float) -> bool:
        """End and start jobs that are due. Return whether the placement changed."""
        if now_s < self._next_s:
            return False
        ended = np.flatnonzero(self._end_s[: self.top] <= now_s)
        for slot in ended:
            self._stop(int(slot))
        started = self._launch_due(now_s)
        self._next_s = min(self._end_s[: self.top].min(), self._next_launch_s.min(initial=np.inf))
        return bool(len(ended)) or started

    def _launch_due(self, now_s: float) -> bool:
        """Start a job in each pool that is due and has room; return whether any did."""
        due = np.flatnonzero(self._next_launch_s <= now_s)
        if not len(due):
            return False
        started = [self._launch(self._pools[i], now_s, aged=False) for i in due]
        self._next_launch_s[due] = now_s + self._rng.exponential(_MEAN_GAP_S, len(due))
        return any(started)

    def fail(self, slot: int, now_s: float) -> None:
        """Let the job in ``slot`` end at the next step: one of its GPUs was lost."""
        if slot in self._tasks:
            self.lost.add(slot)
        elif slot:
            self._end_s[slot] = self._next_s = now_s

    def begin_task(
        self, name: str, kind: JobKind, now_s: float, *, nodes: int, activity: float | None = None
    ) -> int | None:
        """Begin a task like jobs of ``kind`` and return its slot; None: no slot is free.

        It saves, pauses and ends when it is told to. ``activity`` None: drawn, as that of jobs.
        """
        if not self._free:
            return None
        slot = self._take()
        self._describe(slot, kind, nodes)
        self.names[slot] = name
        self._start_s[slot], self._checkpoint_every_s[slot] = now_s, NEVER_S
        if activity is not None:
            self._activity[slot] = activity
            self._comm_activity[slot] = kind.comm_activity * activity
        self._tasks.add(slot)
        self._stages.renew(slot)
        return slot

    def begin_training(
        self,
        name: str,
        spec: TrainingSpec,
        now_s: float,
        *,
        nodes: int,
        resume: Checkpoint | None = None,
    ) -> int | None:
        """Begin a task that trains as ``spec`` says, anew or from a checkpoint; return its slot.

        It goes on by :meth:`train`, as far as it holds GPUs. None: there is no slot left.
        """
        kind = JOB_KINDS[spec.kind]
        slot = self.begin_task(name, kind, now_s, nodes=nodes, activity=spec.activity)
        if slot is not None:
            if spec.comm_activity is not None:
                self._comm_activity[slot] = spec.comm_activity
                self._stages.renew(slot)
            self.jobs.begin(slot, spec, key=name, resume=resume)
        return slot

    def train(
        self, dt_s: float, pace_by_slot: Array, *, network: Network, storage: Storage
    ) -> None:
        """Advance training by ``dt_s`` at the pace of the slowest GPU of each gang."""
        self.jobs.advance(dt_s, pace_by_slot, network=network, storage=storage)

    def end_task(self, slot: int) -> None:
        """End a task: its slot is free."""
        if slot in self.jobs:
            self.jobs.end(slot)
        self._tasks.discard(slot)
        self.lost.discard(slot)
        self._scale[slot], self._saves_until_s[slot] = 1.0, -np.inf
        self._stop(slot)

    def scale_task(self, slot: int, scale: float) -> None:
        """Have a task work on this share of its batch; 0: not at all."""
        self._scale[slot] = scale

    def save_task(self, slot: int, now_s: float) -> None:
        """Have a task write a checkpoint now."""
        if slot in self.jobs:
            self.jobs.save(slot)
            return
        self._saves_until_s[slot] = now_s + self._checkpoint_s[slot]
        self._stages.renew(slot)

    def load(self, now_s: float) -> Load:
        """Return the load of each job at ``now_s``."""
        top, slots = self.top, len(self.names)
        load = Load(
            np.zeros(slots),
            np.zeros((slots, len(BEHIND_S))),
            np.zeros(slots, np.bool_),
            np.zeros(slots, np.bool_),
        )
        # Slot 0, and those that are free, are not in use.
        if slots - 1 - len(self._free) > len(self.jobs):
            self._by_pattern(load, now_s)
        if len(self.jobs):
            self._by_progress(load)
        if (self._scale[:top] != 1.0).any():
            busy = batch_activity(self._scale[:top])
            load.activity[:top] *= busy
            load.behind[:top] *= busy[:, None]
        return load

    def _by_pattern(self, load: Load, now_s: float) -> None:
        """Set the load of jobs that follow the pattern of their kind."""
        top, stages = self.top, self._stages
        if now_s >= stages.next_s:
            self._set_stages(now_s)
        # Flat: short axes are slow.
        nodes = slice(0, top * _GROUPS)
        phase = now_s - stages.began_s[nodes]
        phase /= stages.period_s[nodes]
        phase -= np.floor(phase)
        exchanging = phase < stages.exchange_share[nodes]
        activity = np.where(exchanging, stages.exchange[nodes], stages.alike[nodes])
        activity = activity.reshape(top, _GROUPS)
        load.activity[:top], load.behind[:top] = activity[:, 0], activity[:, 1:]
        load.communicating[:top] = exchanging[::_GROUPS]
        load.checkpointing[:top] = stages.checkpointing[:top]

    def _set_stages(self, now_s: float) -> None:
        """Find out what those jobs do that may have gone on to something else."""
        stages = self._stages
        for slot in np.flatnonzero(stages.until_s[: self.top] <= now_s).tolist():
            self._set_stage(slot, now_s)
        stages.next_s = float(stages.until_s[: self.top].min())

    def _set_stage(self, slot: int, now_s: float) -> None:
        """Find out what one job does: few are due at once, so that arrays of them would be slow."""
        start_s, warmup_s = self._start_s.item(slot), self._warmup_s.item(slot)
        every_s, saving_s = self._checkpoint_every_s.item(slot), self._checkpoint_s.item(slot)
        eval_every_s, eval_s = self._eval_every_s.item(slot), self._eval_s.item(slot)
        age_s = now_s - start_s
        is_warm = age_s >= warmup_s
        working_s = max(age_s - warmup_s, 0.0)
        saved_s = _within(working_s, every_s)
        by_itself = is_warm and working_s >= every_s and saved_s < saving_s
        told_s = self._saves_until_s.item(slot) - now_s
        checkpointing = by_itself or told_s > 0.0
        trained_s, training_s = working_s - self._eval_from_s.item(slot), eval_every_s - eval_s
        to_first_s, pause_s = training_s - trained_s, self._eval_pause_s.item(slot)
        if trained_s > 0.0:
            trained_s = _within(trained_s, eval_every_s)
        evaluating = trained_s >= training_s
        alike = full = self._activity.item(slot)
        if evaluating:
            alike = self._eval_activity.item(slot)
        if checkpointing:
            alike = CHECKPOINT_ACTIVITY
        left_s = min(
            (saving_s if by_itself else every_s) - saved_s,
            (eval_every_s if evaluating else training_s) - trained_s,
        )
        if to_first_s > pause_s:
            left_s = min(left_s, to_first_s - pause_s)
        pausing = 0.0 < to_first_s <= pause_s
        if pausing or not is_warm:
            alike = min(self._warmup_activity.item(slot), full)
        if not is_warm:
            left_s = warmup_s - age_s
        steps = is_warm and not (checkpointing or evaluating or pausing)
        stages, nodes = self._stages, slice(slot * _GROUPS, (slot + 1) * _GROUPS)
        stages.until_s[slot] = now_s + (min(left_s, told_s) if told_s > 0.0 else left_s)
        stages.checkpointing[slot] = checkpointing
        stages.began_s[nodes] = start_s + warmup_s
        stages.began_s[nodes][1:] += self._behind_s[slot]
        stages.period_s[nodes] = self._period_s[slot]
        # What a job does beside its steps, all of its nodes do together.
        stages.alike[nodes], stages.exchange[nodes] = alike, self._comm_activity[slot]
        stages.exchange_share[nodes] = self._comm_share[slot] if steps else -1.0

    def _by_progress(self, load: Load) -> None:
        """Set the load of jobs that train by steps, from their progress."""
        top = self.top
        doing = self.jobs.doing(self.spans[:top])
        here = self.jobs.phase[:top] > 0
        activity, behind = self.jobs.activity(
            doing, self._activity[:top], self._comm_activity[:top], CHECKPOINT_ACTIVITY
        )
        np.copyto(load.activity[:top], activity, where=here)
        np.copyto(load.behind[:top], behind, where=here[:, None])
        np.copyto(load.communicating[:top], doing.exchanging, where=here)
        np.copyto(load.checkpointing[:top], doing.saving, where=here)

    def _take(self) -> int:
        """Return the lowest free slot, which is free no more."""
        slot = heapq.heappop(self._free)
        self.top = max(self.top, slot + 1)
        return slot

    def _stop(self, slot: int) -> None:
        self.job_of_node[self.job_of_node == slot] = 0
        self.names[slot] = None
        self._end_s[slot] = np.inf
        self._activity[slot] = 0.0
        self._stages.renew(slot)
        heapq.heappush(self._free, slot)

    def _launch(self, pool: Pool, now_s: float, *, aged: bool) -> bool:
        """Start one job where the pool has room for it."""
        taken = self.job_of_node.take(pool.nodes) != 0
        taken |= self.out_of_use.take(pool.nodes)
        free = pool.nodes[~taken]
        room = len(free) - round((1.0 - pool.occupancy) * len(pool.nodes))
        if room < 1:
            return False
        names, weights = zip(*pool.mix, strict=True)
        weight = np.array(weights) / sum(weights)
        kind = JOB_KINDS[str(self._rng.choice(names, p=weight))]
        size = min(int(self._rng.choice(kind.nodes)), room)
        slot = self._take()
        self.job_of_node[free[:size]] = slot
        self._describe(slot, kind, size)
        self._schedule(slot, kind, now_s, aged=aged)
        return True

    def _describe(self, slot: int, kind: JobKind, size: int) -> None:
        draw = self._rng.uniform
        self._started += 1
        self.names[slot] = f"{self._rng.choice(kind.stems)}-{self._started:05d}"
        self._activity[slot] = draw(*kind.activity)
        self._comm_activity[slot] = kind.comm_activity * self._activity[slot]
        self._period_s[slot] = draw(*kind.period_s)
        self._comm_share[slot] = draw(*kind.comm_share)
        self._checkpoint_every_s[slot] = draw(*kind.checkpoint_every_s)
        self._checkpoint_s[slot] = draw(*kind.checkpoint_s)
        self._warmup_s[slot] = draw(*kind.warmup_s)
        self._warmup_activity[slot] = kind.warmup_activity
        self._eval_activity[slot] = kind.eval_activity
        self._eval_every_s[slot] = NEVER_S
        self._eval_from_s[slot], self._eval_pause_s[slot] = kind.eval_from_s, kind.eval_pause_s
        if kind.eval_every_s[0] < NEVER_S:
            self._eval_every_s[slot] = draw(*kind.eval_every_s)
            self._eval_s[slot] = draw(*kind.eval_s)
        self.mem_share[slot] = draw(*kind.mem_share)
        self.spans[slot] = size > 1
        self._behind_s[slot] = BEHIND_S if size > 1 else 0.0
        self._stages.renew(slot)

    def _schedule(self, slot: int, kind: JobKind, now_s: float, *, aged: bool) -> None:
        age_s = self._rng.exponential(kind.mean_life_s) if aged else 0.0
        self._start_s[slot] = now_s - age_s
        self._end_s[slot] = now_s + max(self._rng.exponential(kind.mean_life_s), _MIN_LIFE_S)
        self._stages.renew(slot)


class _Stages:
    """What each job does but for its exchanges, by slot; and its nodes' exchanges, flat.

    A job's nodes come in groups: first those that are not behind, then one group for each of
    :data:`lab.training.table.BEHIND_S`.
    """

    def __init__(self, slots: int) -> None:
        nodes = slots * _GROUPS
        self.until_s: Array = np.full(slots, -np.inf)
        #: When the first of them may go on to something else.
        self.next_s = -np.inf
        self.checkpointing: NDArray[np.bool_] = np.zeros(slots, np.bool_)
        #: When the steps of nodes began, how long each takes, and its first share, in which they
        #: exchange; below 0 where they take no steps.
        self.began_s: Array = np.zeros(nodes)
        self.period_s: Array = np.ones(nodes)
        self.exchange_share: Array = np.full(nodes, -1.0)
        #: Load while they exchange, and else.
        self.exchange: Array = np.zeros(nodes)
        self.alike: Array = np.zeros(nodes)

    def renew(self, slot: int) -> None:
        """Have what the job in ``slot`` does found out anew."""
        self.until_s[slot] = self.next_s = -np.inf


def _within(time_s: float, period_s: float) -> float:
    """Return the time since the period began."""
    return time_s - math.floor(time_s / period_s) * period_s


def batch_activity(scale: Array) -> Array:
    """Return how busy each share of a batch keeps a GPU, as a share of the whole batch's."""
    smallest = SMALLEST_BATCH_ACTIVITY
    busy: Array = np.where(scale > 0, smallest + (1.0 - smallest) * scale, 0.0)
    return busy
