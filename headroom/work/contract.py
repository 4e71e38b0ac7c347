"""The wire contract between the server and a machine that runs jobs.

The machine asks ``GET /api/v1/work`` while it has nothing to say, and else sends all that it holds
to ``POST /api/v1/work``; both answer with :class:`WorkOrders`. An order says what is wanted *now*
of one attempt on one node, so that an answer that is lost, doubled or late does no harm: what a
machine has once refused, ended or been told to stop it never starts.

Times are Unix seconds, UTC.
"""

from __future__ import annotations

import enum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from headroom.contracts import Name, Timestamp

__all__ = [
    "LOG_PART_BYTES",
    "MAX_FRAME_BYTES",
    "MAX_LOG_PARTS",
    "MAX_ORDERS",
    "MAX_OUTPUTS",
    "SIGNAL_KINDS",
    "AttemptKey",
    "Cells",
    "DesiredState",
    "Input",
    "LogAsk",
    "LogPart",
    "Measured",
    "Order",
    "Output",
    "ShellAnswer",
    "ShellAsk",
    "ShellFrame",
    "ShellKind",
    "ShellSide",
    "ShipLimit",
    "SignalKind",
    "SignalOrder",
    "Slice",
    "Task",
    "WorkOrders",
    "WorkOutcome",
    "WorkReport",
    "WorkReports",
    "WorkState",
]

#: As many orders as an answer has, and reports as a request may have.
MAX_ORDERS = 2000
#: As much output as one part has, bytes, and parts as a request may have.
LOG_PART_BYTES = 64 * 1024
MAX_LOG_PARTS = 16
#: As many artifacts as one phase makes.
MAX_OUTPUTS = 50

_NO_NUL = r"^[^\x00]*$"
#: "job/phase/number".
AttemptKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300, pattern=_NO_NUL)]
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
#: A place in the output of an attempt, bytes from its beginning.
_Place = Annotated[int, Meta(ge=0, le=2**62)]


class DesiredState(enum.StrEnum):
    """The desired state of one attempt on one node."""

    #: Write down, durably, that it is yours, and start nothing yet.
    CLAIM = "claim"
    #: All nodes of the gang have claimed it: start it, unless it was started before.
    RUN = "run"
    #: End it; where it was not started yet, never start it.
    STOP = "stop"
    #: The server has written its end down: its files may go.
    FORGET = "forget"


class SignalKind(enum.StrEnum):
    """The kind of a signal to a running job."""

    CHECKPOINT = "checkpoint"
    #: Stop computing and keep the GPUs: SIGSTOP.
    PAUSE = "pause"
    RESUME = "resume"
    #: Work on ``value`` of its batch, as a share.
    SET_BATCH_SCALE = "set_batch_scale"
    #: Draw at most ``value`` W on each GPU.
    SET_POWER_CAP = "set_power_cap"
    STOP = "stop"


SIGNAL_KINDS = frozenset(SignalKind)


class SignalOrder(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One signal. ``seq`` counts up from 1 within the attempt."""

    seq: _Count
    kind: SignalKind
    value: float | None = None


class Input(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """An input that a phase declares: ``image``, ``code`` or ``data/NAME``, and its digest.

    ``path`` is where it lies on the machine; empty: nobody has said.
    """

    name: str
    digest: str
    path: str = ""


class Output(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """An artifact that a phase makes: a file or folder at ``path`` once its command has ended."""

    name: str
    path: str
    #: it is the result of a matrix, whose cells are counted
    matrix: bool = False


class Cells(Struct, kw_only=True, frozen=True):
    """How many cells of a matrix ended how. One that could not be run says nothing."""

    passed: _Count
    failed: _Count
    error: _Count
    not_measured: _Count
    not_run: _Count


class Measured(Struct, kw_only=True, frozen=True):
    """What a machine found of an artifact at ``at``, once the command had ended there."""

    name: Annotated[str, Meta(min_length=1, max_length=60, pattern=_NO_NUL)]
    digest: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$(?!\n)")]
    size_bytes: Annotated[int, Meta(ge=0, le=2**62)]
    at: Timestamp
    #: of a result of a matrix
    cells: Cells | None = None


class Slice(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A MIG slice: its GPU by index, its profile, and its place among the slices of that in NVML.

    ``share`` is how much of the GPU it is, of 1.
    """

    gpu: int
    profile: str
    place: int
    share: float


class Task(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The part of a gang that is to run on one node.

    ``nodes`` are those of the gang in the order of their ranks. ``gpus`` are the indices of the
    gang's GPUs on this node, of ``gpus_of_node`` that it has. ``walltime_s`` is how long it may
    compute at most, pauses left out; ``grace_s`` is the time between SIGTERM and SIGKILL.
    ``project`` says whose it is; older servers do not. ``inputs`` are verified before the start,
    ``outputs`` measured once the command has succeeded.
    With ``slices`` it has those and no whole GPU: ``gpus`` is empty, so that an older agent, which
    knows of no slices, shows it nothing. With ``cores``, the numbers of CPU cores of
    ``cores_of_node`` that the node hands out, it has no GPU at all.
    """

    job: str
    phase: str
    number: int
    command: Annotated[list[str], Meta(min_length=1)]
    env: dict[str, str] = {}
    rank: int
    nodes: list[str]
    gpus: list[int]
    gpus_of_node: int
    power_cap_w: float | None = None
    walltime_s: float | None = None
    grace_s: float = 30.0
    project: str = ""
    inputs: list[Input] = []
    outputs: list[Output] = []
    slices: list[Slice] = []
    cores: list[int] = []
    cores_of_node: int = 0


class Order(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The desired state of ``attempt`` on ``node``.

    ``task`` comes with :attr:`DesiredState.CLAIM` alone. ``signals`` are those that the machine has
    not said it has seen, oldest first. ``why`` is for people, with :attr:`DesiredState.STOP`.
    """

    attempt: AttemptKey
    node: Name
    wanted: DesiredState
    task: Task | None = None
    signals: list[SignalOrder] = []
    why: str = ""


class LogAsk(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A request for output of ``attempt`` on ``node`` from ``start`` on; None: for its end."""

    attempt: AttemptKey
    node: Name
    start: _Place | None = None


class LogPart(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Output of ``attempt`` on ``node``: ``data`` stands at ``start``.

    Of all that it has said so far, ``size`` bytes, the machine still has what comes from ``first``
    on. Where it has nothing any more, ``first`` is ``size``.
    """

    attempt: AttemptKey
    node: Name
    start: _Place
    first: _Place
    size: _Place
    data: Annotated[bytes, Meta(max_length=LOG_PART_BYTES)] = b""


# --- Shells --------------------------------------------------------------------------------------

#: As much as one frame of a shell has.
MAX_FRAME_BYTES = 32 * 1024


class ShellSide(enum.StrEnum):
    """An end of a shell."""

    USER = "user"
    NODE = "node"


class ShellKind(enum.StrEnum):
    """The kind of a frame of a shell."""

    #: What was typed, or what the terminal shows.
    DATA = "data"
    #: The size of the window, as ``ROWS COLUMNS``.
    RESIZE = "resize"
    #: The exit code of the command, the last frame of a machine.
    EXIT = "exit"
    #: It is over, and why.
    OVER = "over"


class ShellFrame(Struct, kw_only=True, frozen=True):
    """One frame of an end, which numbers them from 1."""

    number: Annotated[int, Meta(ge=1, le=2**62)]
    kind: ShellKind
    data: Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)] = b""


class ShellAnswer(Struct, kw_only=True):
    """The answer to an end: up to which number its frames were taken, or what the other has said.

    ``over``: why it is over, empty where the command has ended; null: it is not.
    """

    last: int = 0
    frames: list[ShellFrame] = []
    over: str | None = None
    exit_code: int | None = None


class ShellAsk(Struct, kw_only=True, frozen=True):
    """A request to open a terminal in what ``attempt`` holds on ``node``.

    ``secret`` is the token of the machine's end. An empty ``command`` is a login shell.
    ``is_terminal``: a person sits at the other end; else what it says is passed on as it is.
    """

    session: Annotated[str, Meta(pattern=r"^[0-9a-f-]{36}$")]
    secret: str
    attempt: AttemptKey
    node: Name
    command: list[str] = []
    is_terminal: bool = True
    term: str = "xterm"
    rows: int = 24
    columns: int = 80


class ShipLimit(Struct, kw_only=True, frozen=True):
    """A lease on how fast an attempt may send its checkpoints to another site; 0: not at all."""

    attempt: AttemptKey
    id: Name
    bytes_per_s: Annotated[float, Meta(ge=0, le=1e15)]
    expires_at: Timestamp


class WorkOrders(Struct, kw_only=True):
    """The answer: the orders for this machine, and whose output somebody reads.

    ``poll_s`` is when to ask again; ``report_s`` is how often at least to report, so that the
    server takes the machine for alive. ``fence_s`` is for how long, from when this was asked for,
    what the machine is told to run may run: after that it has to stand still, since the server may
    have it run elsewhere. None: an older server, which does not say. ``ships`` has the limits in
    force on sending checkpoints; those that are no longer there are withdrawn.
    """

    now: Timestamp
    orders: list[Order]
    poll_s: float
    report_s: float
    fence_s: Annotated[float, Meta(gt=0)] | None = None
    logs: list[LogAsk] = []
    shells: list[ShellAsk] = []
    ships: list[ShipLimit] = []


class WorkState(enum.StrEnum):
    """The state of an attempt on one node."""

    #: Durably written down, and not started.
    CLAIMED = "claimed"
    RUNNING = "running"
    PAUSED = "paused"
    #: It is over, or never was: see ``outcome``.
    ENDED = "ended"


class WorkOutcome(enum.StrEnum):
    """The outcome of an attempt on one node."""

    #: By itself: see ``exit_code``.
    EXITED = "exited"
    #: Since it was told to.
    STOPPED = "stopped"
    #: Its walltime was up.
    TIMED_OUT = "timed_out"
    #: It was not started, and never will be: it cannot be, or was told to stop before.
    NEVER_STARTED = "never_started"
    #: It was started, and what became of it is not known: nothing of it runs any more.
    LOST = "lost"


class WorkReport(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A report on one attempt on one node. ``signals_seen`` and ``signals_done`` are seqs.

    A signal is seen when it was passed on to the job, and done when the job says so:
    ``done_at_step`` is the step of its training after which it did the last of them.
    ``exit_code`` is that of the command; 128 more than the signal that ended it. ``outputs`` come
    with the end of a command that has succeeded.
    """

    attempt: AttemptKey
    node: Name
    state: WorkState
    outcome: WorkOutcome | None = None
    exit_code: Annotated[int, Meta(ge=0, le=255)] | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    checkpoint_at: Timestamp | None = None
    signals_seen: _Count = 0
    signals_done: _Count = 0
    done_at_step: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    outputs: Annotated[list[Measured], Meta(max_length=MAX_OUTPUTS)] = []
    text: Annotated[str, Meta(max_length=500, pattern=_NO_NUL)] = ""
    log_tail: Annotated[str, Meta(max_length=8192, pattern=_NO_NUL)] = ""


class WorkReports(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All that a machine holds: the body of ``POST /api/v1/work``.

    ``store`` names the store in which it writes its claims down: with another one it is another
    machine, although it has the same name. ``nodes`` are those that it runs jobs for; those of a
    simulation say that they are ``simulated``.
    """

    store: Annotated[str, Meta(min_length=1, max_length=64, pattern=_NO_NUL)]
    nodes: Annotated[list[Name], Meta(min_length=1, max_length=20_000)]
    reports: Annotated[list[WorkReport], Meta(max_length=MAX_ORDERS)] = []
    logs: Annotated[list[LogPart], Meta(max_length=MAX_LOG_PARTS)] = []
    version: Annotated[str, Meta(max_length=50, pattern=_NO_NUL)] = ""
    simulated: bool = False
    runs_for_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
