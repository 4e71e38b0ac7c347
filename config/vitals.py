"""Hung processes: those without a sign of life, and those that were stopped by a signal.

A process that died is seen by whoever started it. One that hangs is not: it holds its port, its
lock and its connection, and does nothing. All is by looks that we take ourselves and by the
monotonic clock: neither steps of the clock nor a machine that slept make anybody look hung.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import psutil

__all__ = [
    "STOPPED_S",
    "Silence",
    "group_of",
    "heartbeats",
    "is_alive",
    "stopped",
    "with_descendants",
]

#: A process that is stopped for longer (SIGSTOP, a debugger that was left) is given up, s.
STOPPED_S = 3.0
#: The most that one look adds: while we ourselves did not run, nobody else has to have.
_MOST_PER_LOOK_S = 2.0

K = TypeVar("K", bound=Hashable)


@dataclass
class Silence(Generic[K]):
    """For how long marks have not changed."""

    _marks: dict[K, object] = field(default_factory=dict)
    _silent_s: dict[K, float] = field(default_factory=dict)
    _looked_at: float | None = None

    def look(self, marks: Mapping[K, object], now: float) -> dict[K, float]:
        """Return for how long each mark has stood still, s; ``now`` is of the monotonic clock."""
        since = now - self._looked_at if self._looked_at is not None else 0.0
        passed_s = min(max(since, 0.0), _MOST_PER_LOOK_S)
        self._silent_s = {
            key: self._silent_s[key] + passed_s if self._stood(key, mark) else 0.0
            for key, mark in marks.items()
        }
        self._marks, self._looked_at = dict(marks), now
        return self._silent_s

    def _stood(self, key: K, mark: object) -> bool:
        return key in self._marks and self._marks[key] == mark


def heartbeats(folder: Path) -> dict[int, int]:
    """Return the marks of all processes that beat, by pid. Files of dead ones go."""
    found = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError, ValueError):
            pid = int(path.name)
            if is_alive(pid):
                found[pid] = path.stat().st_mtime_ns
            else:
                path.unlink()
    return found


def is_alive(pid: int) -> bool:
    """Say whether a process lives, and is no zombie."""
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def group_of(pid: int) -> int | None:
    """Return the process group of ``pid``; None: it is gone."""
    with suppress(OSError):
        return os.getpgid(pid)
    return None


def with_descendants(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return each of ``pids`` with all of its descendants."""
    children: dict[int, list[int]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process.pid)
    found = {}
    for pid in pids:
        family = [pid]
        for each in family:
            family += children.get(each, ())
        found[pid] = family
    return found


def stopped(pids: Collection[int]) -> set[int]:
    """Return those of ``pids`` that are stopped now."""
    found = set()
    for pid in pids:
        with suppress(psutil.Error):
            if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                found.add(pid)
    return found
