"""The folders of one attempt: files of its shim and of its job. See ``shim``.

Where the job has a user of its own, what is the shim's and what is the job's lie apart, and the
job cannot reach the first. Either way nothing that lies there is trusted to be what it should be.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from headroom.contracts import Timestamp
from headroom.work import output
from headroom.work.contract import MAX_OUTPUTS, Measured, SignalKind, SignalOrder
from headroom.work.reading import open_plain, read_plain, write_plain

__all__ = [
    "SHIPPING",
    "Directives",
    "Folder",
    "JobStatus",
    "Marks",
    "ShimExit",
    "ShipOrder",
    "ShipOrders",
]

#: The variable that names the file with :class:`ShipOrders`.
SHIPPING = "HEADROOM_SHIPPING"

T = TypeVar("T", bound=Struct)

_TAIL_BYTES = 4096
#: Of what a job says of itself, and of each file that is ours.
_MOST_STATUS_BYTES = 65_536
_MOST_BYTES = 1024 * 1024


class ShimExit(Struct):
    """How the command ended: ``exit.json``."""

    exit_code: int
    stopped: bool
    timed_out: bool
    ended_at: float
    #: why it was ended, where that was not asked for
    why: str = ""
    #: nobody has confirmed for too long that it may run
    lost: bool = False


class Directives(Struct):
    """The directives to a job, in the file that ``HEADROOM_DIRECTIVES`` names: all in force.

    ``seq`` is that of the last directive, ``checkpoint`` that of the last that asked for one,
    ``paused`` that of the pause in force, for a job that stands still by itself (0: none).
    """

    seq: int = 0
    checkpoint: int = 0
    batch_scale: float | None = None
    power_cap_w: float | None = None
    paused: int = 0

    def take(self, signal: SignalOrder) -> None:
        """Have a new one be in force."""
        self.seq = signal.seq
        if signal.kind == SignalKind.CHECKPOINT:
            self.checkpoint = signal.seq
        elif signal.kind == SignalKind.SET_BATCH_SCALE:
            self.batch_scale = signal.value
        elif signal.kind == SignalKind.SET_POWER_CAP:
            self.power_cap_w = signal.value
        elif signal.kind in (SignalKind.PAUSE, SignalKind.RESUME):
            self.paused = signal.seq if signal.kind == SignalKind.PAUSE else 0


class ShipOrder(Struct, frozen=True):
    """A limit on sending checkpoints to another site, until a time by CLOCK_BOOTTIME, s."""

    id: str
    bytes_per_s: float
    until: float


class ShipOrders(Struct, frozen=True):
    """The limits in force, in the file that ``HEADROOM_SHIPPING`` names: see ``checkpoints``."""

    limits: list[ShipOrder] = []


class _Inputs(Struct):
    """What was found of declared inputs, as far as it is of interest here: see ``inputs``."""

    refused: str = ""


class _Outputs(Struct):
    """What was measured of artifacts: see ``outputs``."""

    outputs: Annotated[list[Measured], Meta(max_length=MAX_OUTPUTS)] = []
    refused: str = ""


class JobStatus(Struct):
    """The status that a job reports, in the file that ``HEADROOM_STATUS`` names.

    ``checkpoint_at`` is when its last checkpoint was whole, Unix s. ``done`` is the seq of the
    last directive that it has carried out, and ``step`` the step of its training at which it did.
    ``hears``: it reads its directives, and stands still by itself when it is told to pause.
    """

    checkpoint_at: Timestamp | None = None
    done: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    step: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    hears: bool = False


@dataclass(frozen=True)
class Marks:
    """The visible state of an attempt. ``started_at``: when the command was about to be started.

    ``is_fenced``: it stands still, for the server was not heard for too long.
    """

    is_watched: bool
    started_at: float | None
    is_paused: bool
    exit: ShimExit | None
    is_fenced: bool = False


class Folder:
    """The files of one attempt: the shim's at ``path``, the job's at ``place``.

    Without a place of its own the job is within ``path``.
    """

    def __init__(self, path: Path, place: Path | None = None) -> None:
        self.path = path
        self.place = path if place is None else place

    @property
    def is_apart(self) -> bool:
        """Whether the job has a place of its own."""
        return self.place != self.path

    @property
    def work(self) -> Path:
        """The working directory of the job."""
        return self.place / "work"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of a job with a place of its own."""
        return self.place / "tmp"

    @property
    def directives(self) -> Path:
        """The file with the directives to the job."""
        return self.place / "directives.json"

    @property
    def shipping(self) -> Path:
        """The file with the limits on sending checkpoints to another site."""
        return self.place / "shipping.json"

    @property
    def status(self) -> Path:
        """The file with the status that the job reports."""
        return self.work / ".headroom-status.json"

    @property
    def inputs(self) -> Path:
        """The file with what was verified of the inputs that the job declares."""
        return self.work / ".headroom-inputs.json"

    @property
    def outputs(self) -> Path:
        """The file with what was measured of the artifacts that the job makes."""
        return self.work / ".headroom-outputs.json"

    @property
    def reports(self) -> Path:
        """The socket to which ranks of the job report their progress."""
        return self.place / "reports"

    def marks(self) -> Marks:
        """Look, in the one order that cannot mislead.

        A shim has the lock before it makes the mark, and until it has written down the end. So
        where the mark is there first and the lock is free then, all that will be written is there.
        """
        started_at = self._started_at()
        is_watched = self._is_locked()
        return Marks(
            is_watched=is_watched,
            started_at=started_at,
            is_paused=os.path.lexists(self.path / "paused"),
            exit=None if is_watched else self._exit(),
            is_fenced=os.path.lexists(self.path / "fenced"),
        )

    def _started_at(self) -> float | None:
        try:
            return os.lstat(self.path / "started").st_mtime
        except FileNotFoundError:
            return None

    def tell(self, order: str) -> bool:
        """Give the shim an order; return whether there is one to take it."""
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self.path / "control", flags)
        except OSError as exc:
            if exc.errno in (errno.ENXIO, errno.ENOENT):
                return False
            raise
        try:
            # Full: whoever should read it stands still.
            with contextlib.suppress(BlockingIOError):
                is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
                return is_pipe and os.write(fd, f"{order}\n".encode()) > 0
        finally:
            os.close(fd)
        return False

    def promise(self, until: float) -> None:
        """Note until when the command may run unless the server is heard again, by CLOCK_BOOTTIME.

        It is the time of a file, so that a full disk takes it, too. It only ever grows.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        until = max(until, self.promised() or 0.0)
        fd = os.open(self.path / "until", flags, 0o600)
        try:
            os.utime(fd, (until, until))
        finally:
            os.close(fd)

    def promised(self) -> float | None:
        """Return until when the command may run; None where nobody has noted it."""
        try:
            return os.lstat(self.path / "until").st_mtime
        except FileNotFoundError:
            return None

    def has_begun(self) -> bool:
        """Say whether a shim may have started the command."""
        return self._started_at() is not None

    def bar(self) -> bool:
        """Prevent any shim from starting the command; return False where one may have.

        It is the mark that a shim makes, and that cannot be made twice.
        """
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.path / "started", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def read_directives(self) -> Directives:
        """Return the last directives to the job."""
        try:
            return msgspec.json.decode(read_plain(self.directives, _MOST_BYTES), type=Directives)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return Directives()

    def write_directives(self, directives: Directives) -> None:
        """Write the directives to the job, all at once."""
        write_plain(self.directives, msgspec.json.encode(directives), 0o644)

    def write_shipping(self, orders: ShipOrders) -> None:
        """Write the limits on sending checkpoints, all at once."""
        write_plain(self.shipping, msgspec.json.encode(orders), 0o644)

    def told_s(self, now: float) -> float:
        """Return how long ago the job was last told something, s."""
        return now - self.directives.stat().st_mtime

    def job_status(self) -> JobStatus:
        """Return the status that the job reports; an empty one where it is malformed."""
        return self._said_by_job(self.status, _MOST_STATUS_BYTES, JobStatus)

    def refusal(self) -> str:
        """Return for which input the command was not started, or which artifact is not there.

        "": for none.
        """
        return (
            self._said_by_job(self.inputs, _MOST_BYTES, _Inputs).refused
            or self._said_by_job(self.outputs, _MOST_BYTES, _Outputs).refused
        )

    def measured(self) -> list[Measured]:
        """Return what was measured of the artifacts of a job that has succeeded."""
        return self._said_by_job(self.outputs, _MOST_BYTES, _Outputs).outputs

    def _said_by_job(self, path: Path, most_bytes: int, form: type[T]) -> T:
        """Return what the job's user has written; an empty one where it is malformed."""
        try:
            # The job's folder is its user's, and cannot be put in the place of another.
            owner = os.lstat(self.work).st_uid
            return msgspec.json.decode(read_plain(path, most_bytes, owner=owner), type=form)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return form()

    def output(self, start: int | None, most: int) -> output.Output | None:
        """Return at most ``most`` bytes of what the command said; None where all of it is gone."""
        return output.read(self.path, start, most)

    def log_tail(self) -> str:
        """Return the end of the command's output."""
        found = self.output(None, _TAIL_BYTES)
        said = b"" if found is None else found.data
        return said.decode("utf-8", "replace").replace("\x00", "\ufffd")

    def remove(self) -> None:
        """Remove the files of the shim."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _is_locked(self) -> bool:
        try:
            fd = open_plain(self.path / "lock", os.O_RDWR)
        except OSError:
            # There is none, or something that no shim has made: then nobody watches by it.
            return False
        try:
            # Shared: two that look at once do not take each other for a shim.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def _exit(self) -> ShimExit | None:
        try:
            return msgspec.json.decode(
                read_plain(self.path / "exit.json", _MOST_BYTES), type=ShimExit
            )
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
