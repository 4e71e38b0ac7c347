"""Gangs that run in the twin: they begin, make progress, save, follow directives, and end.

A gang stands in rows of the inventory; the twin has its own. Work is counted in seconds at full
speed on all GPUs that were asked for. A job with a training specification goes by its steps
(:mod:`lab.training.table`); a plain one by the pace of its slowest GPU alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from admission.core.allocation.allocations import PlacementRows, placement_rows_of
from admission.core.allocation.joint import Learned
from admission.core.allocation.reservation import BIN_EDGES_W
from admission.core.directives.book import Desired
from admission.core.request import Placement, Request
from admission.core.response.respond import ResponseStatus
from admission.core.response.shedding import lost_gpu_s
from admission.core.throughput import BEGINS_S, Curve, Measured, Unit, noted
from fleet.tables import FleetArrays
from lab.training import JOB_KINDS, Checkpoint
from lab.twin import Twin
from lab.twin.network import Network
from lab.twin.storage import Storage
from lab.world.arrival import Arrival
from lab.world.fleet_arrays import Rows
from physics.scaling import usl_speedup

__all__ = ["EPOCH_S", "Gang", "Gangs", "Job", "Saved"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Unix time of second 0 of the twin: 2027-01-15 08:00 UTC.
EPOCH_S = 1_800_000_000.0
#: The kind of load that a job without a training specification has.
_PLAIN = JOB_KINDS["train"]
_NEVER_S = float("inf")
#: What was done in a longer time tells nothing of a throughput: it was paused meanwhile, s.
_NOTED_WITHIN_S = 60.0
#: The slot of an attempt that has not begun.
_NO_SLOT = -1


@dataclass(frozen=True)
class Saved:
    """The durable part of a job's work: seconds of it, and the checkpoint of one that trains."""

    work_s: float = 0.0
    checkpoint: Checkpoint | None = None


@dataclass
class Job:
    """A job over all of its attempts. Times are seconds of the twin."""

    number: int
    arrival: Arrival
    request: Request
    state: str = "queued"
    saved: Saved = field(default_factory=Saved)
    not_before_s: float = 0.0
    held_by: str = ""
    started_s: float | None = None
    ended_s: float | None = None
    restarts: int = 0
    pauses: int = 0
    false_pauses: int = 0
    lost_gpu_s: float = 0.0
    gpu_s: float = 0.0
    #: seconds that it ran, and those that it would have needed for the same at full clocks
    ran_s: float = 0.0
    clocked_s: float = 0.0
    retries: float = 0.0
    sync_delay_s: float = 0.0
    final_loss: float | None = None
    checkpoint_ok: bool | None = None
    #: when attempts of it were lost
    failures_s: list[float] = field(default_factory=list)
    #: the site where it ran first
    first_site: str = ""
    #: what is kept for it to go on with after a move, and until when
    returns_to: Placement | None = None
    returns_by_s: float = 0.0
    #: what it did at each size, s of work in a second
    measured: dict[int, Measured] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.request.key

    @property
    def curve(self) -> Curve:
        return Curve.of(self.measured.values(), Unit.STEPS)

    @property
    def home(self) -> str:
        """Its home site: where it ran first, or the site that it asks for; "": nowhere."""
        asked = self.request.sites[0] if self.request.sites else ""
        return self.first_site or self.request.data_site or asked


@dataclass(eq=False)
class Gang:
    """An attempt of a job that holds GPUs. Rows are those of the inventory, sorted."""

    id: int
    job: Job
    #: as it was placed: an approach may have changed what the job asks for
    request: Request
    placement: Placement
    place: PlacementRows
    slot: int
    nodes: Ints
    gpus: Ints
    told_w: Array
    started_s: float
    expected_end_s: float
    saved_s: float | None
    #: seconds that each node drew so much: see ``admission.core.allocation.reservation.noted``
    drawn_s: Array
    p99_w: Array
    read_s: Array
    learned: Learned
    seen_s: float
    status: ResponseStatus = field(default_factory=ResponseStatus)
    #: what it was told last, and what it does: it hears of things a little later
    told: Desired = field(default_factory=Desired)
    does: Desired = field(default_factory=Desired)
    #: it is told to end by then; None: it is not
    leaves_s: float | None = None
    #: when it was told so
    told_s: float = 0.0
    #: of one that trains: the steps that it had made when it last began to save
    saving_steps: float = 0.0
    why: str = ""
    #: of one that moves: where it goes on
    returns_to: Placement | None = None
    #: when its throughput was last noted, and the work that was done by then, s
    noted_s: float = 0.0
    #: when it was first seen to have worked, s; None: it has not been yet
    works_s: float | None = None
    noted_work_s: float = 0.0

    @property
    def key(self) -> str:
        """Key that tells it from other attempts of its job."""
        return f"{self.job.key}/{self.id}"

    @property
    def gpu_count(self) -> int:
        return len(self.gpus)

    @property
    def placed_cap_w(self) -> float | None:
        return self.placement.power_cap_w

    @property
    def has_begun(self) -> bool:
        return self.slot != _NO_SLOT

    @property
    def is_ending(self) -> bool:
        return self.leaves_s is not None

    def lost_gpu_s(self, now: float) -> float:
        """Return the work that ending at ``now`` (Unix s) would throw away, GPU·s."""
        return lost_gpu_s(
            gpus=len(self.gpus),
            started_at=self.started_s,
            last_checkpoint_at=self.saved_s,
            now=now - EPOCH_S,
        )

    @property
    def is_paused(self) -> bool:
        return self.does.is_paused

    @property
    def scale(self) -> float:
        """The share of its batch that it works on; 0 while it is paused."""
        return 0.0 if self.does.is_paused else self.does.batch_scale

    @property
    def cap_w(self) -> float:
        """The cap on each of its GPUs, of its placement or told; inf: none."""
        caps_w = (self.placement.power_cap_w, self.does.power_cap_w)
        return min((cap_w for cap_w in caps_w if cap_w is not None), default=np.inf)

    @property
    def is_warm(self) -> bool:
        """Whether what it does since its throughput was last noted counts."""
        return self.works_s is not None and self.noted_s >= self.works_s + BEGINS_S

    @property
    def is_at_ease(self) -> bool:
        """Whether it is neither throttled nor about to end."""
        return self.leaves_s is None and self.status == ResponseStatus()

    @property
    def speed(self) -> float:
        """Its speed on the GPUs that it has, as a share of that on all it asked for."""
        contention = self.job.arrival.contention
        if not contention:
            return len(self.gpus) / self.job.request.gpus
        sizes = np.array([len(self.gpus), self.job.request.gpus], dtype=np.float64)
        has, asked = usl_speedup(gpus=sizes, contention=contention, coherency=0.0).tolist()
        return float(has / asked)


class Gangs:
    """All gangs of a world."""

    def __init__(
        self, twin: Twin, network: Network, storage: Storage, arrays: FleetArrays, rows: Rows
    ) -> None:
        self._twin, self._network, self._storage = twin, network, storage
        self._arrays, self._rows = arrays, rows
        slots = len(twin.workload.names)
        self.by_slot: dict[int, Gang] = {}
        #: by job
        self.by_key: dict[str, Gang] = {}
        #: that hold GPUs and have not begun, by id
        self.waiting: dict[int, Gang] = {}
        self._begun = 0
        #: by slot, of plain jobs: work done, work to do, and speed at full clocks; s
        self._done_s: Array = np.zeros(slots)
        self._work_s: Array = np.full(slots, np.inf)
        self._rate: Array = np.zeros(slots)
        #: by slot: the highest clock of its slowest GPU, as a share, and seconds run at it
        self._top_clock: Array = np.ones(slots)
        self._clocked_s: Array = np.zeros(slots)
        self._save_every_s: Array = np.full(slots, np.inf)
        self._durable: Array = np.zeros(slots)
        self._next_save_s: Array = np.full(slots, np.inf)

    def __iter__(self) -> Iterator[Gang]:
        return iter(self.by_slot.values())

    def __len__(self) -> int:
        return len(self.by_slot)

    @property
    def now_s(self) -> float:
        """The twin's clock."""
        return self._twin.now_s

    # --- Beginning and ending --------------------------------------------------------------------

    def place(self, job: Job, request: Request, placement: Placement, *, expected_s: float) -> Gang:
        """Hold the GPUs of an attempt of ``job``, which is to begin from its last checkpoint."""
        twin, nodes = self._twin, len(placement.nodes)
        self._begun += 1
        gang = Gang(
            id=self._begun,
            job=job,
            request=request,
            placement=placement,
            place=placement_rows_of(request, placement, self._arrays),
            slot=_NO_SLOT,
            nodes=np.array(placement.nodes, dtype=np.int64),
            gpus=np.array(placement.gpus, dtype=np.int64),
            told_w=np.array(placement.peak_w, dtype=np.float64),
            started_s=twin.now_s,
            expected_end_s=twin.now_s + expected_s,
            saved_s=None if job.saved.work_s == 0.0 else twin.now_s,
            drawn_s=np.zeros((nodes, len(BIN_EDGES_W))),
            p99_w=np.full(nodes, np.nan),
            read_s=np.zeros(nodes),
            learned=Learned.nothing(nodes),
            seen_s=twin.now_s,
        )
        self.waiting[gang.id] = gang
        return gang

    def begin(self, gang: Gang) -> bool:
        """Begin an attempt that holds its GPUs; say whether the twin had a slot for it."""
        twin, job = self._twin, gang.job
        del self.waiting[gang.id]
        slot = self._take_slot(job, len(gang.nodes), len(gang.gpus))
        if slot is None:
            return False
        gang.expected_end_s += twin.now_s - gang.started_s
        gang.slot, gang.started_s, gang.seen_s = slot, twin.now_s, twin.now_s
        twin.hold(self._rows.gpu[gang.gpus], slot)
        self.by_slot[slot] = self.by_key[job.key] = gang
        self._describe(gang)
        gang.noted_s, gang.noted_work_s = twin.now_s, self.done_s(gang)
        self.tell(gang)
        return True

    def _take_slot(self, job: Job, nodes: int, gpus: int) -> int | None:
        workload, arrival = self._twin.workload, job.arrival
        name = f"{job.key}#{job.number}"
        if arrival.training is None:
            return workload.begin_task(
                name, _PLAIN, self._twin.now_s, nodes=nodes, activity=arrival.activity
            )
        # With fewer GPUs each step takes longer.
        step_s = arrival.training.base_step_s * job.request.gpus / gpus
        spec = replace(arrival.training, base_step_s=step_s)
        return workload.begin_training(
            name, spec, self._twin.now_s, nodes=nodes, resume=job.saved.checkpoint
        )

    def _describe(self, gang: Gang) -> None:
        slot, arrival = gang.slot, gang.job.arrival
        plain = arrival.training is None
        # What is missing here is made up for while it starts: that is no work.
        self._done_s[slot] = gang.job.saved.work_s - arrival.starts_s * gang.speed
        self._clocked_s[slot] = 0.0
        top_clock = self._twin.parts.top_clock[self._rows.gpu[gang.gpus]]
        self._top_clock[slot] = top_clock.min()
        self._work_s[slot] = arrival.runs_s if plain else np.inf
        interval_s = gang.request.checkpoint_interval_s if plain else None
        self._save_every_s[slot] = _NEVER_S if interval_s is None else interval_s
        self._next_save_s[slot] = self._twin.now_s + self._save_every_s[slot]

    def end(self, gang: Gang, *, keeps: Saved) -> None:
        """End an attempt, of which ``keeps`` is safe; work done beyond that is lost."""
        job, twin = gang.job, self._twin
        done_s = self.done_s(gang)
        job.gpu_s += (twin.now_s - gang.started_s) * len(gang.gpus)
        job.ran_s += twin.now_s - gang.started_s
        job.clocked_s += float(self._clocked_s[gang.slot])
        job.lost_gpu_s += max(done_s - keeps.work_s, 0.0) * job.request.gpus
        job.saved = keeps
        if gang.job.arrival.training is not None:
            self._note_training(gang)
        twin.let_go(gang.slot)
        twin.workload.end_task(gang.slot)
        self._rate[gang.slot], self._work_s[gang.slot] = 0.0, np.inf
        self._next_save_s[gang.slot] = np.inf
        del self.by_slot[gang.slot], self.by_key[gang.job.key]

    def _note_training(self, gang: Gang) -> None:
        job, progress = gang.job, self._twin.workload.jobs.progress(gang.slot)
        job.retries += progress.retries
        job.sync_delay_s = progress.sync_delay_s
        job.final_loss = progress.loss
        job.checkpoint_ok = progress.checkpoint_ok

    # --- Going on --------------------------------------------------------------------------------

    def advance(self, dt_s: float) -> tuple[list[Gang], list[Gang]]:
        """Advance gangs by ``dt_s`` of the twin; return those finished, and those lost."""
        twin, workload = self._twin, self._twin.workload
        used = slice(0, workload.top)
        self._done_s[used] += dt_s * twin.pace_by_slot[used] * self._rate[used]
        self._clocked_s[used] += dt_s * twin.pace_by_slot[used] / self._top_clock[used]
        workload.train(dt_s, twin.pace_by_slot, network=self._network, storage=self._storage)
        for slot in np.flatnonzero(self._next_save_s[used] <= twin.now_s).tolist():
            self._save_due(self.by_slot[slot])
        self._note_saves(used)
        done = np.flatnonzero(self._done_s[used] >= self._work_s[used]).tolist()
        done += workload.jobs.finished()
        lost = [self.by_slot[slot] for slot in sorted(workload.lost) if slot in self.by_slot]
        return [self.by_slot[slot] for slot in done if slot not in workload.lost], lost

    def _note_saves(self, used: slice) -> None:
        """Note when training gangs have written a checkpoint in full."""
        durable = self._twin.workload.jobs.durable_steps[used]
        for slot in np.flatnonzero(durable > self._durable[used]).tolist():
            if slot in self.by_slot:
                self.by_slot[slot].saved_s = self._twin.now_s
        self._durable[used] = durable

    def _save_due(self, gang: Gang) -> None:
        self._next_save_s[gang.slot] = self._twin.now_s + self._save_every_s[gang.slot]
        if self._rate[gang.slot] > 0.0:
            self.save(gang)

    def save(self, gang: Gang) -> None:
        """Have a gang write a checkpoint. A plain one is safe at once; one that trains, in time."""
        self._twin.workload.save_task(gang.slot, self._twin.now_s)
        if gang.job.arrival.training is not None:
            gang.saving_steps = float(self._twin.workload.jobs.steps[gang.slot])
        elif gang.request.checkpoint_interval_s is not None:
            gang.job.saved = Saved(self.done_s(gang))
            gang.saved_s = self._twin.now_s

    def clocked_s(self, gang: Gang) -> float:
        """Return the seconds at full clocks in which it would have done what it did."""
        return float(self._clocked_s[gang.slot])

    def done_s(self, gang: Gang) -> float:
        """Return the work that is done, safe or not, s."""
        if gang.job.arrival.training is None:
            done_s = max(float(self._done_s[gang.slot]), gang.job.saved.work_s)
            return min(done_s, gang.job.arrival.runs_s)
        progress = self._twin.workload.jobs.progress(gang.slot)
        return progress.done_share * gang.job.arrival.runs_s

    def safe(self, gang: Gang) -> Saved:
        """Return the work that would be left if the gang were lost now."""
        if gang.job.arrival.training is None:
            return gang.job.saved
        jobs = self._twin.workload.jobs
        checkpoint = jobs.durable(gang.slot)
        if checkpoint is None:
            return gang.job.saved
        share = min(checkpoint.steps / gang.job.arrival.training.total_steps, 1.0)
        return Saved(share * gang.job.arrival.runs_s, checkpoint)

    def is_saved(self, gang: Gang) -> bool:
        """Say whether all that a gang had done when it last began to save is safe."""
        if gang.job.arrival.training is None:
            return True
        return bool(self._twin.workload.jobs.durable_steps[gang.slot] >= gang.saving_steps)

    def note_throughput(self, gangs: Iterable[Gang]) -> None:
        """Note what elastic ones of ``gangs`` did since the last call, those on their full batch.

        Their caps count: what a size does under the power that there is for it is what it does.
        What they do first does not.
        """
        for gang in gangs:
            if not gang.job.request.is_elastic:
                continue
            for_s, done_s = self.now_s - gang.noted_s, self.done_s(gang)
            work_s, is_warm = done_s - gang.noted_work_s, gang.is_warm
            if gang.works_s is None and work_s > 0.0:
                gang.works_s = self.now_s
            gang.noted_s, gang.noted_work_s = self.now_s, done_s
            if is_warm and for_s <= _NOTED_WITHIN_S and work_s > 0.0 and gang.scale == 1.0:
                gpus, known = len(gang.gpus), gang.job.measured
                before = known.get(gpus, Measured(gpus, 0.0, 0.0))
                known[gpus] = noted(before, work_s / for_s, for_s)

    # --- Being told ------------------------------------------------------------------------------

    def tell(self, gang: Gang) -> None:
        """Have a gang work on its share of the batch, under its cap."""
        self._rate[gang.slot] = gang.scale * gang.speed
        workload = self._twin.workload
        workload.scale_task(gang.slot, gang.scale)
        if gang.job.arrival.training is not None:
            workload.jobs.scale[gang.slot] = gang.scale
        self._twin.cap_task(gang.slot, gang.cap_w)
