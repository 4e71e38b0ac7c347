"""The account of a fleet of the twin, against the truth that the twin kept second by second.

Jobs of 1 to 16 nodes train, save, evaluate and are lost with their nodes; some nodes are drained,
some work for nobody that Headroom knows, some are free. What is told of them is what the server
would have: attempts, reports of loops each ten seconds, and readings of GPUs as means over a
minute. There is no throttling. ``python -m bench.accounts_twin GPUS HOURS`` shows a table.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.account import Cause, GpuSpans, Whole
from admission.core.at_work import at_work
from admission.core.fleet_account import CAUSES, Parts, Unheld
from admission.goodput import fleet as goodput
from admission.goodput import steps
from admission.goodput.fleet import Readings, Records
from admission.goodput.steps import Attempts, Reports, times_us
from lab.fleet import GPUS_PER_NODE, make_load_fleet
from lab.training.kinds import JOB_KINDS
from lab.training.spec import TrainingSpec
from lab.training.table import AFTER, BEFORE, TRAINING, Checkpoint
from lab.twin import Twin
from lab.twin.failures import FailureModel
from lab.twin.network import Network
from lab.twin.storage import Storage

__all__ = ["Compared", "Played", "compare", "played"]

Floats = NDArray[np.float64]

#: Loops report, and GPUs are read, so often, s.
_EVERY_S, _MINUTE_S = 10, 60
#: Shares of the nodes that are drained, and that work for somebody else.
_DRAINED, _UNMANAGED = 0.03, 0.05
#: A node is lost about every two weeks, so that a day of some thousand GPUs has some.
_FAILURES = FailureModel(loss_per_node_s=1.0 / (14 * 86_400), silence_per_node_s=0.0)


@dataclass(frozen=True)
class Compared:
    """GPU-seconds by cause, as the account has them and as they were; ``whole`` is all there is."""

    account: dict[str, float]
    truth: dict[str, float]
    whole: float

    def error(self, *causes: str) -> float:
        """Return by which share of all time the account is off in some causes together."""
        of = [sum(found.get(each, 0.0) for each in causes) for found in (self.account, self.truth)]
        return abs(of[0] - of[1]) / self.whole


@dataclass
class _Attempt:
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
    truth: dict[str, float] = field(default_factory=lambda: defaultdict(float))


class Played:
    """A fleet whose jobs come and go, with the truth about each second."""

    def __init__(self, gpus: int, seed: int) -> None:
        fleet = make_load_fleet(gpus=gpus)
        self.nodes = len(fleet.nodes)
        every = np.ones(self.nodes, dtype=np.bool_)
        self.twin = Twin(fleet, seed=seed, queued=every, failures=_FAILURES)
        self.network = Network(self.twin, seed=seed)
        self.storage = Storage(fleet, self.twin.conditions)
        self.rng = np.random.default_rng(seed)
        self.attempts: list[_Attempt] = []
        self.running: list[_Attempt] = []
        self.waiting: list[_Attempt] = []
        self.reports: list[tuple[int, float, Floats]] = []
        self.truth: dict[str, float] = defaultdict(float)
        order = self.rng.permutation(self.nodes)
        drained, others = int(_DRAINED * self.nodes), int(_UNMANAGED * self.nodes)
        self.is_drained = np.isin(np.arange(self.nodes), order[:drained])
        self.is_others = np.isin(np.arange(self.nodes), order[drained : drained + others])
        self.holder = np.zeros(self.nodes, dtype=np.bool_)
        slots = len(self.twin.workload.names)
        #: Of slots: time outside of steps, the step, and the time of the last report.
        self.outside, self.begun, self.told_s = np.zeros((3, slots))
        self._util = np.zeros(self.nodes)
        self._read = np.zeros(self.nodes)
        self.readings: list[tuple[float, Floats]] = []
        self._occupy()

    def _occupy(self) -> None:
        workload = self.twin.workload
        for node in np.flatnonzero(self.is_others):
            slot = workload.begin_task("theirs", JOB_KINDS["train"], 0.0, nodes=1)
            if slot is not None:
                self.twin.hold(_gpus_of(np.array([node])), slot)

    def go(self, seconds: int) -> None:
        for now in range(seconds):
            self._schedule(float(now))
            before = self._before()
            self.twin.advance(1.0)
            self.network.advance(1.0)
            workload = self.twin.workload
            workload.train(1.0, self.twin.pace_by_slot, network=self.network, storage=self.storage)
            self._note(before)
            self._report(now + 1)
            self._look(now + 1)

    # --- Jobs ---

    def _schedule(self, now: float) -> None:
        for each in [*self.running]:
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

    def _size(self) -> int:
        return min(1 << int(self.rng.integers(0, 5)), max(self.nodes // 8, 1))

    def _begin(self, nodes: NDArray[np.intp], now: float) -> None:
        began = now + float(self.rng.uniform(5.0, 90.0))
        if self.waiting:
            old = self.waiting.pop(0)
            new = _Attempt(
                old.job, old.number + 1, old.spec, nodes, now, began, resume=old.resume,
                reached=old.reached,
            )  # fmt: skip
        else:
            new = _Attempt(len(self.attempts), 1, self._spec(), nodes, now, began)
        self.attempts.append(new)
        self.running.append(new)
        self.holder[nodes] = True

    def _spec(self) -> TrainingSpec:
        rng = self.rng
        return TrainingSpec(
            base_step_s=float(rng.uniform(1.0, 8.0)), total_steps=int(rng.integers(600, 6_000)),
            collective_bytes=float(rng.uniform(1e9, 2e10)), overlap=0.5,
            warmup_s=float(rng.uniform(30.0, 300.0)),
            checkpoint_bytes=float(rng.uniform(1e9, 4e11)),
            checkpoint_interval_s=float(rng.uniform(600.0, 2_400.0)),
            eval_every_s=float(rng.uniform(1_200.0, 3_600.0)),
            eval_s=float(rng.uniform(20.0, 120.0)),
        )  # fmt: skip

    def _run(self, each: _Attempt) -> None:
        workload = self.twin.workload
        slot = workload.begin_training(
            f"job-{each.job}", each.spec, self.twin.now_s, nodes=each.nodes.size, resume=each.resume
        )
        if slot is None:
            raise RuntimeError("the twin runs no more tasks")
        each.slot = slot
        self.outside[slot], self.begun[slot] = 0.0, workload.jobs.steps[slot]
        self.told_s[slot] = self.twin.now_s
        self.twin.hold(_gpus_of(each.nodes), slot)

    def _end_if_over(self, each: _Attempt, now: float) -> None:
        workload = self.twin.workload
        is_lost = bool(self.twin.down[each.nodes].any())
        if each.slot is not None:
            is_lost |= each.slot in workload.lost
        is_done = each.slot is not None and workload.jobs.is_finished(each.slot)
        if not (is_lost or is_done):
            return
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

    # --- The truth ---

    def _before(self) -> Any:
        jobs = self.twin.workload.jobs
        used = len(jobs.phase)
        stands = jobs._saving(used) | jobs._evaluating(used)
        return jobs.phase.copy(), stands, jobs.steps.copy()

    def _note(self, before: Any) -> None:
        """Add one second of each node to what it went to."""
        phase, stands, _ = before
        jobs, total = self.twin.workload.jobs, self.truth
        for each in self.running:
            gpus = float(each.nodes.size * GPUS_PER_NODE)
            starting = Cause.STARTING if each.number == 1 else Cause.RESTARTING
            at = each.slot
            if at is None or phase[at] == BEFORE:
                total[starting] += gpus
            elif stands[at] or phase[at] == AFTER or jobs.phase[at] != TRAINING:
                total[Cause.OUTSIDE_STEPS] += gpus
                self.outside[at] += 1.0
            elif jobs.steps[at] <= each.reached:
                total[Cause.REPEATED] += gpus
            else:
                waits = 1.0 - float(jobs._compute_share[at])
                total[Cause.SYNCHRONIZATION] += gpus * waits
                total[Cause.PRODUCTIVE] += gpus * (1.0 - waits)
        others, down = self.is_others, self.twin.down
        nobodys = ~self.holder
        for cause, of in (
            (Unheld.DRAINED, nobodys & self.is_drained),
            (Unheld.UNMANAGED, nobodys & others & ~down),
            (Unheld.SILENT, nobodys & down & ~self.is_drained),
            (Unheld.FREE, nobodys & ~down & ~others & ~self.is_drained),
        ):
            total[cause] += float(of.sum()) * GPUS_PER_NODE

    # --- What is told ---

    def _report(self, now: int) -> None:
        """Have loops that have made a step since they reported last report."""
        if now % _EVERY_S:
            return
        jobs = self.twin.workload.jobs
        for each in self.running:
            at = each.slot
            if at is None or np.floor(jobs.steps[at]) <= self.begun[at]:
                continue
            step, step_s = np.floor(jobs.steps[at]), float(jobs.step_s[at])
            lost = min(self.outside[at] / (now - self.told_s[at]), 1.0)
            told = np.array([step, step_s, 0.0, jobs.exchange_s(at), lost])
            self.reports.append((each.job, float(now), told))
            self.begun[at], self.outside[at], self.told_s[at] = step, 0.0, now

    def _look(self, now: int) -> None:
        if now % _EVERY_S == 0:
            util = 100.0 * self.twin.activity.reshape(-1, GPUS_PER_NODE).mean(axis=1)
            is_read = ~self.twin.down
            self._util += np.where(is_read, util, 0.0)
            self._read += is_read
        if now % _MINUTE_S == 0:
            mean = np.divide(
                self._util, self._read, out=np.full(self.nodes, np.nan), where=self._read > 0
            )
            self.readings.append((float(now - _MINUTE_S), mean))
            self._util[:], self._read[:] = 0.0, 0.0


def played(gpus: int, hours: float, *, seed: int = 1) -> Played:
    """Play a fleet for so long."""
    play = Played(gpus, seed)
    play.go(round(hours * 3600))
    return play


def compare(play: Played, *, are_told: bool = True) -> Compared:
    """Account for all that was played. ``are_told``: loops reported."""
    seconds = round(play.twin.now_s)
    found, _ = goodput.account(_records(play, float(seconds), are_told=are_told))
    total = found.us.sum(axis=0)
    whole = play.nodes * GPUS_PER_NODE * seconds
    if int(total.sum()) != whole * 1_000_000:
        raise RuntimeError("the account does not add up")
    return Compared(
        {cause: us / 1e6 for cause, us in zip(CAUSES, total.tolist(), strict=True) if us},
        {str(cause): value for cause, value in play.truth.items() if value},
        float(whole),
    )


def _records(play: Played, end: float, *, are_told: bool) -> Records:
    attempts = play.attempts
    job = np.array([each.job for each in attempts], dtype=np.int64)
    dispatched = np.array([each.dispatched for each in attempts])
    ended = np.nan_to_num(np.array([each.ended for each in attempts]), nan=end)
    began = np.array([each.began for each in attempts])
    began[began > ended] = np.nan
    held = [_gpus_of(each.nodes) for each in attempts]
    gang = np.repeat(np.arange(len(attempts)), [each.size for each in held])
    nothing = GpuSpans(**times_us((), (), ()))
    busy, idle = _readings(play)
    drained = _gpus_of(np.flatnonzero(play.is_drained))
    always = times_us(drained, np.zeros(drained.size), np.full(drained.size, end))
    return Records(
        start=0.0,
        end=end,
        parts=Parts.whole(np.repeat(play.twin.fleet.rack_of_node, GPUS_PER_NODE).astype(np.int64)),
        attempts=Attempts(job, dispatched, began, ended, steps.alone(job, dispatched, ended)),
        numbers=np.array([each.number for each in attempts], dtype=np.int64),
        phases=job,
        held=GpuSpans(**times_us(np.concatenate(held), dispatched[gang], ended[gang])),
        gang=gang,
        reports=_reports(play.reports if are_told else []),
        heard=np.zeros(len(attempts), dtype=np.bool_),
        reached=np.full(len(attempts), -1.0),
        pauses=Whole(cause=Cause.PAUSED, **vars(nothing)),
        caps=nothing,
        part_caps=nothing,
        throttle=(),
        busy=busy,
        idle=idle,
        drained=GpuSpans(**always),
    )


def _reports(told: list[tuple[int, float, Floats]]) -> Reports:
    order = sorted(told, key=lambda each: each[:2])
    values = np.array([each for _, _, each in order]).reshape(-1, len(steps.FIELDS))
    return Reports(
        np.array([job for job, _, _ in order], dtype=np.int64),
        np.array([at for _, at, _ in order]),
        None,
        {name: values[:, at] for at, name in enumerate(steps.FIELDS)},
    )


def _readings(play: Played) -> tuple[GpuSpans, GpuSpans]:
    at = np.array([at for at, _ in play.readings])
    util = np.array([each for _, each in play.readings])
    gpu = np.repeat(np.arange(play.nodes * GPUS_PER_NODE), at.size)
    by_gpu = np.repeat(util.T, GPUS_PER_NODE, axis=0).reshape(-1)
    some = ~np.isnan(by_gpu)
    power_w = np.full(int(some.sum()), np.nan)
    works = at_work(by_gpu[some], power_w, np.zeros(power_w.size))
    when = np.tile(at, play.nodes * GPUS_PER_NODE)[some]
    readings = Readings(gpu[some], when, float(_MINUTE_S), works)
    return readings.spans(works=True), readings.spans(works=False)


def _gpus_of(nodes: NDArray[np.intp]) -> NDArray[np.int64]:
    found = nodes[:, None] * GPUS_PER_NODE + np.arange(GPUS_PER_NODE)
    return found.reshape(-1).astype(np.int64)


def main(gpus: int, hours: float) -> None:
    """Show the account beside the truth, with reports and without."""
    play = played(gpus, hours)
    for are_told in (True, False):
        found = compare(play, are_told=are_told)
        print(f"\n{gpus:,} GPUs over {hours:g} h, {'with' if are_told else 'without'} reports")
        for cause in sorted({*found.account, *found.truth}):
            account, truth = (each.get(cause, 0.0) for each in (found.account, found.truth))
            shares = f"{100 * account / found.whole:8.3f} % {100 * truth / found.whole:8.3f} %"
            print(f"  {cause:<18} {shares}  off by {100 * found.error(cause):.3f} %")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
