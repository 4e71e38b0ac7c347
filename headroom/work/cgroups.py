"""Limits of a job on its machine: the share that its GPUs are of all of them.

Control groups are made where this process may make them, of version 2 or 1. Where it may not, jobs
run without: see docs/how-to/run-jobs-on-machines.md. They also stop and end all of a job at once.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Cgroups", "Share", "files_of", "most_pids"]

logger = logging.getLogger(__name__)

_ROOT = Path("/sys/fs/cgroup")
_NAME = "headroom"
#: Of the machine's memory, for all jobs together.
_MEMORY_SHARE = 0.95
#: Of the machine's process ids, for one job; and never more than these.
_PIDS_SHARE, _MOST_PIDS = 0.25, 32_768

#: Where version 2 is mounted beside version 1. It has no controllers there, and freezes and kills.
_HYBRID = "unified"
#: How long to wait for a group to be empty, s. Later it is tried again.
_EMPTY_S, _STEP_S = 0.2, 0.01


class Share:
    """The share of a job: ``part`` (0 to 1) of a machine with ``memory_bytes``."""

    def __init__(self, part: float, memory_bytes: int, pids: int = _MOST_PIDS) -> None:
        self.part = part
        self.memory_bytes = int(memory_bytes * _MEMORY_SHARE * part)
        self.pids = pids


def files_of(share: Share, *, unified: bool) -> Mapping[str, Mapping[str, str]]:
    """Return the values to write, by controller and file. Pure. CPU weights count under contention.

    ``unified`` is version 2, where the controller is "".
    """
    if unified:
        weight = max(1, min(10_000, round(100 * share.part)))
        limits = {
            "memory.max": str(share.memory_bytes),
            "cpu.weight": str(weight),
            "pids.max": str(share.pids),
        }
        return {"": limits}
    return {
        "memory": {"memory.limit_in_bytes": str(share.memory_bytes)},
        "cpu": {"cpu.shares": str(max(2, round(1024 * share.part)))},
        "pids": {"pids.max": str(share.pids)},
    }


class Cgroups:
    """The control groups of jobs, under one of our own.

    ``memory_bytes`` is what the machine has, ``most_bytes`` and ``pids`` what one job may have.
    """

    def __init__(
        self,
        root: Path = _ROOT,
        *,
        memory_bytes: int | None = None,
        most_bytes: int | None = None,
        pids: int | None = None,
    ) -> None:
        self._root = root
        self.memory_bytes = _memory_bytes() if memory_bytes is None else memory_bytes
        self._most_bytes = most_bytes
        self.pids = pids or most_pids()
        self._unified = (root / "cgroup.controllers").exists()
        self._complained = False
        #: those that could not be removed yet
        self._left: set[str] = set()

    def make(self, name: str, part: float) -> list[str]:
        """Make the groups of one job; return those that it is to join. None where not allowed."""
        made: list[str] = []
        share = Share(part, self.memory_bytes, self.pids)
        if self._most_bytes is not None:
            share.memory_bytes = min(share.memory_bytes, self._most_bytes)
        wanted = dict(files_of(share, unified=self._unified))
        if not self._unified:
            more = ("freezer", _HYBRID)
            wanted |= {each: {} for each in more if (self._root / each).is_dir()}
        for controller, files in wanted.items():
            try:
                made.append(str(self._made(controller, name, files)))
            except OSError as exc:
                self._complain(controller, exc)
        return made

    def remove(self, groups: Sequence[str]) -> None:
        """Remove the groups of a job that is over, and those that were not empty before."""
        self._left |= set(groups)
        end = time.monotonic() + _EMPTY_S
        while self._left and time.monotonic() < end:
            self._left = {group for group in self._left if not _is_removed(Path(group))}
            if self._left:
                time.sleep(_STEP_S)

    def _made(self, controller: str, name: str, files: Mapping[str, str]) -> Path:
        parent = self._root / controller / _NAME
        parent.mkdir(exist_ok=True)
        if self._unified:
            (parent / "cgroup.subtree_control").write_text("+memory +cpu +pids")
        group = parent / name
        group.mkdir(exist_ok=True)
        for file, value in files.items():
            (group / file).write_text(value)
        return group

    def _complain(self, controller: str, exc: OSError) -> None:
        if not self._complained:
            logger.warning(
                "jobs run without limits of memory, CPU and processes",
                extra={"controller": controller or "all", "cause": exc},
            )
        self._complained = True


def most_pids() -> int:
    """Return how many processes and threads one job may have, so that others still find some."""
    with contextlib.suppress(OSError):
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
        return min(_MOST_PIDS, int(most * _PIDS_SHARE))
    return _MOST_PIDS


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemTotal")
