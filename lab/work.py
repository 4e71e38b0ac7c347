"""Jobs on the twin's machines: agents ask for work, run it in the twin, and report on it.

What they say to the server is what the agent on a real machine says, and what a job says is what
becomes of it. Its loop reports steps and hears directives by ``headroom.training``, so that it
obeys some steps later; pauses and power caps are its machines', as for any job. What is begun again
here goes on from its last checkpoint; elsewhere there is none of it. What a command would do is
read from its environment instead:

- ``TWIN_KIND``: a kind of ``lab.training``, whose load it has; ``finetune`` by default;
- ``TWIN_WORK_S``: how long it computes at full clocks with its whole batch; else a third of its
  walltime. Under a cap, throttled or on a smaller batch it takes longer;
- ``TWIN_ACTIVITY``: its load, 1 being what a GPU is rated for; else drawn from its kind;
- ``TWIN_CHECKPOINT_S``: seconds between checkpoints; else it writes them when it is told to;
- ``TWIN_EXIT_CODE``: what it ends with; 0 by default.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec
import numpy as np

from headroom import __version__
from headroom.agent.devices import Row
from headroom.client import HeadroomError, Unavailable
from headroom.jobs.words import counted
from headroom.work.contract import (
    LOG_PART_BYTES,
    MAX_LOG_PARTS,
    MAX_ORDERS,
    DesiredState,
    LogAsk,
    LogPart,
    Order,
    SignalKind,
    SignalOrder,
    Task,
    WorkOrders,
    WorkOutcome,
    WorkReport,
    WorkReports,
    WorkState,
)
from lab.delivery import Gate
from lab.fleet import GPUS_PER_NODE
from lab.readings import unheard
from lab.training import JOB_KINDS, NEVER_S, Checkpoint, TrainingSpec, make_spec
from lab.training.loop import Loop
from lab.twin import Twin

__all__ = ["Machines", "WorkPolls"]

log = logging.getLogger(__name__)

#: Machines ask so often until the server says how often, s.
POLL_S = 2.0
#: Exit codes: of what loses a GPU, and of what SIGTERM and SIGKILL end.
LOST_GPU, TERMINATED, KILLED = 134, 143, 137
#: What is told to pause and makes no step is stopped after so long, s of the twin.
PAUSE_WITHIN_S = 15.0

_DEFAULT_KIND = "finetune"
#: The least that a job computes, s.
_LEAST_WORK_S = 1.0
#: Attempts that are over, whose output and checkpoints are kept.
_KEPT = 200


@dataclass
class _Part:
    """An attempt on one node."""

    task: Task
    report: WorkReport
    #: what is wanted of it, as it was heard last
    wanted: DesiredState = DesiredState.CLAIM
    heard: tuple[SignalOrder, ...] = ()

    @property
    def state(self) -> WorkState:
        return self.report.state

    @property
    def runs(self) -> bool:
        return self.state in (WorkState.RUNNING, WorkState.PAUSED)

    def tell(self, **changes: Any) -> None:
        """Change its report."""
        self.report = msgspec.structs.replace(self.report, **changes)


@dataclass
class _Attempt:
    """The part of a gang that is on the machines of one agent."""

    key: str
    task: Task
    parts: dict[str, _Part] = field(default_factory=dict)
    slot: int | None = None
    loop: Loop | None = None
    computed_s: float = 0.0
    done_share: float = 0.0
    batch_scale: float = 1.0
    is_paused: bool = False
    #: the directive by which it is to pause, until it does, and since when
    pausing: int = 0
    pausing_since_s: float = 0.0
    #: since when it is told to end, by the twin's clock
    stopping_since_s: float | None = None
    #: what each of its nodes has said
    said: bytearray = field(default_factory=bytearray)

    @property
    def work(self) -> str:
        """The work that attempts of one phase share."""
        return f"{self.task.job}/{self.task.phase}"

    def say(self, what: str) -> None:
        """Say a line, with how far it is."""
        at = "" if self.loop is None else f", step {self.loop.step}"
        done = f"{self.done_share:.0%} of the work"
        self.said += f"{what}: computed {self.computed_s:.0f} s, {done}{at}\n".encode()


class Machines:
    """The machines of one agent that run jobs: ``nodes`` by name, with their numbers in the twin.

    One thread may hear orders and tell reports while another steps the twin. Claims last as long
    as the process: with another one, ``store`` is another, and the server takes its machines for
    new ones.
    """

    def __init__(
        self,
        nodes: Mapping[str, int],
        *,
        store: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._numbers = dict(nodes)
        self._store = store or uuid.uuid4().hex
        self._clock = clock
        self._attempts: dict[str, _Attempt] = {}
        self._silent: set[str] = set()
        #: output of attempts that are over, the oldest first
        self._kept_logs: dict[str, bytes] = {}
        #: output that the server has asked for
        self._logs: list[LogPart] = []
        #: last checkpoints of what did not come to its end, by work, the oldest first
        self._saved: dict[str, Checkpoint] = {}
        #: progress that was not told yet
        self._rows: list[Row] = []
        self._lock = threading.Lock()

    # --- What the server says --------------------------------------------------------------------

    def hear(self, orders: Iterable[Order]) -> None:
        """Take orders; they are carried out at the next step."""
        with self._lock:
            for order in orders:
                if order.node in self._numbers:
                    self._take(order)

    def _take(self, order: Order) -> None:
        attempt = self._attempts.get(order.attempt)
        part = attempt.parts.get(order.node) if attempt is not None else None
        if order.wanted == DesiredState.FORGET:
            self._forget(order)
        elif part is not None:
            part.wanted = order.wanted
            part.heard = tuple(order.signals)
        elif order.wanted == DesiredState.CLAIM and order.task is not None:
            self._claim(order, order.task)
        elif order.wanted == DesiredState.STOP:
            # It was never heard of here, and now never will be.
            self._claim(order, _nothing(order))
            self._end(self._attempts[order.attempt].parts[order.node], WorkOutcome.NEVER_STARTED)

    def _claim(self, order: Order, task: Task) -> None:
        attempt = self._attempts.setdefault(order.attempt, _Attempt(order.attempt, task))
        report = WorkReport(attempt=order.attempt, node=order.node, state=WorkState.CLAIMED)
        attempt.parts[order.node] = _Part(task, report)

    def _forget(self, order: Order) -> None:
        attempt = self._attempts.get(order.attempt)
        part = attempt.parts.get(order.node) if attempt is not None else None
        if attempt is None or part is None or part.state != WorkState.ENDED:
            return
        del attempt.parts[order.node]
        if not attempt.parts:
            del self._attempts[order.attempt]
            self._kept_logs[order.attempt] = bytes(attempt.said)
            for key in list(self._kept_logs)[:-_KEPT]:
                del self._kept_logs[key]

    def tell_logs(self, asks: Iterable[LogAsk]) -> None:
        """Send output that somebody reads, with the next reports."""
        with self._lock:
            found = [self._part(ask) for ask in asks if ask.node in self._numbers]
            self._logs = found[:MAX_LOG_PARTS]

    def _part(self, ask: LogAsk) -> LogPart:
        attempt = self._attempts.get(ask.attempt)
        said = self._kept_logs.get(ask.attempt, b"") if attempt is None else bytes(attempt.said)
        start = len(said) - LOG_PART_BYTES if ask.start is None else ask.start
        start = min(max(start, 0), len(said))
        return LogPart(
            attempt=ask.attempt,
            node=ask.node,
            start=start,
            first=0,
            size=len(said),
            data=said[start : start + LOG_PART_BYTES],
        )

    # --- What they say ---------------------------------------------------------------------------

    def reports(self) -> WorkReports | None:
        """Return the reports of all machines whose agents are not silent; None: all of them are."""
        with self._lock:
            nodes = [name for name in self._numbers if name not in self._silent]
            if not nodes:
                return None
            held = [
                part.report
                for attempt in self._attempts.values()
                for name, part in attempt.parts.items()
                if name not in self._silent
            ]
            logs, self._logs = self._logs, []
        return WorkReports(
            store=self._store,
            nodes=nodes,
            reports=held[:MAX_ORDERS],
            logs=logs,
            version=__version__,
            simulated=True,
        )

    def progress(self) -> list[Row]:
        """Return what loops have reported since the last call, a row for each job."""
        with self._lock:
            rows, self._rows = self._rows, []
            for attempt in self._attempts.values():
                rows += _row_of(attempt)
            return rows

    # --- What they do ----------------------------------------------------------------------------

    def step(self, twin: Twin, dt_s: float) -> None:
        """Carry out orders, and take what running attempts did in ``dt_s`` since the last step.

        The twin's workload is to have trained for as long before.
        """
        with self._lock:
            silent = unheard(twin)
            self._silent = {name for name, number in self._numbers.items() if silent[number]}
            for attempt in list(self._attempts.values()):
                self._obey(twin, attempt)
                if attempt.slot is not None and attempt.loop is not None:
                    self._run(twin, attempt, attempt.slot, attempt.loop, dt_s)

    def _obey(self, twin: Twin, attempt: _Attempt) -> None:
        starting = [
            name
            for name, part in attempt.parts.items()
            if part.wanted == DesiredState.RUN and part.state == WorkState.CLAIMED
        ]
        if starting:
            self._start(twin, attempt, starting)
        for part in attempt.parts.values():
            if part.wanted == DesiredState.STOP:
                self._stop(twin, attempt, part)
            self._follow(twin, attempt, part)

    def _start(self, twin: Twin, attempt: _Attempt, names: Sequence[str]) -> None:
        if attempt.slot is None:
            self._begin(twin, attempt)
        for name in names:
            part = attempt.parts[name]
            if attempt.slot is None:
                self._end(part, WorkOutcome.NEVER_STARTED, text="the twin runs no more tasks")
                continue
            first = self._numbers[name] * GPUS_PER_NODE
            twin.hold(first + np.array(part.task.gpus, dtype=np.int64), attempt.slot)
            part.tell(state=WorkState.RUNNING, started_at=self._clock())
        if attempt.slot is not None and attempt.task.power_cap_w is not None:
            twin.cap_task(attempt.slot, attempt.task.power_cap_w)

    def _begin(self, twin: Twin, attempt: _Attempt) -> None:
        task, workload = attempt.task, twin.workload
        slot = workload.begin_training(
            task.job,
            _spec(task),
            twin.now_s,
            nodes=len(task.nodes),
            resume=self._saved.get(attempt.work),
        )
        if slot is None:
            return

        def scale(share: float) -> None:
            attempt.batch_scale = share
            workload.scale_task(slot, share)

        attempt.slot = slot
        attempt.loop = Loop(workload.jobs, slot, clock=lambda: twin.now_s, scale=scale)
        attempt.say(f"begins on {counted(len(task.nodes), 'node')}")

    def _stop(self, twin: Twin, attempt: _Attempt, part: _Part) -> None:
        if part.state == WorkState.CLAIMED:
            self._end(part, WorkOutcome.NEVER_STARTED)
        elif part.state != WorkState.ENDED:
            self._ask_to_leave(twin, attempt)

    def _ask_to_leave(self, twin: Twin, attempt: _Attempt) -> None:
        if attempt.stopping_since_s is None and attempt.loop is not None:
            attempt.stopping_since_s = twin.now_s
            # Who stands still cannot save.
            self._set_paused(twin, attempt, is_paused=False)
            attempt.loop.leave()

    def _follow(self, twin: Twin, attempt: _Attempt, part: _Part) -> None:
        """Carry out the signals that a part has received. All parts of a gang get the same."""
        for signal in part.heard:
            if signal.seq <= part.report.signals_seen or attempt.loop is None:
                continue
            attempt.loop.hear([signal])
            self._do(twin, attempt, signal)
            part.tell(signals_seen=signal.seq)

    def _do(self, twin: Twin, attempt: _Attempt, signal: SignalOrder) -> None:
        """Do the part of a machine; the loop does its own."""
        if signal.kind == SignalKind.PAUSE:
            attempt.pausing, attempt.pausing_since_s = signal.seq, twin.now_s
        elif signal.kind == SignalKind.RESUME:
            attempt.pausing = 0
            self._set_paused(twin, attempt, is_paused=False)
        elif signal.kind == SignalKind.SET_POWER_CAP and attempt.slot is not None:
            twin.cap_task(attempt.slot, np.inf if signal.value is None else signal.value)
        elif signal.kind == SignalKind.STOP:
            self._ask_to_leave(twin, attempt)
        value = "" if signal.value is None else f" {signal.value:g}"
        attempt.say(f"told to {signal.kind.replace('_', ' ')}{value}")

    def _set_paused(self, twin: Twin, attempt: _Attempt, *, is_paused: bool) -> None:
        attempt.is_paused = is_paused
        if attempt.slot is not None:
            twin.workload.scale_task(attempt.slot, 0.0 if is_paused else attempt.batch_scale)
        state = WorkState.PAUSED if is_paused else WorkState.RUNNING
        for part in attempt.parts.values():
            if part.runs:
                part.tell(state=state)

    def _run(self, twin: Twin, attempt: _Attempt, slot: int, loop: Loop, dt_s: float) -> None:
        if not attempt.is_paused:
            attempt.computed_s += dt_s
            has_saved = loop.advance(dt_s)
            attempt.done_share = twin.workload.jobs.progress(slot).done_share
            if has_saved:
                self._has_saved(attempt)
            for part in attempt.parts.values():
                # A part that heard of it later says so later.
                done = min(loop.done, part.report.signals_seen)
                part.tell(signals_done=done, done_at_step=loop.done_at_step)
            self._pause_if_ready(twin, attempt, loop)
        self._end_if_over(twin, attempt, slot, loop)

    def _pause_if_ready(self, twin: Twin, attempt: _Attempt, loop: Loop) -> None:
        """Stop what has come to a step since it was told to pause, or does not come to one."""
        waited_s = twin.now_s - attempt.pausing_since_s
        if attempt.pausing and (loop.done >= attempt.pausing or waited_s >= PAUSE_WITHIN_S):
            attempt.pausing = 0
            self._set_paused(twin, attempt, is_paused=True)

    def _end_if_over(self, twin: Twin, attempt: _Attempt, slot: int, loop: Loop) -> None:
        task, since = attempt.task, attempt.stopping_since_s
        if slot in twin.workload.lost:
            text = "a GPU fell off the bus"
            self._over(twin, attempt, slot, WorkOutcome.EXITED, LOST_GPU, text)
        elif since is not None and loop.has_left:
            self._over(twin, attempt, slot, WorkOutcome.STOPPED, TERMINATED, "told to end")
        elif since is not None and twin.now_s - since >= task.grace_s:
            text = "told to end, and did not in time"
            self._over(twin, attempt, slot, WorkOutcome.STOPPED, KILLED, text)
        elif task.walltime_s is not None and attempt.computed_s >= task.walltime_s:
            self._over(twin, attempt, slot, WorkOutcome.TIMED_OUT, TERMINATED, "walltime is up")
        elif twin.workload.jobs.is_finished(slot):
            code = int(_number(task, "TWIN_EXIT_CODE", 0)) & 0xFF
            self._over(twin, attempt, slot, WorkOutcome.EXITED, code, "")

    def _has_saved(self, attempt: _Attempt) -> None:
        attempt.say("checkpoint")
        for part in attempt.parts.values():
            if part.runs:
                part.tell(checkpoint_at=self._clock())

    def _over(
        self,
        twin: Twin,
        attempt: _Attempt,
        slot: int,
        outcome: WorkOutcome,
        exit_code: int,
        text: str,
    ) -> None:
        """End the running part of an attempt."""
        self._keep(twin, attempt, slot)
        twin.let_go(slot)
        twin.workload.end_task(slot)
        attempt.say(text or f"ends with {exit_code}")
        attempt.slot = attempt.loop = None
        log_tail = bytes(attempt.said[-4096:]).decode()
        for part in attempt.parts.values():
            if part.runs:
                part.tell(exit_code=exit_code, log_tail=log_tail)
                self._end(part, outcome, text=text)

    def _keep(self, twin: Twin, attempt: _Attempt, slot: int) -> None:
        """Keep what the attempt still has to tell, and what another can go on from."""
        if attempt.loop is not None:
            attempt.loop.end()
            self._rows += _row_of(attempt)
        saved, jobs = self._saved, twin.workload.jobs
        saved.pop(attempt.work, None)
        checkpoint = None if jobs.is_finished(slot) else jobs.durable(slot)
        if checkpoint is not None:
            saved[attempt.work] = checkpoint
        for work in list(saved)[:-_KEPT]:
            del saved[work]

    def _end(self, part: _Part, outcome: WorkOutcome, *, text: str = "") -> None:
        part.tell(state=WorkState.ENDED, outcome=outcome, ended_at=self._clock(), text=text)


def _nothing(order: Order) -> Task:
    """Return the task of an attempt that is only to be refused."""
    return Task(
        job="", phase="", number=0, command=[""], rank=0, nodes=[order.node], gpus=[],
        gpus_of_node=GPUS_PER_NODE,
    )  # fmt: skip


def _row_of(attempt: _Attempt) -> list[Row]:
    """Return the progress of an attempt that was not told yet, if there is any."""
    row = None if attempt.loop is None else attempt.loop.row(attempt.task.job)
    return [] if row is None else [row]


def _spec(task: Task) -> TrainingSpec:
    """Return what a task trains, from its environment."""
    kind = task.env.get("TWIN_KIND", "")
    work_s = max(_number(task, "TWIN_WORK_S", (task.walltime_s or 900.0) / 3), _LEAST_WORK_S)
    made = make_spec(
        kind if kind in JOB_KINDS else _DEFAULT_KIND,
        gpus=max(len(task.gpus) * len(task.nodes), 1),
        runs_s=work_s,
        key=f"{task.job}/{task.phase}",
    )
    every_s = _number(task, "TWIN_CHECKPOINT_S", NEVER_S)
    # It spends as much of its time on saving as jobs of its kind do.
    share = min(every_s, work_s) / made.checkpoint_interval_s
    # As other jobs of the twin, it may draw more than its GPUs' own limits let it.
    activity = _number(task, "TWIN_ACTIVITY", -1.0)
    return replace(
        made,
        activity=activity if activity >= 0.0 else None,
        checkpoint_interval_s=every_s if every_s > 0.0 else NEVER_S,
        checkpoint_bytes=made.checkpoint_bytes * min(share, 1.0),
    )


def _number(task: Task, name: str, default: float) -> float:
    """Return a number from a task's environment; text that is none counts as not given."""
    try:
        found = float(task.env[name])
    except (KeyError, ValueError):
        return default
    return found if np.isfinite(found) else default


class WorkServer(Protocol):
    """The server that gives work, such as :class:`headroom.client.Client`."""

    def report_work(self, reports: WorkReports) -> WorkOrders: ...


class WorkPolls:
    """A thread in which agents report the work of their machines and take orders, in turn."""

    def __init__(
        self, agents: Sequence[tuple[WorkServer, Machines]], *, stop: threading.Event
    ) -> None:
        self._agents = agents
        self._stop = stop
        self._poll_s = POLL_S
        self._gate = Gate()
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="work", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def exchange(self, place: int) -> None:
        """Have one agent report and take orders. While the server is away, running work goes on."""
        server, machines = self._agents[place]
        reports = machines.reports()
        if reports is None:
            return
        try:
            answer = server.report_work(reports)
        except HeadroomError as exc:
            self._complain(exc)
            if isinstance(exc, Unavailable):
                self._gate.failed(exc.retry_after_s)
            return
        self._gate.succeeded()
        self._complaint = ""
        self._poll_s = answer.poll_s
        machines.tell_logs(answer.logs)
        machines.hear(answer.orders)

    def _run(self) -> None:
        turn = 0
        while self._agents and not self._stop.is_set():
            self.exchange(turn % len(self._agents))
            turn += 1
            self._stop.wait(max(self._poll_s / len(self._agents), self._gate.wait_s()))

    def _complain(self, exc: HeadroomError) -> None:
        if str(exc) != self._complaint:
            log.warning("orders unknown, what runs goes on", extra={"why": exc})
        self._complaint = str(exc)
