"""Leases on changes to this machine: on disk before the change is made, with how it is undone.

Each lease is a file in the folder of its run, written before the act and removed after its undoing,
so whoever comes after a crash finds all that may be in force: the guardian of the run
(:mod:`lab.matrix.guardian`), the next run, or ``headroom matrix undo``. To undo twice does no
harm. The folder's lock is held by the run for as long as it lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from headroom.errors import HeadroomError
from lab.matrix import processes

__all__ = [
    "EndProcesses",
    "Journal",
    "Lease",
    "LeaseError",
    "RemoveGroups",
    "ResetFile",
    "RestoreGpu",
    "ResumeProcesses",
    "Undo",
    "abandoned",
    "journals_folder",
    "undo_all",
]

_LOCK = "lock"
_DRAFT = ".new-"
_SUFFIX = ".lease"
#: How long what we started may take to end by itself, s.
_GRACE_S = 5.0
_RETRY_S = 0.02


class LeaseError(HeadroomError):
    """A lease could not be undone."""


class EndProcesses(Struct, frozen=True, tag="end-processes"):
    """End the processes with the mark in their environment; stopped ones are resumed first."""

    mark: str

    def carry_out(self) -> None:
        processes.end(self.mark, grace_s=_GRACE_S)


class ResumeProcesses(Struct, frozen=True, tag="resume-processes"):
    """Resume the processes with the mark in their environment."""

    mark: str

    def carry_out(self) -> None:
        processes.resume(self.mark)


class ResetFile(Struct, frozen=True, tag="reset-file"):
    """Write the previous value back into a file of the kernel."""

    path: str
    value: str

    def carry_out(self) -> None:
        # Its group may be gone, and its limit with it.
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(self.path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(handle, self.value.encode())
            finally:
                os.close(handle)


class RemoveGroups(Struct, frozen=True, tag="remove-groups"):
    """Remove control groups. Processes left in them move to the group above."""

    paths: tuple[str, ...]

    def carry_out(self) -> None:
        for path in map(Path, self.paths):
            with contextlib.suppress(FileNotFoundError):
                _remove_group(path)


class RestoreGpu(Struct, frozen=True, tag="restore-gpu"):
    """Give a GPU its previous limit back; None: the driver's default."""

    uuid: str
    kind: str
    original: float | None

    def carry_out(self) -> None:
        # Only machines with GPUs need the library.
        from lab.matrix.faults.gpu import restore

        restore(self.uuid, self.kind, self.original)


Undo = EndProcesses | ResumeProcesses | ResetFile | RemoveGroups | RestoreGpu


class Lease(Struct, frozen=True, kw_only=True):
    """A lease on one change: ``said`` for people; at ``until`` (Unix s) the change is undone."""

    number: int
    said: str
    until: float
    undo: Undo


def _remove_group(group: Path) -> None:
    deadline = time.monotonic() + _GRACE_S
    while True:
        _empty(group)
        try:
            group.rmdir()
        except OSError as error:
            # What has just ended holds on to it for a moment.
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _empty(group: Path) -> None:
    for pid in (group / "cgroup.procs").read_text().split():
        # It may have ended by itself.
        with contextlib.suppress(ProcessLookupError):
            (group.parent / "cgroup.procs").write_text(pid)


def journals_folder() -> Path:
    """Return where runs keep their leases: the same for every run of this user."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "headroom" / "matrix"


class Journal:
    """The leases of one run."""

    def __init__(self, folder: Path) -> None:
        """Open a run's folder. :meth:`create` makes one."""
        self.folder = folder
        self._lock: int | None = None
        self._number = max((each.number for each in self.leases()), default=0)

    @classmethod
    def create(cls, parent: Path | None = None) -> Journal:
        """Make the folder of a new run and hold its lock until :meth:`close`, or our death."""
        parent = parent or journals_folder()
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
        # Under its own name it is never seen without its lock, as an abandoned one.
        draft = parent / f"{_DRAFT}{name}"
        draft.mkdir(parents=True, mode=0o700)
        lock = os.open(draft / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        journal = cls(draft.rename(parent / name))
        journal._lock = lock
        return journal

    @property
    def name(self) -> str:
        return self.folder.name

    def leases(self) -> list[Lease]:
        """Return the leases that may be in force, the newest first: the order of undoing."""
        found = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            # Undone by somebody else since it was listed.
            with contextlib.suppress(FileNotFoundError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Lease))
        return sorted(found, key=lambda lease: -lease.number)

    def take(self, undo: Undo, said: str, *, for_s: float) -> Lease:
        """Record a lease before its change. It is on disk when this returns: now make it."""
        self._number += 1
        lease = Lease(number=self._number, said=said, until=time.time() + for_s, undo=undo)
        path = self._path(lease)
        draft = path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(lease))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync_folder(self.folder)
        return lease

    def forget(self, lease: Lease) -> None:
        """Take a lease back whose act the machine has refused: there is nothing to undo."""
        self._path(lease).unlink(missing_ok=True)

    def undo(self, lease: Lease) -> None:
        """Undo one lease. Raises :class:`LeaseError`; it then stays in the journal."""
        try:
            lease.undo.carry_out()
        except OSError as error:
            raise LeaseError(f"{lease.said}: it could not be undone: {error}") from error
        self.forget(lease)

    def undo_all(self) -> Iterator[Lease]:
        """Undo all leases, and yield each that is undone. Raises :class:`LeaseError` at its end."""
        errors = []
        for lease in self.leases():
            try:
                self.undo(lease)
            except LeaseError as error:
                errors.append(str(error))
            else:
                yield lease
        if errors:
            raise LeaseError("\n".join(errors))

    def is_owned(self) -> bool:
        """Say whether the run that made it lives."""
        try:
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def close(self) -> None:
        """Let the lock go, and remove the folder where nothing is left in force."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if not self.leases():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, lease: Lease) -> Path:
        return self.folder / f"{lease.number:06d}{_SUFFIX}"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def abandoned(parent: Path | None = None) -> list[Journal]:
    """Return the journals whose runs are dead."""
    parent = parent or journals_folder()
    folders = sorted(parent.iterdir()) if parent.is_dir() else []
    journals = [Journal(each) for each in folders if not each.name.startswith(_DRAFT)]
    return [each for each in journals if not each.is_owned()]


def undo_all(journals: list[Journal]) -> list[Lease]:
    """Undo the leases of dead runs, and remove their journals. Raises :class:`LeaseError`."""
    undone: list[Lease] = []
    for journal in journals:
        undone.extend(journal.undo_all())
        journal.close()
    return undone
