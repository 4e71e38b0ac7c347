"""The progress of training jobs: one value for each slot, stepped as arrays.

A job goes through its phases: what stands before the training, the training itself, what follows.
Of each span of time, what it may use is handed down: first it writes, if it stands still for that;
then it evaluates; what is left makes steps. A step takes as long as the slowest GPU of the gang
computes, and what the exchange with the others takes beyond that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lab.training.noise import seed_of, standard_normal, uniform
from lab.training.paths import LEAST_BYTES_PER_S, Paths, all_reduce_s
from lab.training.spec import Stage, TrainingSpec

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indexes = NDArray[np.intp]

#: Phases of a slot.
NOTHING, BEFORE, TRAINING, AFTER, DONE = range(5)
PHASE_WORDS = ("nothing", "before", "training", "after", "done")
#: A clock is never counted as slower than this.
_LEAST_PACE = 1e-3
#: A step that waits for something that does not come.
_BLOCKED_S = 1e15
#: Nodes of a gang do not release each other in the same instant: so far behind it are those of four
#: groups, as many in each, s. Their standard deviation is fitted to the first run of 512 GPUs: the
#: changes of two nodes are correlated by 0.67.
BEHIND_S: Array = 0.35 * np.array([-1.27, -0.32, 0.32, 1.27])
#: No step strays by more of its standard deviations.
_MOST_STRAYS = 3.0
#: Sets the seed by which steps hang apart from that by which they stray.
_HANGS = np.uint64(0x5DEECE66D)
#: What is called a slowed clock.
_SLOWED = 0.999
#: Collectives hand over their data in pieces of this size (the default buffer of NCCL).
_SEND_BYTES = 4 * 2**20
_PACKETS_PER_FABRIC_SEND, _PACKETS_PER_WAN_SEND = _SEND_BYTES / 4096, _SEND_BYTES / 8948
#: A job whose state was spoilt learns on from a worse place; a throttled nondeterministic one
#: from another one each time.
_SPOILT_LOSS, _STRAY_LOSS = 0.35, 0.02


class Network(Protocol):
    """The network between gangs, such as :class:`lab.twin.network.Network`."""

    @property
    def paths(self) -> Paths: ...


class Storage(Protocol):
    """The storage that gangs save to, such as :class:`lab.twin.storage.Storage`."""

    def rates(self, *, wanted_bytes_per_s: Array, nodes: Array, site: Indexes) -> Array: ...
    def retries(self, *, stored_bytes: Array, site: Indexes) -> Array: ...


@dataclass(frozen=True)
class Checkpoint:
    """A state that a job can go on from. ``link`` is the last of a chain of checksums.

    Each link is the checksum of the one before and of what was saved; ``marks`` has the steps and
    the contents of all, so that the chain can be computed again.
    """

    key: str
    steps: float
    loss_offset: float = 0.0
    intact: bool = True
    marks: tuple[tuple[float, str, str], ...] = ()

    @property
    def link(self) -> str:
        return self.marks[-1][2] if self.marks else ""

    def is_whole(self) -> bool:
        """Say whether the chain of checksums holds and each state was loaded as it was saved."""
        before = ""
        for steps, content, link in self.marks:
            if link != _checksum(before, f"{steps:.6f}", content):
                return False
            before = link
        return self.intact


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of one job, since it was begun in its slot unless stated otherwise."""

    name: str
    phase: str
    stage: str
    #: Steps in all, also those before it was resumed, in whole batches; and those that are safe.
    steps: float
    durable_steps: float
    total_steps: int
    #: What the steps made here would have taken at full speed, and what is lost if it ends now.
    work_s: float
    unsaved_s: float
    step_s: float
    loss: float
    saves: int
    #: Mean time by which exchanges held up a step more than they would have on a healthy network.
    sync_delay_s: float
    #: Sends of which a packet was lost, and requests to storage that failed: done again.
    retries: float
    checkpoint_ok: bool
    checksum: str

    @property
    def done_share(self) -> float:
        return min(self.steps / self.total_steps, 1.0)


@dataclass(frozen=True)
class Doing:
    """The present activity of jobs, by slot: any at all, exchanging, saving, evaluating."""

    anything: Bools
    exchanging: Bools
    saving: Bools
    evaluating: Bools
    #: with a column for each of :data:`BEHIND_S`
    exchanging_behind: Bools


@dataclass
class _Job:
    """The record of a job in a table, beside its arrays."""

    key: str
    spec: TrainingSpec
    seed: int
    stages: list[Stage]
    checkpoint: Checkpoint
    began_at_steps: float
    saves: int = 0
    saving_from: float = 0.0
    stage: str = ""
    after: list[Stage] = field(default_factory=list)


class JobTable:
    """Training jobs by slot, at most ``slots``; ``seed`` and ``repeat`` name the run.

    ``repeat`` counts repetitions with the same seed: only a job that is declared nondeterministic
    comes out different by it.
    """

    def __init__(self, slots: int, *, seed: int = 0, repeat: int = 0) -> None:
        self._seed, self._repeat = seed, repeat
        self._jobs: dict[int, _Job] = {}
        self._top = 1
        self._seen: Paths | None = None
        #: How much of its batch each works on; 0 while it is paused.
        self.scale: Array = np.ones(slots)
        self.phase = np.zeros(slots, dtype=np.int8)
        self.steps: Array = np.zeros(slots)
        self.durable_steps: Array = np.zeros(slots)
        #: What a step took last, and the share of it that was spent on computing.
        self.step_s: Array = np.ones(slots)
        self._compute_share: Array = np.ones(slots)
        self.retries: Array = np.zeros(slots)
        self._sync_s: Array = np.zeros(slots)
        #: Optimizer steps, whatever share of a batch they were of.
        self._cycles: Array = np.zeros(slots)
        self._slowed_steps: Array = np.zeros(slots)
        #: How far steps stray, and the seed by which they do.
        self._step_stray: Array = np.zeros(slots)
        self._stray_seed = np.zeros(slots, dtype=np.uint64)
        #: Share of its steps that hang, and how many times as long as others those compute: a
        #: fault, to be written by whoever plays it.
        self.hang_share: Array = np.zeros(slots)
        self.hang_times: Array = np.ones(slots)
        self._total: Array = np.zeros(slots)
        #: The total, less what adding up may lose of it.
        self._enough: Array = np.zeros(slots)
        self._base_s: Array = np.ones(slots)
        self._memory_s: Array = np.zeros(slots)
        self._message_bytes: Array = np.zeros(slots)
        self._overlap: Array = np.zeros(slots)
        self._collective_s: Array = np.zeros(slots)
        self._alone_s: Array = np.zeros(slots)
        self._retries_per_step: Array = np.zeros(slots)
        self._placed: Bools = np.zeros(slots, dtype=np.bool_)
        self._save_bytes: Array = np.zeros(slots)
        self._save_every_s: Array = np.full(slots, np.inf)
        self._blocks: Bools = np.zeros(slots, dtype=np.bool_)
        self._write_left: Array = np.zeros(slots)
        self._since_save_s: Array = np.zeros(slots)
        #: Of the time between evaluations.
        self._until_eval_s: Array = np.full(slots, np.inf)
        self._eval_left_s: Array = np.zeros(slots)
        self._since_eval_s: Array = np.zeros(slots)
        self._eval_activity: Array = np.zeros(slots)
        self._stage_left_s: Array = np.zeros(slots)
        self._stage_left_bytes: Array = np.zeros(slots)
        self._stage_activity: Array = np.zeros(slots)

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, slot: int) -> bool:
        return slot in self._jobs

    # --- Beginning and ending --------------------------------------------------------------------

    def begin(
        self, slot: int, spec: TrainingSpec, *, key: str, resume: Checkpoint | None = None
    ) -> None:
        """Begin a job in a free slot: anew, or from a checkpoint, which it loads first.

        ``key`` names the job in this run: the same key, seed and steps give the same losses.
        """
        state = resume or Checkpoint(key=key, steps=0.0)
        if resume is not None and spec.corrupts_on_resume:
            state = replace(state, intact=False, loss_offset=state.loss_offset + _SPOILT_LOSS)
        job = _Job(key, spec, seed_of(self._seed, key), [], state, state.steps)
        self._jobs[slot] = job
        self._top = max(self._top, slot + 1)
        self._seen = None
        for values in (
            self.retries, self._sync_s, self._cycles, self._slowed_steps, self._write_left,
            self._since_save_s, self._eval_left_s, self._since_eval_s,
        ):  # fmt: skip
            values[slot] = 0.0
        self.scale[slot] = self.hang_times[slot] = 1.0
        self.hang_share[slot] = 0.0
        self.steps[slot] = self.durable_steps[slot] = state.steps
        self._total[slot] = spec.total_steps
        self._enough[slot] = spec.total_steps * (1.0 - 1e-12)
        self._base_s[slot], self._memory_s[slot] = spec.base_step_s, spec.memory_step_s
        self._step_stray[slot] = spec.step_stray
        self._stray_seed[slot] = seed_of(job.seed, "steps")
        self.step_s[slot] = spec.least_step_s
        self._message_bytes[slot], self._overlap[slot] = spec.collective_bytes, spec.overlap
        self._save_bytes[slot] = spec.checkpoint_bytes
        self._save_every_s[slot] = spec.checkpoint_interval_s
        self._blocks[slot] = spec.checkpoint_blocks
        self._until_eval_s[slot] = spec.eval_every_s - spec.eval_s
        self._eval_activity[slot] = spec.eval_activity
        warm_up = Stage(
            name="loading",
            seconds=spec.warmup_s,
            storage_bytes=0.0 if resume is None else spec.checkpoint_bytes,
            activity=spec.warmup_activity,
        )
        job.stages = [*(spec.before if resume is None else ()), warm_up]
        job.after = list(spec.after)
        self.phase[slot] = BEFORE
        self._next_stage(slot)

    def end(self, slot: int) -> Progress:
        """End a job: its slot is free. Return its progress."""
        progress = self.progress(slot)
        del self._jobs[slot]
        self.phase[slot] = NOTHING
        self._write_left[slot] = self._stage_left_bytes[slot] = self._stage_left_s[slot] = 0.0
        self._eval_left_s[slot] = 0.0
        return progress

    def save(self, slot: int) -> None:
        """Have a job write a checkpoint now, unless it is writing one."""
        if self.phase[slot] == TRAINING and self._write_left[slot] <= 0.0:
            self._begin_save(slot)

    # --- Looking ---------------------------------------------------------------------------------

    def finished(self) -> list[int]:
        """Return the slots of jobs that have completed."""
        return [int(slot) for slot in np.flatnonzero(self.phase[: self._top] == DONE)]

    def is_finished(self, slot: int) -> bool:
        """Say whether a job has completed."""
        return bool(self.phase[slot] == DONE)

    def durable(self, slot: int) -> Checkpoint | None:
        """Return the last checkpoint that a job has written in full; None: there is none."""
        checkpoint = self._jobs[slot].checkpoint
        if not checkpoint.marks:
            return None
        return replace(checkpoint, loss_offset=checkpoint.loss_offset + self._stray(slot))

    def progress(self, slot: int) -> Progress:
        """Return the progress of the job in a slot."""
        job = self._jobs[slot]
        steps, cycles = float(self.steps[slot]), float(self._cycles[slot])
        full_s = self._full_step_s(slot)
        return Progress(
            name=job.key,
            phase=PHASE_WORDS[self.phase[slot]],
            stage=job.stage,
            steps=steps,
            durable_steps=float(self.durable_steps[slot]),
            total_steps=job.spec.total_steps,
            work_s=(steps - job.began_at_steps) * full_s,
            unsaved_s=(steps - float(self.durable_steps[slot])) * full_s,
            step_s=float(self.step_s[slot]),
            loss=self.loss(slot),
            saves=job.saves,
            sync_delay_s=float(self._sync_s[slot]) / cycles if cycles > 0.0 else 0.0,
            retries=float(self.retries[slot]),
            checkpoint_ok=job.checkpoint.is_whole(),
            checksum=job.checkpoint.link,
        )

    def loss(self, slot: int) -> float:
        """Return the loss after the last whole step of a job."""
        job = self._jobs[slot]
        at = np.floor(self.steps[slot : slot + 1])
        curve = job.spec.loss
        noise = curve.noise * standard_normal(job.seed, at.astype(np.uint64))
        loss = curve.at(at) * (1.0 + noise) + job.checkpoint.loss_offset + self._stray(slot)
        return float(loss[0])

    def learns(self, slot: int) -> bool:
        """Say whether a job has anything to save: others, such as evaluations, have no loss."""
        return bool(self._save_bytes[slot] > 0.0)

    def stands_in(self, slot: int) -> str:
        """Return what keeps a job from its steps: ``saving``, ``evaluating`` or a stage."""
        if self._write_left[slot] > 0.0 and self._blocks[slot]:
            return "saving"
        return "evaluating" if self._eval_left_s[slot] > 0.0 else self._jobs[slot].stage

    def exchange_s(self, slot: int) -> float:
        """Return how long the last step of a job was spent on exchanges that it waited for, s."""
        return float((1.0 - self._compute_share[slot]) * self.step_s[slot])

    def doing(self, spans: Bools) -> Doing:
        """Return the present activity of jobs; ``spans``: which of them have several nodes."""
        used = len(spans)
        phase = self.phase[:used]
        saving = self._saving(used)
        evaluating = self._evaluating(used)
        part = self._cycles[:used] - np.floor(self._cycles[:used])
        exchanging = part >= self._compute_share[:used]
        trains = (phase == TRAINING) & ~(saving | evaluating)
        exchanging &= trains
        behind = part[:, None] - spans[:, None] * BEHIND_S / self.step_s[:used, None]
        behind -= np.floor(behind)
        exchanging_behind = (behind >= self._compute_share[:used, None]) & trains[:, None]
        anything = (phase > NOTHING) & (phase < DONE)
        return Doing(anything, exchanging, saving, evaluating, exchanging_behind)

    def activity(
        self, doing: Doing, computing: Array, exchanging: Array, saving: float
    ) -> tuple[Array, Array]:
        """Return the load of each slot, from the loads of computing, exchanging and saving.

        The second of them is that of its nodes, with a column for each of :data:`BEHIND_S`.
        """
        used = len(computing)
        alike = np.where(doing.evaluating, self._eval_activity[:used], computing)
        alike = np.where(self.phase[:used] == TRAINING, alike, self._stage_activity[:used])
        alike = np.where(doing.saving, saving, alike)
        activity = np.where(doing.exchanging, exchanging, alike)
        behind = np.where(doing.exchanging_behind, exchanging[:, None], alike[:, None])
        return activity * doing.anything, behind * doing.anything[:, None]

    def _saving(self, used: int) -> Bools:
        """Say of each slot below ``used`` whether it stands still to write a checkpoint."""
        saving: Bools = (self._write_left[:used] > 0.0) & self._blocks[:used]
        return saving

    def _evaluating(self, used: int) -> Bools:
        evaluating: Bools = self._eval_left_s[:used] > 0.0
        return evaluating

    # --- Going on --------------------------------------------------------------------------------

    def advance(
        self, dt_s: float, pace_by_slot: Array, *, network: Network, storage: Storage
    ) -> None:
        """Advance by ``dt_s`` at the pace of the slowest GPU of each gang, a share of full clocks.

        Jobs whose gang is nowhere stand still, as do those that are paused; but these write on.
        """
        if not self._jobs:
            return
        paths, used = network.paths, self._top
        if paths is not self._seen:
            self._follow(paths)
        pace = np.ones(used)
        known = min(used, len(pace_by_slot))
        pace[:known] = np.maximum(pace_by_slot[:known], _LEAST_PACE)
        left_s = np.where(self._placed[:used] & (self.phase[:used] > NOTHING), dt_s, 0.0)
        left_s = self._write(left_s, paths, storage)
        left_s[self.scale[:used] <= 0.0] = 0.0
        left_s = self._go_through_stages(left_s, pace)
        training = self.phase[:used] == TRAINING
        left_s[~training] = 0.0
        self._since_eval_s[:used] += np.where(self._evaluating(used), 0.0, left_s)
        left_s = self._evaluate(left_s, pace)
        self._make_steps(left_s, pace)
        self._begin_what_is_due(training)

    def _follow(self, paths: Paths) -> None:
        """Take in the places and rates of gangs: after one came, went, or lost share."""
        used = min(self._top, len(paths.nodes))
        self._seen = paths
        self._placed[:] = False
        self._placed[:used] = paths.nodes[:used] > 0
        message = np.zeros(len(paths.nodes))
        message[:used] = self._message_bytes[:used]
        idle = message == 0.0
        for times, speeds in ((self._collective_s, paths.now), (self._alone_s, paths.alone)):
            taken_s = np.minimum(all_reduce_s(paths, speeds, message), _BLOCKED_S)
            times[:used] = np.where(idle, 0.0, taken_s)[:used]
        again = _sends_again(paths, message)
        self._retries_per_step[:used] = again[:used]

    def _full_step_s(self, slot: int) -> float:
        """Return the time of a job's step at full clocks, alone on a healthy network."""
        one = slice(slot, slot + 1)
        compute_s = np.maximum(self._base_s[one], self._memory_s[one])
        exposed_s = _exposed(self._alone_s[one], compute_s, self._overlap[one])
        return float((compute_s + exposed_s)[0])

    def _write(self, left_s: Array, paths: Paths, storage: Storage) -> Array:
        """Move bytes under way to and from storage; return the time that is left to each."""
        known = min(len(left_s), len(paths.nodes))
        under_way = self._write_left[:known] + self._stage_left_bytes[:known]
        moving = np.flatnonzero((under_way > 0.0) & (left_s[:known] > 0.0))
        if not len(moving):
            return left_s
        writes, reads, spare_s = (
            each[moving] for each in (self._write_left, self._stage_left_bytes, left_s)
        )
        site = paths.site[moving]
        rate = storage.rates(
            wanted_bytes_per_s=paths.storage_bytes_per_s[moving],
            nodes=paths.nodes[moving],
            site=site,
        )
        written_s, to_write = _moved(writes, rate, spare_s)
        # What a stage reads it waits for.
        read_s, to_read = _moved(reads, rate, spare_s - written_s)
        self._write_left[moving], self._stage_left_bytes[moving] = to_write, to_read
        stored = writes - to_write + reads - to_read
        self.retries[moving] += storage.retries(stored_bytes=stored, site=site)
        left_s[moving] -= np.where(self._blocks[moving], written_s, 0.0) + read_s
        for slot in moving[(writes > 0.0) & (to_write == 0.0)]:
            self._saved(int(slot))
        return left_s

    def _go_through_stages(self, left_s: Array, pace: Array) -> Array:
        """Pass time in the stages before and after the training; return the time that is left."""
        used = len(left_s)
        phase = self.phase[:used]
        inside = (phase == BEFORE) | ((phase == AFTER) & ~self._saving(used))
        if not inside.any():
            return left_s
        inside &= (left_s > 0.0) & (self._stage_left_bytes[:used] <= 0.0)
        self._stage_left_s[:used] -= np.where(inside, left_s * pace, 0.0)
        over = inside & (self._stage_left_s[:used] <= 0.0)
        rest_s = np.where(over, np.minimum(-self._stage_left_s[:used] / pace, left_s), left_s)
        for slot in np.flatnonzero(over):
            self._next_stage(int(slot))
        return rest_s

    def _evaluate(self, left_s: Array, pace: Array) -> Array:
        """Advance evaluations; return the time that is left to each."""
        used = len(left_s)
        if not self._evaluating(used).any():
            return left_s
        left = self._eval_left_s[:used]
        took_s = np.minimum(left_s, left / pace)
        over = (left > 0.0) & (left <= left_s * pace)
        self._eval_left_s[:used] = np.where(over, 0.0, left - took_s * pace)
        self._since_eval_s[:used] += np.where(over, left_s - took_s, 0.0)
        return left_s - took_s

    def _make_steps(self, left_s: Array, pace: Array) -> None:
        used = len(left_s)
        scale = self.scale[:used]
        compute_s = scale * np.maximum(self._base_s[:used] / pace, self._memory_s[:used])
        compute_s *= self._strays(used)
        overlap = self._overlap[:used]
        exposed_s = _exposed(self._collective_s[:used], compute_s, overlap)
        step_s = np.maximum(compute_s + exposed_s, 1e-9)
        open_steps = np.maximum(self._total[:used] - self.steps[:used], 0.0)
        made = np.minimum(left_s / step_s, open_steps / np.maximum(scale, 1e-9))
        self.steps[:used] += made * scale
        self._cycles[:used] += made
        delay_s = exposed_s - _exposed(self._alone_s[:used], compute_s, overlap)
        self._sync_s[:used] += made * delay_s
        self.retries[:used] += made * self._retries_per_step[:used]
        self._slowed_steps[:used] += np.where(pace < _SLOWED, made, 0.0)
        self._since_save_s[:used] += left_s
        self.step_s[:used] = step_s
        self._compute_share[:used] = compute_s / step_s

    def _strays(self, used: int) -> Array:
        """Return what the present step of each job takes, as a share of the mean of its steps."""
        stray, hangs = self._step_stray[:used], self.hang_share[:used]
        if not (stray.any() or hangs.any()):
            return np.ones(used)
        step = np.floor(self._cycles[:used]).astype(np.uint64)
        drawn = standard_normal(self._stray_seed[:used], step)
        share = np.asarray(1.0 + stray * np.clip(drawn, -_MOST_STRAYS, _MOST_STRAYS))
        if hangs.any():
            # Other numbers than those by which steps stray.
            hung = uniform(self._stray_seed[:used] ^ _HANGS, step) < hangs
            share[hung] *= self.hang_times[:used][hung]
        return share

    def _begin_what_is_due(self, training: Bools) -> None:
        """Begin saves and evaluations that are due, and the stages after the last step."""
        used = len(training)
        for slot in np.flatnonzero(training & (self.steps[:used] >= self._enough[:used])):
            training[slot] = False
            self._finish_training(int(slot))
        for slot in np.flatnonzero(
            training & (self._since_save_s[:used] >= self._save_every_s[:used])
        ):
            self.save(int(slot))
        due = training & (self._since_eval_s[:used] >= self._until_eval_s[:used])
        for slot in np.flatnonzero(due & ~self._evaluating(used)):
            # What is over the span counts for the next one, so that they follow each other exactly.
            self._since_eval_s[slot] -= self._until_eval_s[slot]
            self._eval_left_s[slot] = self._jobs[int(slot)].spec.eval_s

    def _finish_training(self, slot: int) -> None:
        """Save the result, then go through the stages after the training."""
        self._eval_left_s[slot] = 0.0
        self.phase[slot] = AFTER
        self._jobs[slot].stages = self._jobs[slot].after
        self._begin_save(slot)
        # The result is waited for, also by a job that trains on while it saves.
        self._blocks[slot] = True
        self._next_stage(slot)

    def _next_stage(self, slot: int) -> None:
        job = self._jobs[slot]
        if job.stages:
            stage, *job.stages = job.stages
            job.stage = stage.name
            self._stage_left_s[slot] = stage.seconds
            self._stage_left_bytes[slot] = stage.storage_bytes
            self._stage_activity[slot] = stage.activity
            return
        job.stage = ""
        self._stage_left_s[slot] = self._stage_left_bytes[slot] = 0.0
        if self.phase[slot] == BEFORE:
            self.phase[slot] = TRAINING
        elif self._write_left[slot] <= 0.0:
            self.phase[slot] = DONE

    def _begin_save(self, slot: int) -> None:
        self._since_save_s[slot] = 0.0
        self._jobs[slot].saving_from = float(self.steps[slot])
        self._write_left[slot] = self._save_bytes[slot]
        if self._save_bytes[slot] <= 0.0:
            self._saved(slot)

    def _saved(self, slot: int) -> None:
        """Record a checkpoint that has been written in full, and extend its chain."""
        job = self._jobs[slot]
        steps = job.saving_from
        state = job.checkpoint
        stray = self._stray(slot)
        content = _checksum(str(job.seed), f"{steps:.6f}", f"{stray:.9f}", str(state.intact))
        link = _checksum(state.link, f"{steps:.6f}", content)
        job.saves += 1
        job.checkpoint = replace(
            state,
            steps=steps,
            marks=(*state.marks, (steps, content, link)),
        )
        self.durable_steps[slot] = steps

    def _stray(self, slot: int) -> float:
        """Return how far a nondeterministic job has diverged from its other repetitions."""
        job = self._jobs[slot]
        if not job.spec.nondeterministic or self._slowed_steps[slot] <= 0.0:
            return 0.0
        drawn = standard_normal(job.seed, np.array([self._repeat], dtype=np.uint64) + 2**40)
        return _STRAY_LOSS * float(drawn[0])


def _moved(left_bytes: Array, bytes_per_s: Array, spare_s: Array) -> tuple[Array, Array]:
    """Return the time that moving bytes takes of the time there is, and the bytes left."""
    needed_s = np.where(left_bytes > 0.0, np.inf, 0.0)
    np.divide(left_bytes, bytes_per_s, out=needed_s, where=bytes_per_s >= LEAST_BYTES_PER_S)
    taken_s = np.minimum(spare_s, needed_s)
    return taken_s, np.where(taken_s >= needed_s, 0.0, left_bytes - taken_s * bytes_per_s)


def _exposed(collective_s: Array, compute_s: Array, overlap: Array) -> Array:
    """Return the exposed wait of a step for its exchange (physics.comm.exposed_communication_s)."""
    exposed: Array = collective_s - np.minimum(overlap * collective_s, compute_s)
    return exposed


def _sends_again(paths: Paths, message_bytes: Array) -> Array:
    """Return how many sends of one step of each gang lose a packet, on average.

    A ring has each of its members send twice the message, less what is its own.
    """
    nodes, sites = np.maximum(paths.nodes, 1.0), np.maximum(paths.sites, 1.0)
    fabric = 2.0 * (nodes - 1.0) * message_bytes / _SEND_BYTES
    wan = 2.0 * (sites - 1.0) * message_bytes / _SEND_BYTES
    in_fabric = 1.0 - (1.0 - paths.fabric_loss) ** _PACKETS_PER_FABRIC_SEND
    in_wan = 1.0 - (1.0 - paths.wan_loss) ** _PACKETS_PER_WAN_SEND
    again: Array = fabric * in_fabric + wan * in_wan
    return again


def _checksum(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
