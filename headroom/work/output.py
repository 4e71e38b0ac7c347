"""Reads what a command has said, by its place in all of it, from the two files that its shim keeps.

The shim moves ``log`` to ``log.1`` when it is full, and notes in ``log.start`` how much was said
before one of them: see ``shim``. A read may fall between these steps; the note names the file that
it is about, so that one read sees what belongs together. Nothing is ever read whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headroom.work.reading import open_plain, read_plain

__all__ = ["Output", "read"]

#: A read that the shim overtakes is begun anew, this often: a file is moved on once in megabytes.
_TRIES = 100
_MOST_NOTE_BYTES = 100


@dataclass(frozen=True)
class Output:
    """What was said from ``start`` on, bytes. ``first`` to ``size`` is what is still there."""

    first: int
    size: int
    start: int
    data: bytes


@dataclass(frozen=True)
class _File:
    fd: int
    inode: int
    size: int


def read(folder: Path, start: int | None, most: int) -> Output | None:
    """Return what was said from ``start`` on, at most ``most`` bytes; None where nothing is there.

    ``start``: None for the last ``most`` bytes. What is gone already is left out. Where the shim
    overtakes each try, None too: no place is better than a wrong one.
    """
    for _ in range(_TRIES):
        note = _note(folder)
        with _opened(folder) as files:
            # A file that was moved on meanwhile may have the inode of the one that the note means.
            if files is not None and _note(folder) == note:
                return _cut(files, _first(files, note), start, most) if files else None
    return None


def _note(folder: Path) -> tuple[int, int] | None:
    try:
        inode, before = read_plain(folder / "log.start", _MOST_NOTE_BYTES).split()
        return int(inode), max(int(before), 0)
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[Sequence[_File] | None]:
    """Open the files there are, the older first. None: one became the other meanwhile."""
    with ExitStack() as stack:
        newer, older = _open(folder / "log", stack), _open(folder / "log.1", stack)
        found = [each for each in (older, newer) if each is not None]
        is_old = newer is not None and _inode(folder / "log") != newer.inode
        yield None if is_old or (older and newer and older.inode == newer.inode) else found


def _open(path: Path, stack: ExitStack) -> _File | None:
    try:
        fd = open_plain(path)
    except OSError:
        return None
    stack.callback(os.close, fd)
    found = os.fstat(fd)
    return _File(fd, found.st_ino, found.st_size)


def _inode(path: Path) -> int | None:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None


def _first(files: Sequence[_File], note: tuple[int, int] | None) -> int:
    """Return the place of the first byte that is there."""
    if note is None:
        return 0
    inode, before = note
    for each in files:
        if each.inode == inode:
            return max(before, 0)
        before -= each.size
    # The note is about files that are gone, since the disk was full: count from what is there.
    return 0


def _cut(files: Sequence[_File], first: int, start: int | None, most: int) -> Output:
    size = first + sum(each.size for each in files)
    begin = size - most if start is None else start
    begin = min(max(begin, first), size)
    data, left, at = b"", min(most, size - begin), first
    for each in files:
        if left > len(data) and begin + len(data) < at + each.size:
            data += os.pread(each.fd, left - len(data), begin + len(data) - at)
        at += each.size
    return Output(first=first, size=size, start=begin, data=data)
