"""Folders, stores with small chunks, a clock that is set, and a disk on which the machine dies."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headroom.checkpoints import About, Clock, Store
from headroom.checkpoints.chunks import Sizes
from headroom.disk import Disk
from headroom.places import Directory

RUN = "nanogpt"
SMALL = Sizes(least=512, usual=2048, most=8192)


def make_folder(folder: Path, files: dict[str, bytes]) -> Path:
    """Write a folder with the files by path."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def make_store(folder: Path, disk: Disk | None = None) -> Store:
    """Return a store in a folder whose chunks are small."""
    return Store(Directory(folder, disk or QuickDisk()), SMALL)


def about(step: int = 1, **said: object) -> About:
    """Return what a loop says at ``step``."""
    return About(run=RUN, step=step, **said)  # type: ignore[arg-type]


class SetClock(Clock):
    """A clock that stands still but while somebody sleeps."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def sleep(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)


class QuickDisk(Disk):
    """A disk that makes nothing durable: no test has to wait for that."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


class Died(BaseException):
    """The machine is off."""


class DyingDisk(QuickDisk):
    """A disk whose machine dies at the operation of one's choice, and forgets what was not synced.

    At death each file that was written and not synced has any of its bytes, and each name that was
    given or taken away in a folder that was not synced is as it was, or not: as chance has it.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._lock = threading.Lock()
        self._left: int | None = None
        self._open: dict[int, Path] = {}
        self._unsynced: set[Path] = set()
        self._renamed: list[tuple[Path, Path]] = []
        self._removed: dict[Path, bytes] = {}
        self._boots = 0
        self.operations = 0
        self.is_dead = False

    def boot_id(self) -> str:
        return str(self._boots)

    def die_after(self, operations: int | None) -> None:
        """Start the machine, to die after so many operations, or never."""
        self._left, self.is_dead, self.operations = operations, False, 0

    def create(self, path: Path, mode: int = 0o600) -> int:
        self._step()
        descriptor = super().create(path, mode)
        self._open[descriptor] = path
        self._unsynced.add(path)
        return descriptor

    def write(self, descriptor: int, data: bytes) -> None:
        try:
            self._step()
        except Died:
            super().write(descriptor, data[: self._chance.randint(0, len(data))])
            raise
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._step()
        self._unsynced.discard(self._open[descriptor])

    def rename(self, path: Path, target: Path) -> None:
        self._step()
        is_new = not target.exists()
        super().rename(path, target)
        if is_new:
            self._renamed.append((path, target))
        if path in self._unsynced:
            self._unsynced.discard(path)
            self._unsynced.add(target)

    def sync_folder(self, path: Path) -> None:
        self._step()
        self._renamed = [each for each in self._renamed if each[1].parent != path]
        self._removed = {each: data for each, data in self._removed.items() if each.parent != path}

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        self._step()
        super().make_folder(path, mode)

    def remove(self, path: Path) -> None:
        self._step()
        if path.exists():
            self._removed[path] = path.read_bytes()
            self._unsynced.discard(path)
        super().remove(path)

    def _step(self) -> None:
        with self._lock:
            if self.is_dead:
                raise Died
            self.operations += 1
            if self._left is not None and self.operations > self._left:
                self.is_dead = True
                self._boots += 1
                self._forget()
                raise Died

    def _forget(self) -> None:
        for path in self._unsynced:
            if path.exists():
                data = path.read_bytes()
                path.write_bytes(data[: self._chance.randint(0, len(data))])
        for path, target in reversed(self._renamed):
            if target.exists() and path.parent.exists() and self._chance.random() < 0.5:
                target.rename(path)
        for path, data in self._removed.items():
            if path.parent.exists() and not path.exists() and self._chance.random() < 0.5:
                path.write_bytes(data)
        self._unsynced, self._renamed, self._removed = set(), [], {}
