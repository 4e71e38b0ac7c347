"""The operations on files of this machine that must outlive a power cut, one by one.

All that a :class:`~headroom.places.Directory` writes goes through here, so that a test can end the
world at each of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

__all__ = ["Disk", "Found"]


class Found(NamedTuple):
    """A file that was found: its path from where was looked, its time and its size in bytes."""

    path: str
    at: datetime
    size: int


class Disk:
    """Operations on files. Each is one that a machine may die before, amid or after."""

    def create(self, path: Path, mode: int = 0o600) -> int:
        """Make a file that was not there, and return its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of ``data``."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """Make durable what was written to the descriptor."""
        os.fsync(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file or a folder another name. A file that has it already is replaced."""
        path.replace(target)

    def sync_folder(self, path: Path) -> None:
        """Make durable which names are in a folder."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        """Make a folder, if it is not there."""
        path.mkdir(mode=mode, exist_ok=True)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def put(self, path: Path, data: bytes, unfinished: Path, mode: int = 0o600) -> None:
        """Write a file that appears whole or not at all, durably, by way of ``unfinished``."""
        descriptor = self.create(unfinished, mode)
        try:
            self.write(descriptor, data)
            self.sync(descriptor)
        finally:
            os.close(descriptor)
        self.rename(unfinished, path)
        self.sync_folder(path.parent)

    def make_folders(self, path: Path, top: Path) -> None:
        """Make a folder and all above it, durably. ``top`` and below are this user's alone."""
        if path.is_dir():
            return
        missing = [path, *(each for each in path.parents if not each.is_dir())]
        for each in reversed(missing):
            is_top = each == top or top in each.parents
            self.make_folder(each, 0o700 if is_top else 0o777)
            self.sync_folder(each.parent)

    def boot_id(self) -> str:
        """Return what names this life of the machine; "" where nobody says."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""

    def files(self, root: Path, under: str = "") -> Iterator[Found]:
        """Yield the files in ``under``, a folder of ``root``, and below it, by name."""
        try:
            entries = sorted(os.scandir(root / under), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            path = f"{under}/{entry.name}" if under else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self.files(root, path)
                continue
            # What somebody removes meanwhile was not found.
            with suppress(FileNotFoundError):
                said = entry.stat()
                yield Found(path, datetime.fromtimestamp(said.st_mtime, UTC), said.st_size)
