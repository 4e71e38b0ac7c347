"""The work of the twin: jobs that come, hold whole nodes, and go.

A pool is the nodes of one site and one row kind. A job takes a gang of nodes of one pool, all at
once, and its GPUs work in step: compute, then communicate, now and then write a checkpoint.

A *task* is a job that somebody else begins and ends, on GPUs that no pool has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: A range that values are drawn from evenly.
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """What jobs of one kind look like. ``activity`` is load; 1 is what a GPU is rated for."""

    name: str
    stems: tuple[str, ...]
    nodes: tuple[int, ...]
    activity: Range
    comm_activity: float
    period_s: Range
    comm_share: Range
    checkpoint_every_s: Range
    checkpoint_s: Range
    warmup_s: Range
    mean_life_s: float
    mem_share: Range


NEVER_S = 1e12

JOB_KINDS = {
    kind.name: kind
    for kind in (
        JobKind(
            name="train",
            stems=("pretrain-13b", "pretrain-70b", "moe-8x7b", "vision-2b"),
            nodes=(4, 8, 8, 16, 16),
            activity=(0.86, 1.03),
            comm_activity=0.62,
            period_s=(6.0, 24.0),
            comm_share=(0.10, 0.25),
            checkpoint_every_s=(900.0, 1800.0),
            checkpoint_s=(20.0, 45.0),
            warmup_s=(60.0, 150.0),
            mean_life_s=3 * 3600.0,
            mem_share=(0.8, 0.96),
        ),
        JobKind(
            name="finetune",
            stems=("lora-70b", "sft-8b", "dpo-13b", "rlhf-8b"),
            nodes=(1, 2, 2, 4),
            activity=(0.7, 0.95),
            comm_activity=0.55,
            period_s=(3.0, 9.0),
            comm_share=(0.08, 0.2),
            checkpoint_every_s=(600.0, 1200.0),
            checkpoint_s=(8.0, 20.0),
            warmup_s=(40.0, 90.0),
            mean_life_s=2400.0,
            mem_share=(0.6, 0.9),
        ),
        JobKind(
            name="serve",
            stems=("serve-chat", "serve-embed", "serve-code", "serve-vision"),
            nodes=(1, 1, 2),
            activity=(0.35, 0.75),
            comm_activity=0.3,
            period_s=(40.0, 180.0),
            comm_share=(0.2, 0.4),
            checkpoint_every_s=(NEVER_S, NEVER_S),
            checkpoint_s=(1.0, 1.0),
            warmup_s=(30.0, 60.0),
            mean_life_s=6 * 3600.0,
            mem_share=(0.7, 0.92),
        ),
        JobKind(
            name="evaluate",
            stems=("eval-suite", "eval-long-context", "preprocess", "features"),
            nodes=(1, 1, 2),
            activity=(0.25, 0.6),
            comm_activity=0.15,
            period_s=(10.0, 40.0),
            comm_share=(0.2, 0.5),
            checkpoint_every_s=(NEVER_S, NEVER_S),
            checkpoint_s=(1.0, 1.0),
            warmup_s=(20.0, 40.0),
            mean_life_s=900.0,
            mem_share=(0.2, 0.6),
        ),
    )
}

_WARMUP_ACTIVITY = 0.12
_CHECKPOINT_ACTIVITY = 0.15
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
    """What each job does now, by slot; slot 0 is no job."""

    activity: Array
    communicating: NDArray[np.bool_]
    checkpointing: NDArray[np.bool_]


class Workload:
    """The jobs on ``node_count`` nodes, and ``tasks`` at most beside them.

    Slot 0 stands for "no job"; slots are used again.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        node_count: int,
        rng: np.random.Generator,
        *,
        tasks: int = 0,
    ) -> None:
        self._pools = list(pools)
        self._rng = rng
        self.job_of_node = np.zeros(node_count, dtype=np.intp)
        slots = node_count + tasks + 1
        self.names: list[str | None] = [None] * slots
        self._free = list(range(slots - 1, 0, -1))
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
        self.mem_share = np.zeros(slots)
        #: Whether the gang spans nodes, so that its traffic leaves them.
        self.spans = np.zeros(slots, dtype=np.bool_)
        self._next_launch_s = np.zeros(len(self._pools))
        #: Of tasks: how much of its batch each works on, 0 while it is paused; until when it saves.
        self._scale = np.ones(slots)
        self._saves_until_s = np.full(slots, -np.inf)
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
        """End and start what is due. Return whether the placement changed."""
        ended = np.flatnonzero(self._end_s <= now_s)
        for slot in ended:
            self._stop(int(slot))
        due = np.flatnonzero(self._next_launch_s <= now_s)
        started = [self._launch(self._pools[i], now_s, aged=False) for i in due]
        self._next_launch_s[due] = now_s + self._rng.exponential(_MEAN_GAP_S, len(due))
        return bool(len(ended)) or any(started)

    def fail(self, slot: int, now_s: float) -> None:
        """Let the job in ``slot`` end at the next step: one of its GPUs was lost."""
        if slot in self._tasks:
            self.lost.add(slot)
        elif slot:
            self._end_s[slot] = now_s

    def begin_task(
        self, name: str, kind: JobKind, now_s: float, *, nodes: int, activity: float | None = None
    ) -> int | None:
        """Begin a task like jobs of ``kind`` and return its slot; None: there is none left.

        It saves, pauses and ends when it is told to. ``activity`` None: drawn, as that of jobs.
        """
        if not self._free:
            return None
        slot = self._free.pop()
        self._describe(slot, kind, nodes)
        self.names[slot] = name
        self._start_s[slot], self._checkpoint_every_s[slot] = now_s, NEVER_S
        if activity is not None:
            self._activity[slot] = activity
            self._comm_activity[slot] = kind.comm_activity * activity
        self._tasks.add(slot)
        return slot

    def end_task(self, slot: int) -> None:
        """End a task: its slot is free."""
        self._tasks.discard(slot)
        self.lost.discard(slot)
        self._scale[slot], self._saves_until_s[slot] = 1.0, -np.inf
        self._stop(slot)

    def scale_task(self, slot: int, scale: float) -> None:
        """Have a task work on this share of its batch; 0: not at all."""
        self._scale[slot] = scale

    def save_task(self, slot: int, now_s: float) -> None:
        """Have a task write a checkpoint now."""
        self._saves_until_s[slot] = now_s + self._checkpoint_s[slot]

    def load(self, now_s: float) -> Load:
        """Return what each job does at ``now_s``."""
        age_s = now_s - self._start_s
        warm = age_s >= self._warmup_s
        working_s = np.maximum(age_s - self._warmup_s, 0.0)
        communicating = warm & (
            np.mod(working_s, self._period_s) < self._comm_share * self._period_s
        )
        checkpointing = (
            warm
            & (working_s >= self._checkpoint_every_s)
            & (np.mod(working_s, self._checkpoint_every_s) < self._checkpoint_s)
        ) | (now_s < self._saves_until_s)
        activity = np.where(communicating, self._comm_activity, self._activity)
        activity = np.where(checkpointing, _CHECKPOINT_ACTIVITY, activity)
        activity = np.where(warm, activity, np.minimum(_WARMUP_ACTIVITY, self._activity))
        # A smaller batch keeps a GPU less busy, but not by as much.
        activity = activity * np.where(self._scale > 0, 0.4 + 0.6 * self._scale, 0.0)
        return Load(activity, communicating & ~checkpointing, checkpointing)

    def _stop(self, slot: int) -> None:
        self.job_of_node[self.job_of_node == slot] = 0
        self.names[slot] = None
        self._end_s[slot] = np.inf
        self._activity[slot] = 0.0
        self._free.append(slot)

    def _launch(self, pool: Pool, now_s: float, *, aged: bool) -> bool:
        """Start one job where the pool has room for it."""
        free = pool.nodes[self.job_of_node[pool.nodes] == 0]
        room = len(free) - round((1.0 - pool.occupancy) * len(pool.nodes))
        names, weights = zip(*pool.mix, strict=True)
        weight = np.array(weights) / sum(weights)
        kind = JOB_KINDS[str(self._rng.choice(names, p=weight))]
        size = min(int(self._rng.choice(kind.nodes)), room)
        if size < 1:
            return False
        slot = self._free.pop()
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
        self.mem_share[slot] = draw(*kind.mem_share)
        self.spans[slot] = size > 1

    def _schedule(self, slot: int, kind: JobKind, now_s: float, *, aged: bool) -> None:
        age_s = self._rng.exponential(kind.mean_life_s) if aged else 0.0
        self._start_s[slot] = now_s - age_s
        self._end_s[slot] = now_s + max(self._rng.exponential(kind.mean_life_s), _MIN_LIFE_S)
