"""A fleet of the twin whose jobs come and go, with the truth about each second of each GPU.

Jobs of 1 to 16 nodes train, save, evaluate and are lost with their nodes; some nodes are drained,
some work for nobody that Headroom knows, some are free. Jobs are capped and paused, racks are
capped and braked, nodes run hot, and somebody else lowers limits. What is told of it is what the
server would have: attempts, directives, restrictions, reports of loops each ten seconds, and
readings of agents each ten seconds, rolled up to the minute and followed by the server's own
tracker of throttling.

**The truth of a second in which a gang makes steps**, for each of its GPUs: a step takes as long as
the slowest clock computes, and then the exchange. A GPU at a clock of its own computes for its part
of that, and waits for the rest: that is synchronization. Of what it computes, what it would have
needed at the clock that it has without any limit is productive, and the rest is what the limit
took that sets its clock.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.account import Cause, throttled
from admission.core.fleet_account import Unheld
from headroom.contracts import ThrottleCause
from lab.fleet import GPUS_PER_NODE, make_load_fleet
from lab.readings import Frame
from lab.training.kinds import JOB_KINDS
from lab.training.spec import TrainingSpec
from lab.training.table import AFTER, BEFORE, TRAINING, Checkpoint
from lab.twin import Twin
from lab.twin.failures import FailureModel
from lab.twin.network import Network
from lab.twin.storage import Storage
from telemetry.samples import NULL_INT
from telemetry.throttle import rules
from telemetry.throttle.readings import COUNTERS, Ratings
from telemetry.throttle.readings import Readings as Throttling
from telemetry.throttle.tracker import Tracker

__all__ = ["KINDS", "MINUTE_S", "Attempt", "Minute", "Played", "Spell", "gpus_of"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: Loops report, and GPUs are read, so often; readings are rolled up over so long, s.
EVERY_S, MINUTE_S = 10, 60
#: The kinds of job whose loads there are.
KINDS = ("train", "finetune")
#: Shares of the nodes that are drained, and that work for somebody else.
_DRAINED, _UNMANAGED = 0.03, 0.05
#: A node is lost about every two weeks, so that a day of some thousand GPUs has some.
_FAILURES = FailureModel(loss_per_node_s=1.0 / (14 * 86_400), silence_per_node_s=0.0)
#: What happens to jobs, racks and nodes: to one of each about so often, s, and how long it lasts.
_EVERY: dict[str, float] = {
    "cap": 6 * 3600.0, "pause": 8 * 3600.0, "rack_cap": 24 * 3600.0, "brake": 36 * 3600.0,
    "heat": 48 * 3600.0, "lowered": 48 * 3600.0,
}  # fmt: skip
_LASTS: dict[str, tuple[float, float]] = {
    "cap": (600.0, 3600.0), "pause": (120.0, 1200.0), "rack_cap": (1200.0, 7200.0),
    "brake": (600.0, 2400.0), "heat": (1800.0, 10_800.0), "lowered": (1800.0, 7200.0),
}  # fmt: skip
#: What the tracker of throttling reads beside masks and counters.
_OF_THROTTLING = (
    "energy_j", "power_w", "power_limit_w", "temp_c", "temp_mem_c", "sm_mhz", "util",
)  # fmt: skip
_HARDWARE = int(ThrottleCause.HW_SLOWDOWN)
#: Of the causes of throttling, by code; the last is what a cap of ours takes.
_CODES: tuple[str, ...] = (
    throttled(ThrottleCause.SW_POWER_CAP, expected=False),
    throttled(ThrottleCause.SW_POWER_CAP, expected=True),
    throttled(ThrottleCause.SW_THERMAL, expected=False),
    throttled(ThrottleCause.HW_THERMAL, expected=False),
    throttled(ThrottleCause.HW_POWER_BRAKE, expected=False),
    Cause.CAPPED,
)


@dataclass
class Attempt:
    """An attempt of a job: the nodes that it holds, and its slot once its command began."""

    job: int
    number: int
    spec: TrainingSpec
    nodes: NDArray[np.intp]
    dispatched: float
    began: float
    ended: float = np.nan
    slot: int | None = None
    resume: Checkpoint | None = None
    reached: float = -1.0


@dataclass
class Spell:
    """Something that was in force: of an attempt, or of GPUs. ``end`` NaN: it is so yet."""

    what: str
    start: float
    end: float = np.nan
    attempt: int | None = None
    gpus: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    cap_w: float = np.inf
    lift: Callable[[], None] = lambda: None


@dataclass(frozen=True, eq=False)
class Minute:
    """Means over a minute of readings, by GPU; NaN: it was not read.

    ``stepping`` is no reading: for how long the gang of each made steps, s.
    """

    at: float
    util: Singles
    power_w: Singles
    limit_w: Singles
    stepping: Singles


class Played:
    """The fleet, played up to ``twin.now_s``."""

    def __init__(self, gpus: int, seed: int, kinds: Sequence[str] = KINDS) -> None:
        fleet = make_load_fleet(gpus=gpus)
        self.nodes = len(fleet.nodes)
        every = np.ones(self.nodes, dtype=np.bool_)
        self.twin = Twin(fleet, seed=seed, queued=every, failures=_FAILURES)
        self.network = Network(self.twin, seed=seed)
        self.storage = Storage(fleet, self.twin.conditions)
        self.rng = np.random.default_rng(seed)
        self.kinds = list(kinds)
        self.attempts: list[Attempt] = []
        self.running: list[Attempt] = []
        self.waiting: list[Attempt] = []
        self.reports: list[tuple[int, float, Floats]] = []
        self.truth: dict[str, float] = defaultdict(float)
        order = self.rng.permutation(self.nodes)
        drained, others = int(_DRAINED * self.nodes), int(_UNMANAGED * self.nodes)
        self.is_drained = np.isin(np.arange(self.nodes), order[:drained])
        self.is_others = np.isin(np.arange(self.nodes), order[drained : drained + others])
        self.holder: Bools = np.zeros(self.nodes, dtype=np.bool_)
        self.truth_of_seconds = _Truth(self)
        self.told = _Told(self)
        self.disturbed = _Disturbances(self, np.random.default_rng([seed, 7]))
        self._occupy()

    @property
    def gpus(self) -> int:
        return self.nodes * GPUS_PER_NODE

    def _occupy(self) -> None:
        workload = self.twin.workload
        for node in np.flatnonzero(self.is_others):
            slot = workload.begin_task("theirs", JOB_KINDS["train"], 0.0, nodes=1)
            if slot is not None:
                self.twin.hold(gpus_of(np.array([node])), slot)

    def go(self, seconds: int) -> None:
        """Play on for so many seconds."""
        for _ in range(seconds):
            now = self.twin.now_s
            self._schedule(now)
            self.disturbed.happen(now)
            self.truth_of_seconds.look()
            self.twin.advance(1.0)
            self.network.advance(1.0)
            pace = self.twin.pace_by_slot
            self.twin.workload.train(1.0, pace, network=self.network, storage=self.storage)
            self.truth_of_seconds.note(pace)
            self.told.hear(round(self.twin.now_s))

    # --- Jobs ---

    def _schedule(self, now: float) -> None:
        is_over = self.twin.down.any() or self.twin.workload.lost or self._finished()
        for each in [*self.running] if is_over else ():
            self._end_if_over(each, now)
        free = ~(self.holder | self.is_drained | self.is_others | self.twin.down)
        # A tenth of the fleet is left free.
        room = int(free.sum()) - self.nodes // 10
        while room >= (wanted := self.waiting[0].nodes.size if self.waiting else self._size()):
            self._begin(np.flatnonzero(free)[:wanted], now)
            free &= ~self.holder
            room -= wanted
        for each in self.running:
            if each.slot is None and now >= each.began:
                self._run(each)

    def _finished(self) -> bool:
        return bool(self.twin.workload.jobs.finished())

    def _size(self) -> int:
        return min(1 << int(self.rng.integers(0, 5)), max(self.nodes // 8, 1))

    def _begin(self, nodes: NDArray[np.intp], now: float) -> None:
        began = now + float(self.rng.uniform(5.0, 90.0))
        if self.waiting:
            old = self.waiting.pop(0)
            new = Attempt(
                old.job, old.number + 1, old.spec, nodes, now, began, resume=old.resume,
                reached=old.reached,
            )  # fmt: skip
        else:
            new = Attempt(len(self.attempts), 1, self._spec(), nodes, now, began)
        self.attempts.append(new)
        self.running.append(new)
        self.holder[nodes] = True

    def _spec(self) -> TrainingSpec:
        rng = self.rng
        return TrainingSpec(
            kind=self.kinds[int(rng.integers(len(self.kinds)))],
            base_step_s=float(rng.uniform(1.0, 8.0)), total_steps=int(rng.integers(600, 6_000)),
            collective_bytes=float(rng.uniform(1e9, 2e10)), overlap=0.5,
            warmup_s=float(rng.uniform(30.0, 300.0)),
            checkpoint_bytes=float(rng.uniform(1e9, 4e11)),
            checkpoint_interval_s=float(rng.uniform(600.0, 2_400.0)),
            eval_every_s=float(rng.uniform(1_200.0, 3_600.0)),
            eval_s=float(rng.uniform(20.0, 120.0)),
        )  # fmt: skip

    def _run(self, each: Attempt) -> None:
        workload = self.twin.workload
        slot = workload.begin_training(
            f"job-{each.job}", each.spec, self.twin.now_s, nodes=each.nodes.size, resume=each.resume
        )
        if slot is None:
            raise RuntimeError("the twin runs no more tasks")
        each.slot = slot
        self.truth_of_seconds.begin(each, slot)
        self.told.begin(slot)
        self.twin.hold(gpus_of(each.nodes), slot)

    def _end_if_over(self, each: Attempt, now: float) -> None:
        workload = self.twin.workload
        is_lost = bool(self.twin.down[each.nodes].any())
        if each.slot is not None:
            is_lost |= each.slot in workload.lost
        is_done = each.slot is not None and workload.jobs.is_finished(each.slot)
        if not (is_lost or is_done):
            return
        self.disturbed.end(self.attempts.index(each), now)
        if each.slot is not None:
            each.reached = max(each.reached, float(np.floor(workload.jobs.steps[each.slot])))
            each.resume = workload.jobs.durable(each.slot) or each.resume
            self.twin.let_go(each.slot)
            workload.end_task(each.slot)
        each.ended = now
        self.running.remove(each)
        self.holder[each.nodes] = False
        if is_lost and not is_done:
            self.waiting.append(each)


class _Disturbances:
    """What happens to jobs, racks and nodes, drawn as it goes; what was in force is kept."""

    def __init__(self, play: Played, rng: np.random.Generator) -> None:
        self._play, self._rng = play, rng
        self.spells: list[Spell] = []
        self._due: list[tuple[float, int, str, Spell | None]] = []
        self._serial = count()
        for what in _EVERY:
            self._draw_next(what, 0.0)

    def happen(self, now: float) -> None:
        """Begin and lift what is due."""
        while self._due and self._due[0][0] <= now:
            _, _, what, spell = heapq.heappop(self._due)
            if spell is not None:
                self._lift(spell, now)
                continue
            self._draw_next(what, now)
            begun: Spell | None = getattr(self, f"_{what}")(now)
            if begun is not None:
                self.spells.append(begun)
                self._set_caps(begun.gpus)
                self._push(now + float(self._rng.uniform(*_LASTS[what])), what, begun)

    def end(self, attempt: int, now: float) -> None:
        """End what is in force for an attempt that ends."""
        for each in self.spells:
            if each.attempt == attempt:
                self._lift(each, now)

    def _lift(self, spell: Spell, now: float) -> None:
        if np.isnan(spell.end):
            spell.lift()
            spell.end = now
            self._set_caps(spell.gpus)

    def _draw_next(self, what: str, now: float) -> None:
        play = self._play
        things = {"cap": play.nodes / 6.0, "pause": play.nodes / 6.0, "heat": float(play.nodes),
                  "lowered": float(play.nodes)}  # fmt: skip
        each = things.get(what, float(len(play.twin.fleet.racks)))
        self._push(now + float(self._rng.exponential(_EVERY[what] / each)), what, None)

    def _push(self, at: float, what: str, spell: Spell | None) -> None:
        heapq.heappush(self._due, (at, next(self._serial), what, spell))

    def _is_new(self, what: str, key: Any) -> bool:
        """Say whether the same is not in force already."""
        return not any(
            each.what == what and np.isnan(each.end)
            and (each.attempt == key if isinstance(key, int) else np.isin(key, each.gpus).any())
            for each in self.spells
        )  # fmt: skip

    # --- Kinds ---

    def _cap(self, now: float) -> Spell | None:
        """Cap a job, as a directive does."""
        found = self._attempt("cap")
        if found is None:
            return None
        number, _ = found
        gpus = gpus_of(self._play.attempts[number].nodes)
        return Spell("cap", now, attempt=number, gpus=gpus, cap_w=self._cap_w(0.5, 0.85))

    def _cap_w(self, least: float, most: float) -> float:
        rated_w = float(self._play.twin.parts.rated_w[0])
        return float(self._rng.uniform(least, most)) * rated_w

    def _pause(self, now: float) -> Spell | None:
        found = self._attempt("pause")
        if found is None:
            return None
        number, slot = found
        workload = self._play.twin.workload
        workload.scale_task(slot, 0.0)
        return Spell("pause", now, attempt=number, lift=lambda: workload.scale_task(slot, 1.0))

    def _attempt(self, what: str) -> tuple[int, int] | None:
        """Return a running attempt that makes steps, and its slot; None: the one drawn does not."""
        play = self._play
        if not play.running:
            return None
        each = play.running[int(self._rng.integers(len(play.running)))]
        number = play.attempts.index(each)
        is_training = each.slot is not None and (
            play.twin.workload.jobs.phase[each.slot] == TRAINING
        )
        if not is_training or each.slot is None or not self._is_new(what, number):
            return None
        return number, each.slot

    def _rack_cap(self, now: float) -> Spell | None:
        """Cap a rack, as a restriction does."""
        gpus = self._gpus_of_rack()
        if not self._is_new("rack_cap", gpus):
            return None
        return Spell("rack_cap", now, gpus=gpus, cap_w=self._cap_w(0.6, 0.9))

    def _set_caps(self, gpus: Ints) -> None:
        """Hold GPUs to the lowest of the caps that are in force for them."""
        twin = self._play.twin
        cap_w = np.full(self._play.gpus, np.inf)
        for each in self.spells:
            if np.isnan(each.end) and each.cap_w < np.inf:
                cap_w[each.gpus] = np.minimum(cap_w[each.gpus], each.cap_w)
        twin.set_caps(gpus, cap_w=cap_w[gpus], cap_mhz=np.full(gpus.size, np.inf))

    def _brake(self, now: float) -> Spell | None:
        return self._stated("brake", now, self._gpus_of_rack(), float(self._rng.uniform(0.5, 0.8)))

    def _heat(self, now: float) -> Spell | None:
        return self._stated("heat", now, self._gpus_of_node(), float(self._rng.uniform(1.5, 2.2)))

    def _lowered(self, now: float) -> Spell | None:
        """Have somebody else lower the limits of a node."""
        return self._stated("lowered", now, self._gpus_of_node(), 0.8)

    def _stated(self, what: str, now: float, gpus: Ints, value: float) -> Spell | None:
        """State a condition of a rack or of GPUs, 1 where there is none."""
        if not self._is_new(what, gpus):
            return None
        conditions = self._play.twin.conditions
        array, at = {
            "brake": (
                conditions.rack_budget_share,
                self._play.twin.fleet.rack_of_node[gpus[:1] // GPUS_PER_NODE],
            ),
            "heat": (conditions.gpu_resistance_factor, gpus),
            "lowered": (conditions.power_limit_share, gpus),
        }[what]
        array[at] = value
        return Spell(what, now, gpus=gpus, lift=lambda: array.__setitem__(at, 1.0))

    def _gpus_of_rack(self) -> Ints:
        racks = self._play.twin.fleet.rack_of_node
        rack = self._rng.integers(int(racks.max()) + 1)
        return gpus_of(np.flatnonzero(racks == rack))

    def _gpus_of_node(self) -> Ints:
        return gpus_of(np.array([int(self._rng.integers(self._play.nodes))]))


class _Truth:
    """Adds each second of each GPU to what it went to."""

    def __init__(self, play: Played) -> None:
        self._play = play
        slots = len(play.twin.workload.names)
        self._is_first: Bools = np.zeros(slots, dtype=np.bool_)
        self._reached: Floats = np.full(slots, -1.0)
        #: Of slots: time outside of steps, as the loop has it.
        self.outside: Floats = np.zeros(slots)
        #: Of GPUs, in this minute: for how long its gang made steps, s.
        self.stepping: Floats = np.zeros(play.gpus)
        self._placed = -1
        self._slot: Ints = np.zeros(0, dtype=np.int64)
        self._gpus: Ints = np.zeros(slots, dtype=np.int64)

    def begin(self, each: Attempt, slot: int) -> None:
        self._is_first[slot], self._reached[slot] = each.number == 1, each.reached
        self.outside[slot] = 0.0

    def look(self) -> None:
        """Look at what jobs are about to do in this second."""
        jobs = self._play.twin.workload.jobs
        used = self._used = self._play.twin.workload.top
        self._phase = jobs.phase[:used].copy()
        self._paused = (jobs.scale[:used] <= 0.0) & (self._phase == TRAINING)
        self._stands = jobs._saving(used) | jobs._evaluating(used)

    def note(self, pace: Floats) -> None:
        """Add this second. ``pace`` is that of slots, as they trained with it."""
        play, total = self._play, self._play.truth
        twin, jobs, used = play.twin, play.twin.workload.jobs, self._used
        if self._placed != twin.placement_version:
            # Of those whose command has not begun nobody holds the GPUs in the twin.
            self._placed, self._slot = twin.placement_version, twin.job_of_gpu.copy()
            self._gpus = np.bincount(self._slot, minlength=len(self._gpus))
        gpus, phase = self._gpus[:used], self._phase
        starts = phase == BEFORE
        outside = ~starts & (phase > BEFORE) & ~self._paused
        outside &= self._stands | (phase == AFTER) | (jobs.phase[:used] != TRAINING)
        steps = (phase == TRAINING) & ~self._paused & ~outside
        again = steps & (jobs.steps[:used] <= self._reached[:used])
        first = self._is_first[:used]
        for cause, which in (
            (Cause.STARTING, starts & first), (Cause.RESTARTING, starts & ~first),
            (Cause.PAUSED, self._paused), (Cause.OUTSIDE_STEPS, outside), (Cause.REPEATED, again),
        ):  # fmt: skip
            total[cause] += float(gpus[which].sum())
        self.outside[:used] += outside | self._paused
        for each in play.running:
            if each.slot is None:
                cause = Cause.STARTING if each.number == 1 else Cause.RESTARTING
                total[cause] += float(each.nodes.size * GPUS_PER_NODE)
        slots = np.zeros(len(self._gpus), dtype=np.bool_)
        slots[:used] = steps
        self.stepping += slots[self._slot]
        slots[:used] = steps & ~again
        self._step(np.flatnonzero(slots[self._slot]), pace)
        self._nobodys()

    def _step(self, gpu: NDArray[np.intp], pace: Floats) -> None:
        """Add a second of GPUs whose gangs make steps."""
        twin, total = self._play.twin, self._play.truth
        slot = self._slot[gpu]
        usual = twin.parts.top_clock[gpu]
        slowest = np.minimum(pace[slot], usual)
        own = np.clip(twin.clock[gpu], slowest, usual)
        # Of this second, what the slowest computes for at full clock; and each at its own.
        full = twin.workload.jobs._compute_share[slot] * slowest
        lost = full * (1.0 / own - 1.0 / usual)
        total[Cause.SYNCHRONIZATION] += float((1.0 - full / own).sum())
        total[Cause.PRODUCTIVE] += float((full / usual).sum())
        some = np.flatnonzero(lost > 0.0)
        by_code = np.bincount(self._code(gpu[some]), lost[some], len(_CODES))
        for cause, taken in zip(_CODES, by_code.tolist(), strict=True):
            total[cause] += taken

    def _code(self, gpu: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the code of what sets the clock of each GPU."""
        twin = self._play.twin
        ours = twin.cap_w[gpu] < np.inf
        lowered = twin.own_limit_w[gpu] < rules.LOWERED_LIMIT * twin.parts.rated_w[gpu]
        by_power = np.where(ours, 5, np.where(lowered, 1, 0))
        code = np.where(twin._thermal_clock[gpu] <= twin._power_clock[gpu], 2, by_power)
        bits = twin._hardware_bits[gpu]
        code = np.where(bits & _HARDWARE, 3, code)
        return np.where(bits & int(ThrottleCause.HW_POWER_BRAKE), 4, code).astype(np.intp)

    def _nobodys(self) -> None:
        play, total = self._play, self._play.truth
        others, down, drained = play.is_others, play.twin.down, play.is_drained
        nobodys = ~play.holder
        for cause, of in (
            (Unheld.DRAINED, nobodys & drained),
            (Unheld.UNMANAGED, nobodys & others & ~down),
            (Unheld.SILENT, nobodys & down & ~drained),
            (Unheld.FREE, nobodys & ~down & ~others & ~drained),
        ):
            total[cause] += float(of.sum()) * GPUS_PER_NODE


class _Told:
    """What loops and agents tell, and what the server makes of it at once."""

    def __init__(self, play: Played) -> None:
        self._play = play
        slots = len(play.twin.workload.names)
        #: Of slots: the step and the time of the last report.
        self._begun, self._told_s = np.zeros((2, slots))
        self.minutes: list[Minute] = []
        self._sums: Floats = np.zeros((4, play.gpus))
        self._tracker = Tracker()
        self._events: list[NDArray[Any]] = []
        parts = play.twin.parts
        self._ratings = parts.rated_w, parts.sm_max_mhz

    def begin(self, slot: int) -> None:
        jobs = self._play.twin.workload.jobs
        self._begun[slot], self._told_s[slot] = jobs.steps[slot], self._play.twin.now_s

    def events(self) -> NDArray[Any]:
        """Return all throttle events, also those that go on."""
        return np.concatenate([*self._events, self._tracker.open_events()])

    def hear(self, now: int) -> None:
        if now % EVERY_S:
            return
        self._report(now)
        self._read(now)
        if now % MINUTE_S == 0:
            self._roll_up(now)

    def _report(self, now: int) -> None:
        """Have loops that have made a step since they reported last report."""
        play = self._play
        jobs, outside = play.twin.workload.jobs, play.truth_of_seconds.outside
        clock = play.twin.clock
        for each in play.running:
            at = each.slot
            if at is None or np.floor(jobs.steps[at]) <= self._begun[at]:
                continue
            step, step_s = np.floor(jobs.steps[at]), float(jobs.step_s[at])
            # Ranks wait for the slowest, and for the exchange: what they tell of is the mean.
            own = clock[gpus_of(each.nodes)]
            computes = float((play.twin.pace(at) / np.maximum(own, play.twin.pace(at))).mean())
            sync_s = step_s - (step_s - jobs.exchange_s(at)) * computes
            lost = min(outside[at] / (now - self._told_s[at]), 1.0)
            play.reports.append(
                (each.job, float(now), np.array([step, step_s, 0.0, sync_s, lost, np.nan]))
            )
            self._begun[at], outside[at], self._told_s[at] = step, 0.0, now

    def _read(self, now: int) -> None:
        """Take in the readings of all agents that say something."""
        play = self._play
        read = Frame(play.twin, play.network).gpus
        heard = np.repeat(~play.twin.down, GPUS_PER_NODE)
        for at, name in enumerate(("util", "power_w", "power_limit_w")):
            self._sums[at] += np.where(heard, read[name], 0.0)
        self._sums[3] += heard
        gpu = np.flatnonzero(heard)
        nothing = np.full(play.gpus, NULL_INT)
        names = [f"throttle_{each.token}_ns" for each in rules.CAUSES[:COUNTERS]]
        counters = np.stack([read.get(name, nothing)[gpu] for name in names], axis=1)
        rows = {name: read[name][gpu] for name in _OF_THROTTLING}
        rated_w, sm_mhz = self._ratings
        changes = self._tracker.advance(
            Throttling(
                us=np.full(gpu.size, now * 1_000_000), gpu_id=gpu, mask=read["throttle"][gpu],
                counters=counters, job_id=np.full(gpu.size, NULL_INT), **rows,
            ),
            Ratings(rated_w, sm_mhz, capped=np.flatnonzero(play.twin.cap_w < np.inf)),
        )  # fmt: skip
        ended = [changes.closed, changes.opened[changes.opened["closed_us"] > 0]]
        self._events += [each for each in ended if len(each)]

    def _roll_up(self, now: int) -> None:
        times = self._sums[3]
        means = np.divide(
            self._sums[:3], times, out=np.full((3, times.size), np.nan), where=times > 0
        )
        stepping = self._play.truth_of_seconds.stepping
        util, power_w, limit_w = means.astype(np.float32)
        self.minutes.append(
            Minute(float(now - MINUTE_S), util, power_w, limit_w, stepping.astype(np.float32))
        )
        self._sums[:] = 0.0
        stepping[:] = 0.0


def gpus_of(nodes: NDArray[np.intp]) -> Ints:
    """Return the numbers of the GPUs of nodes."""
    found = nodes[:, None] * GPUS_PER_NODE + np.arange(GPUS_PER_NODE)
    return found.reshape(-1).astype(np.int64)
