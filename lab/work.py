"""Jobs on the twin's machines: agents ask for work, run it in the twin, and report on it.

What they say to the server is what the agent on a real machine says, and what a job says is what
becomes of it. What a command would do is read from its environment instead:

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
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np

from headroom import __version__
from headroom.client import HeadroomError, Unavailable
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
from lab.training import JOB_KINDS, JobKind
from lab.twin import Twin

__all__ = ["Machines", "WorkPolls"]

log = logging.getLogger(__name__)

#: What is told to end takes so long, s of the twin.
STOPPING_S = 2.0
#: Machines ask so often until the server says how often, s.
POLL_S = 2.0
#: Exit codes: of what loses a GPU, and of what SIGTERM ends.
LOST_GPU, TERMINATED = 134, 143

_DEFAULT_KIND = JOB_KINDS["finetune"]
#: Attempts that are over, whose output is kept.
_KEPT_LOGS = 200


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
    kind: JobKind = _DEFAULT_KIND
    work_s: float = 0.0
    done_s: float = 0.0
    computed_s: float = 0.0
    next_checkpoint_s: float = np.inf
    checkpoint_every_s: float = np.inf
    batch_scale: float = 1.0
    is_paused: bool = False
    #: since when it is told to end, by the twin's clock
    stopping_since_s: float | None = None
    #: what each of its nodes has said
    said: bytearray = field(default_factory=bytearray)

    def say(self, what: str) -> None:
        """Say a line, with how far it is."""
        done = min(self.done_s / max(self.work_s, 1e-9), 1.0)
        self.said += f"{what}: computed {self.computed_s:.0f} s, {done:.0%} of the work\n".encode()


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
            for key in list(self._kept_logs)[:-_KEPT_LOGS]:
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

    # --- What they do ----------------------------------------------------------------------------

    def step(self, twin: Twin, dt_s: float) -> None:
        """Carry out orders, and advance running attempts, ``dt_s`` after the last step."""
        with self._lock:
            silent = unheard(twin)
            self._silent = {name for name, number in self._numbers.items() if silent[number]}
            for attempt in list(self._attempts.values()):
                self._obey(twin, attempt)
                if attempt.slot is not None:
                    self._run(twin, attempt, attempt.slot, dt_s)

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
        task = attempt.task
        attempt.kind = JOB_KINDS.get(task.env.get("TWIN_KIND", ""), _DEFAULT_KIND)
        attempt.work_s = _number(task, "TWIN_WORK_S", (task.walltime_s or 900.0) / 3)
        every_s = _number(task, "TWIN_CHECKPOINT_S", np.inf)
        attempt.checkpoint_every_s = attempt.next_checkpoint_s = every_s
        activity = _number(task, "TWIN_ACTIVITY", np.nan)
        attempt.slot = twin.workload.begin_task(
            task.job,
            attempt.kind,
            twin.now_s,
            nodes=len(task.nodes),
            activity=None if np.isnan(activity) else activity,
        )
        attempt.say(f"begins on {len(task.nodes)} nodes")

    def _stop(self, twin: Twin, attempt: _Attempt, part: _Part) -> None:
        if part.state == WorkState.CLAIMED:
            self._end(part, WorkOutcome.NEVER_STARTED)
        elif part.state != WorkState.ENDED and attempt.stopping_since_s is None:
            attempt.stopping_since_s = twin.now_s

    def _follow(self, twin: Twin, attempt: _Attempt, part: _Part) -> None:
        """Carry out the signals that a part has received. All parts of a gang get the same."""
        for signal in part.heard:
            if signal.seq <= part.report.signals_seen or attempt.slot is None:
                continue
            self._do(twin, attempt, attempt.slot, signal)
            part.tell(signals_seen=signal.seq, signals_done=signal.seq)

    def _do(self, twin: Twin, attempt: _Attempt, slot: int, signal: SignalOrder) -> None:
        if signal.kind == SignalKind.CHECKPOINT:
            self._save(twin, attempt, slot)
        elif signal.kind in (SignalKind.PAUSE, SignalKind.RESUME):
            attempt.is_paused = signal.kind == SignalKind.PAUSE
        elif signal.kind == SignalKind.SET_BATCH_SCALE and signal.value is not None:
            attempt.batch_scale = signal.value
        elif signal.kind == SignalKind.SET_POWER_CAP:
            twin.cap_task(slot, np.inf if signal.value is None else signal.value)
        elif signal.kind == SignalKind.STOP and attempt.stopping_since_s is None:
            attempt.stopping_since_s = twin.now_s
        if signal.kind != SignalKind.CHECKPOINT:
            value = "" if signal.value is None else f" {signal.value:g}"
            attempt.say(f"told to {signal.kind.replace('_', ' ')}{value}")
        twin.workload.scale_task(slot, 0.0 if attempt.is_paused else attempt.batch_scale)
        state = WorkState.PAUSED if attempt.is_paused else WorkState.RUNNING
        for part in attempt.parts.values():
            if part.runs:
                part.tell(state=state)

    def _run(self, twin: Twin, attempt: _Attempt, slot: int, dt_s: float) -> None:
        if not attempt.is_paused:
            attempt.computed_s += dt_s
            attempt.done_s += dt_s * twin.pace(slot) * attempt.batch_scale
            if attempt.computed_s >= attempt.next_checkpoint_s:
                attempt.next_checkpoint_s += attempt.checkpoint_every_s
                self._save(twin, attempt, slot)
        since = attempt.stopping_since_s
        walltime_s = attempt.task.walltime_s
        if slot in twin.workload.lost:
            text = "a GPU fell off the bus"
            self._over(twin, attempt, slot, WorkOutcome.EXITED, LOST_GPU, text)
        elif since is not None and twin.now_s - since >= STOPPING_S:
            self._over(twin, attempt, slot, WorkOutcome.STOPPED, TERMINATED, "told to end")
        elif walltime_s is not None and attempt.computed_s >= walltime_s:
            self._over(twin, attempt, slot, WorkOutcome.TIMED_OUT, TERMINATED, "walltime is up")
        elif attempt.done_s >= attempt.work_s:
            code = int(_number(attempt.task, "TWIN_EXIT_CODE", 0)) & 0xFF
            self._over(twin, attempt, slot, WorkOutcome.EXITED, code, "")

    def _save(self, twin: Twin, attempt: _Attempt, slot: int) -> None:
        twin.workload.save_task(slot, twin.now_s)
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
        twin.let_go(slot)
        twin.workload.end_task(slot)
        attempt.slot = None
        attempt.say(text or f"ends with {exit_code}")
        log_tail = bytes(attempt.said[-4096:]).decode()
        for part in attempt.parts.values():
            if part.runs:
                part.tell(exit_code=exit_code, log_tail=log_tail)
                self._end(part, outcome, text=text)

    def _end(self, part: _Part, outcome: WorkOutcome, *, text: str = "") -> None:
        part.tell(state=WorkState.ENDED, outcome=outcome, ended_at=self._clock(), text=text)


def _nothing(order: Order) -> Task:
    """Return the task of an attempt that is only to be refused."""
    return Task(
        job="", phase="", number=0, command=[""], rank=0, nodes=[order.node], gpus=[],
        gpus_of_node=GPUS_PER_NODE,
    )  # fmt: skip


def _number(task: Task, name: str, default: float) -> float:
    """Return a number from a task's environment; text that is none counts as not given."""
    try:
        return float(task.env[name])
    except (KeyError, ValueError):
        return default


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
