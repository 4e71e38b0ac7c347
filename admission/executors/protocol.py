"""The interface of executors. Slurm and Kueue fit behind it: see docs/reference/executors.md.

All calls may be repeated: work is known by the key of its attempt, "job/phase/number", and an
attempt is run at most once, whatever is called how often. Many are given at once, since a cycle
releases hundreds. Times are Unix seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headroom.work.contract import Measured, SignalKind

__all__ = [
    "Executor",
    "NodeShare",
    "NodeStatus",
    "SignalKind",
    "Work",
    "WorkOutcomeKind",
    "WorkPlacement",
    "WorkStatus",
    "WorkStatusState",
]


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of an attempt. ``priority`` and ``comment`` are for executors that show a queue."""

    key: str
    job: str
    phase: str
    number: int
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    walltime_s: float | None = None
    #: between SIGTERM and SIGKILL
    grace_s: float = 30.0
    priority: int = 0
    comment: str = ""
    #: whose it is: machines keep jobs of several projects apart
    project: str = ""
    #: ``name``, ``digest`` and ``path`` of each that machines verify before they start it
    inputs: tuple[Mapping[str, str], ...] = ()
    #: ``name`` and ``path`` of each artifact that machines measure once it has succeeded, and
    #: whether it is the result of a ``matrix``
    outputs: tuple[Mapping[str, Any], ...] = ()
    #: ``gpu``, ``profile``, ``place`` and ``share`` of each slice that it has in place of GPUs
    slices: tuple[Mapping[str, Any], ...] = ()
    #: by node, the numbers of the CPU cores that it has in place of GPUs; and how many there are
    cores: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cores_of: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeShare:
    """The GPUs of one node that a gang has, by index, of ``gpus_of_node``."""

    node_id: int
    node: str
    gpus: tuple[int, ...]
    gpus_of_node: int


@dataclass(frozen=True)
class WorkPlacement:
    """Where a gang runs, in the order of its ranks; ``power_cap_w`` is per GPU, None: none."""

    nodes: tuple[NodeShare, ...]
    power_cap_w: float | None = None


class WorkStatusState(enum.StrEnum):
    """The state of an attempt's work, as its executor sees it."""

    #: The executor has never heard of it, or has forgotten it.
    UNKNOWN = "unknown"
    #: Handed over, and not to be run yet.
    HELD = "held"
    #: Released; not all of its nodes run it yet.
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    #: Told to end; something of it may still run.
    STOPPING = "stopping"
    ENDED = "ended"


class WorkOutcomeKind(enum.StrEnum):
    """How the work of an attempt ended as a whole."""

    SUCCEEDED = "succeeded"
    #: An exit code other than zero.
    FAILED = "failed"
    #: Its walltime was up.
    TIMED_OUT = "timed_out"
    #: It was told to stop.
    STOPPED = "stopped"
    #: Its gang did not come together: nothing of it was started.
    WITHDRAWN = "withdrawn"
    #: A node, or all trace of it there, is gone.
    LOST = "lost"


@dataclass(frozen=True)
class NodeStatus:
    """The work of one node. ``is_lost``: what became of it is not known."""

    node: str
    rank: int
    state: str
    exit_code: int | None
    text: str
    log_tail: str
    is_lost: bool = False
    ended_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class WorkStatus:
    """The status of one attempt's work. ``signals_seen`` and ``signals_done``: of all nodes."""

    key: str
    state: WorkStatusState
    outcome: WorkOutcomeKind | None = None
    exit_code: int | None = None
    why: str = ""
    #: when all of its nodes ran it
    started_at: float | None = None
    ended_at: float | None = None
    #: the oldest of its nodes' last checkpoints
    checkpoint_at: float | None = None
    #: seqs: up to which all nodes have passed signals on, and the job says it has done them
    signals_seen: int = 0
    signals_done: int = 0
    #: the step of its training after which it did the last of them, where it says so
    done_at_step: int | None = None
    #: the artifacts that it has made, as its machines measured them
    outputs: tuple[Measured, ...] = ()
    #: grows with every change; what :meth:`Executor.note` is told
    version: int = 0
    nodes: tuple[NodeStatus, ...] = ()


class Executor(Protocol):
    """Starts, signals and watches the work of attempts."""

    def submit(self, works: Sequence[Work], now: float) -> None:
        """Hand work over, held: nothing runs yet. Work that it knows already stays as it is."""

    def release(self, placements: Mapping[str, WorkPlacement], now: float) -> None:
        """Start held work at its placement, by key. A gang starts whole or not at all."""

    def signal(
        self, key: str, kind: SignalKind, now: float, *, value: float | None = None, why: str = ""
    ) -> int | None:
        """Signal running work; return the seq of the signal.

        None: the work is over, or not known. A stop is for good, also before it has begun.
        """

    def status(self, keys: Sequence[str]) -> list[WorkStatus]:
        """Return the status of each of ``keys``, in their order."""

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return those of ``keys`` that it does not have, or only holds; a bounded number.

        A crash between an admission and this executor leaves such work.
        """

    def changes(self) -> list[WorkStatus]:
        """Return the statuses that have changed since they were last noted, or more."""

    def note(self, statuses: Sequence[WorkStatus]) -> None:
        """Note these as known to the caller, who has written their consequences down."""

    def adopt(self, besides: Collection[str] = ()) -> list[WorkStatus]:
        """Return the statuses of all work that is not over, even if the caller may not know it.

        Left out is that with the keys ``besides``.
        """

    def follow(self, now: float) -> None:
        """Do the work that is due by the clock: withdraw gangs, give up machines. Once a cycle."""
