"""The folder of one attempt: what its shepherd and its job leave there. See ``shepherd``."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from headroom.contracts import Timestamp

__all__ = ["Directives", "Folder", "JobStatus", "Marks", "ShepherdExit"]

_TAIL_BYTES = 4096
_MOST_STATUS_BYTES = 65_536


class ShepherdExit(Struct):
    """How the command ended: ``exit.json``."""

    exit_code: int
    stopped: bool
    timed_out: bool
    ended_at: float


class Directives(Struct):
    """What a job is told, in the file that ``HEADROOM_DIRECTIVES`` names: all that holds now.

    ``seq`` is that of the last directive, ``checkpoint`` that of the last that asked for one.
    """

    seq: int = 0
    checkpoint: int = 0
    batch_scale: float | None = None
    power_cap_w: float | None = None


class JobStatus(Struct):
    """What a job says of itself, in the file that ``HEADROOM_STATUS`` names.

    ``checkpoint_at`` is when its last checkpoint was whole, Unix s. ``done`` is the seq of the
    last directive that it has carried out.
    """

    checkpoint_at: Timestamp | None = None
    done: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


@dataclass(frozen=True)
class Marks:
    """What can be seen of an attempt. ``started_at``: when the command was about to be started."""

    is_watched: bool
    started_at: float | None
    is_paused: bool
    exit: ShepherdExit | None


class Folder:
    """The files of one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def work(self) -> Path:
        """Where the job begins."""
        return self.path / "work"

    @property
    def directives(self) -> Path:
        """What the job is told."""
        return self.path / "directives.json"

    @property
    def status(self) -> Path:
        """What the job tells."""
        return self.work / ".headroom-status.json"

    def marks(self) -> Marks:
        """Look, in the one order that cannot mislead.

        A shepherd has the lock before it makes the mark, and until it has written down the end. So
        where the mark is there first and the lock is free then, all that will be written is there.
        """
        started_at = self._started_at()
        is_watched = self._is_locked()
        return Marks(
            is_watched=is_watched,
            started_at=started_at,
            is_paused=(self.path / "paused").exists(),
            exit=self._exit(),
        )

    def _started_at(self) -> float | None:
        try:
            return (self.path / "started").stat().st_mtime
        except FileNotFoundError:
            return None

    def tell(self, order: str) -> bool:
        """Give the shepherd an order; return whether there is one to take it."""
        try:
            fd = os.open(self.path / "control", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as exc:
            if exc.errno in (errno.ENXIO, errno.ENOENT):
                return False
            raise
        with os.fdopen(fd, "wb", buffering=0) as control:
            control.write(f"{order}\n".encode())
        return True

    def read_directives(self) -> Directives:
        """Return what the job was told last."""
        try:
            return msgspec.json.decode(self.directives.read_bytes(), type=Directives)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return Directives()

    def write_directives(self, directives: Directives) -> None:
        """Put down what the job is told, all at once."""
        made = self.directives.with_suffix(".new")
        made.write_bytes(msgspec.json.encode(directives))
        made.replace(self.directives)

    def job_status(self) -> JobStatus:
        """Return what the job says of itself; nothing where that is not in form."""
        try:
            with self.status.open("rb") as file:
                return msgspec.json.decode(file.read(_MOST_STATUS_BYTES), type=JobStatus)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return JobStatus()

    def log_tail(self) -> str:
        """Return the end of what the command said."""
        said = b""
        for name in ("log", "log.1"):
            with contextlib.suppress(OSError), (self.path / name).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL_BYTES + len(said)))
                said = file.read() + said
            if len(said) >= _TAIL_BYTES:
                break
        return said[-_TAIL_BYTES:].decode("utf-8", "replace").replace("\x00", "\ufffd")

    def clear(self) -> None:
        """Remove what the job has left; its log stays."""
        shutil.rmtree(self.work, ignore_errors=True)

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _is_locked(self) -> bool:
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared: two that look at once do not take each other for a shepherd.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def _exit(self) -> ShepherdExit | None:
        try:
            return msgspec.json.decode((self.path / "exit.json").read_bytes(), type=ShepherdExit)
        except FileNotFoundError:
            return None
