"""Limits of what a job may take from its machine: the share that its GPUs are of all of them.

Control groups are made where this process may make them, of version 2 or 1. Where it may not, jobs
run without: see docs/how-to/run-jobs-on-machines.md.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Cgroups", "Share", "files_of"]

logger = logging.getLogger(__name__)

_ROOT = Path("/sys/fs/cgroup")
_NAME = "headroom"
#: Of the machine's memory, for all jobs together.
_MEMORY_SHARE = 0.95
_MOST_PIDS = 32_768
_V1 = ("memory", "cpu", "pids")


class Share:
    """What a job may take: ``part`` (0 to 1) of a machine with ``memory_bytes``."""

    def __init__(self, part: float, memory_bytes: int) -> None:
        self.part = part
        self.memory_bytes = int(memory_bytes * _MEMORY_SHARE * part)


def files_of(share: Share, *, unified: bool) -> Mapping[str, Mapping[str, str]]:
    """Return what to write, by controller and file. Pure. CPUs are shared out when they are short.

    ``unified`` is version 2, where the controller is "".
    """
    if unified:
        weight = max(1, min(10_000, round(100 * share.part)))
        limits = {
            "memory.max": str(share.memory_bytes),
            "cpu.weight": str(weight),
            "pids.max": str(_MOST_PIDS),
        }
        return {"": limits}
    return {
        "memory": {"memory.limit_in_bytes": str(share.memory_bytes)},
        "cpu": {"cpu.shares": str(max(2, round(1024 * share.part)))},
        "pids": {"pids.max": str(_MOST_PIDS)},
    }


class Cgroups:
    """The control groups of jobs, under one of our own."""

    def __init__(self, root: Path = _ROOT, *, memory_bytes: int | None = None) -> None:
        self._root = root
        self._memory_bytes = _memory_bytes() if memory_bytes is None else memory_bytes
        self._unified = (root / "cgroup.controllers").exists()
        self._complained = False

    def make(self, name: str, part: float) -> list[str]:
        """Make the groups of one job; return those that it is to join. None where not allowed."""
        made: list[str] = []
        for controller, files in files_of(
            Share(part, self._memory_bytes), unified=self._unified
        ).items():
            try:
                made.append(str(self._made(controller, name, files)))
            except OSError as exc:
                self._complain(controller, exc)
        return made

    def remove(self, name: str) -> None:
        """Remove the groups of a job that is over."""
        for controller in ("",) if self._unified else _V1:
            with contextlib.suppress(OSError):
                (self._root / controller / _NAME / name).rmdir()

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


def _memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemTotal")
