"""The wire contract between the server and the bridge of a scheduler that people have already.

The bridge stands beside the scheduler. It reads the scheduler's state, sends what has changed to
``POST /api/v1/schedulers/NAME``, and carries out what the answer asks. An order says what is wanted
*now*, and is given again until the scheduler's own state shows that it was done. So an answer that
is lost, doubled or late does no harm, and either side may begin anew at any time.

A job starts under a lease: the key of an attempt, ``job/phase/number``, that is good for one start.
``restarts`` counts the starts that a job has had before: with the next one its lease is over.

Times are Unix seconds, UTC.
"""

from __future__ import annotations

import enum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from headroom.contracts import Name, Timestamp
from headroom.work.contract import MAX_OUTPUTS, Measured

__all__ = [
    "CAN_MOVE",
    "CAN_SUSPEND",
    "MAX_JOBS",
    "MAX_SCRIPT",
    "MOVE_KEY",
    "SCHEDULER_NAME",
    "Directives",
    "EndedAs",
    "JobOrder",
    "JobState",
    "NodeOrder",
    "NodeState",
    "Parcel",
    "SchedulerJob",
    "SchedulerKind",
    "SchedulerNews",
    "SchedulerNode",
    "SchedulerOrders",
    "SchedulerReport",
    "Wait",
    "WantedOfJob",
    "WhenAway",
]

#: As many jobs as one report has.
MAX_JOBS = 50_000
#: Attempts name their executor by it.
SCHEDULER_NAME = r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$(?!\n)"
#: Of a move of a job to another scheduler: job, then number.
MOVE_KEY = r"^[\w.-]{1,200}/move/\d{1,6}$(?!\n)"
#: The longest script that goes to another scheduler, bytes.
MAX_SCRIPT = 262_144

_NO_NUL = r"^[^\x00]*$"
_Ref: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[\w.:/-]+$(?!\n)")]
_Word: TypeAlias = Annotated[str, Meta(max_length=200, pattern=_NO_NUL)]
_Text: TypeAlias = Annotated[str, Meta(max_length=1000, pattern=_NO_NUL)]
_Path: TypeAlias = Annotated[str, Meta(max_length=4096, pattern=_NO_NUL)]
_Key: TypeAlias = Annotated[str, Meta(max_length=300, pattern=MOVE_KEY)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Rank: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=3.2e7)]


class SchedulerKind(enum.StrEnum):
    """The kind of a scheduler."""

    SLURM = "slurm"
    KUEUE = "kueue"


#: Kinds that let a running job stand still and go on. Others have to be asked to end it instead.
CAN_SUSPEND = frozenset({SchedulerKind.SLURM})

#: Kinds whose jobs can be submitted again by a bridge, as their owners.
CAN_MOVE = frozenset({SchedulerKind.SLURM})


class WhenAway(enum.StrEnum):
    """What becomes of new jobs while Headroom is away. It is the operator's choice."""

    #: they start as if it had never been there
    OPEN = "open"
    #: they wait for it
    CLOSED = "closed"


class JobState(enum.StrEnum):
    """The state of a job, as its scheduler has it."""

    #: it waits, and only we let it start
    HELD = "held"
    #: it waits for something else first: another job, a time, its owner
    BLOCKED = "blocked"
    #: the scheduler may start it at any moment
    RELEASED = "released"
    RUNNING = "running"
    SUSPENDED = "suspended"
    #: told to end, and something of it may still run
    ENDING = "ending"
    ENDED = "ended"


class EndedAs(enum.StrEnum):
    """How a job that is over has ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    #: a node failed under it
    LOST = "lost"


class SchedulerJob(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One job. ``ref`` is how its scheduler calls it, ``lease`` the key that it was released under.

    ``gpus`` are those of all of its nodes, ``nodes`` and ``gpu_indices`` what it runs on, by the
    names of the inventory. ``gpus_per_node`` None: they may lie anyhow. ``priority`` is the
    scheduler's own, where it tells one: larger is more urgent.
    """

    ref: _Ref
    state: JobState
    restarts: _Count = 0
    lease: Annotated[str, Meta(max_length=300, pattern=_NO_NUL)] = ""
    name: _Word = ""
    user: _Word = ""
    account: _Word = ""
    partition: _Word = ""
    comment: _Text = ""
    priority: _Rank = 0
    submitted_at: Timestamp
    gpus: _Count = 0
    nodes_wanted: _Count = 1
    min_nodes: _Count | None = None
    gpus_per_node: _Count | None = None
    #: on each of its nodes, of a job without GPUs
    cores: _Count = 0
    mem_bytes: Annotated[int, Meta(ge=1, le=2**62)] | None = None
    #: as the scheduler calls it; empty: any
    model: _Word = ""
    #: that it may run on; empty: all of its scheduler's
    only_nodes: Annotated[list[Name], Meta(max_length=20_000)] = []
    time_limit_s: _Seconds | None = None
    #: the scheduler can start it again
    can_requeue: bool = False
    #: why it waits, or how it ended, in the scheduler's words
    why: _Text = ""
    nodes: Annotated[list[Name], Meta(max_length=20_000)] = []
    gpu_indices: dict[str, list[int]] = {}
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    ended_as: EndedAs | None = None
    exit_code: int | None = None
    #: seqs of directives: up to which they were passed on, and up to which the job has done them
    signals_seen: _Count = 0
    signals_done: _Count = 0
    checkpoint_at: Timestamp | None = None
    #: the artifacts that it has made, as it measured them before it ended
    outputs: Annotated[list[Measured], Meta(max_length=MAX_OUTPUTS)] = []


class Parcel(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """All that a job is submitted with in another scheduler of its kind, as its owner ``user``.

    ``options`` are the scheduler's own, by name, as it has them. Who submits takes those it knows.
    """

    user: Annotated[str, Meta(min_length=1, max_length=200, pattern=_NO_NUL)]
    script: Annotated[str, Meta(min_length=1, max_length=MAX_SCRIPT, pattern=_NO_NUL)]
    options: Annotated[dict[_Word, _Path], Meta(max_length=50)] = {}


class NodeState(enum.StrEnum):
    """Whether a scheduler starts jobs on a node."""

    UP = "up"
    #: somebody has taken it out: ``reason`` and ``drained_by`` say why and who
    DRAINED = "drained"
    #: it does not answer: what it ran may still run
    DOWN = "down"
    #: it has no power: nothing runs there
    OFF = "off"


class SchedulerNode(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One node, by its name in the inventory. ``is_ours``: we have drained it.

    ``rack``, ``zone``, ``feed_a`` and ``feed_b`` are what its scheduler says of where it stands;
    empty: nothing.
    """

    node: Name
    state: NodeState
    reason: _Text = ""
    drained_by: _Word = ""
    is_ours: bool = False
    rack: _Word = ""
    zone: _Word = ""
    feed_a: _Word = ""
    feed_b: _Word = ""


class SchedulerReport(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What has changed since the last report that was answered; all there is with ``complete``.

    ``session`` is of the bridge's life: a server that has not heard its beginning asks for all.
    ``gone`` are jobs that the scheduler has forgotten, ``commented`` those with the comment which
    was sent last. ``parcels`` are of jobs of which the last answer asked for them, ``refused``
    says why the scheduler does not take what moves to it, by the key of the move.
    """

    kind: SchedulerKind
    session: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[\w-]+$(?!\n)")]
    version: _Word = ""
    when_away: WhenAway = WhenAway.CLOSED
    complete: bool = False
    jobs: Annotated[list[SchedulerJob], Meta(max_length=MAX_JOBS)] = []
    gone: Annotated[list[_Ref], Meta(max_length=MAX_JOBS)] = []
    commented: Annotated[list[_Ref], Meta(max_length=MAX_JOBS)] = []
    parcels: dict[_Ref, Parcel] = {}
    refused: dict[_Key, _Text] = {}
    nodes: Annotated[list[SchedulerNode], Meta(max_length=20_000)] | None = None


class WantedOfJob(enum.StrEnum):
    """The state that is wanted of a job."""

    #: start it on the nodes of the order, under its lease
    RUN = "run"
    #: it is released and does not begin: hold it again
    HOLD = "hold"
    #: it runs: end it, keep it in the queue, held
    EVICT = "evict"
    SUSPEND = "suspend"
    RESUME = "resume"
    #: end it for good
    CANCEL = "cancel"


class Directives(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What a running job is to do now; ``checkpoint`` is the seq of the last that asked for one."""

    seq: _Count
    checkpoint: _Count = 0
    batch_scale: float | None = None
    power_cap_w: float | None = None


class JobOrder(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What is wanted of one job. ``restarts``: only while it has had so many."""

    ref: _Ref
    wanted: WantedOfJob
    restarts: _Count = 0
    lease: str = ""
    nodes: list[Name] = []
    why: str = ""


class NodeOrder(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A node that is to be drained for ``reason``; without one, what we drained comes back."""

    node: Name
    reason: str = ""


class Wait(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """How long a held job is likely to wait yet, s; None: nobody knows.

    ``is_never``: it can never start as it is.
    """

    start_in_s: float | None = None
    is_never: bool = False


class SchedulerOrders(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The answer to a report. ``resync``: send all there is with the next one.

    ``comments`` are what the owners of jobs are to read, by ref, and ``waits`` the same as numbers.
    ``disagreements`` says where nodes stand elsewhere than in the inventory; None: no nodes came.
    ``pack`` are jobs whose parcels are wanted, ``submit`` what is to be submitted, by the key of
    its move: once, whatever is asked how often. Its comment says the key.
    """

    now: Timestamp
    poll_s: float = 1.0
    resync: bool = False
    jobs: list[JobOrder] = []
    nodes: list[NodeOrder] = []
    comments: dict[str, str] = {}
    waits: dict[str, Wait] = {}
    directives: dict[str, Directives] = {}
    pack: list[str] = []
    submit: dict[str, Parcel] = {}
    disagreements: list[str] | None = None


class SchedulerNews(Struct, frozen=True):
    """The answer to who waits for orders: ``last`` is another as soon as there are some."""

    last: Annotated[str, Meta(max_length=64)]
