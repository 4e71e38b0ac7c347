"""Control groups that hold a command back: its CPU time, and its disk where that is slowed.

Version 2 is used where it has the controllers, else version 1. Groups are made at the top, as root
may, or beside this process, as a user may to whom a part of the tree was handed down.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["Group", "GroupError", "groups_of", "make"]

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
#: Short, so that a command is held back evenly and not for most of a training step.
_PERIOD_US = 20_000
_LEAST_QUOTA_US = 1_000
#: Of version 1, by controller.
_V1 = ("cpu", "blkio")


class GroupError(Exception):
    """A control group could not be made, for the reason given."""


@dataclass(frozen=True)
class Group:
    """One command's group: the folder of each controller. With version 2 it is one folder."""

    cpu: Path
    disk: Path | None
    is_unified: bool

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(each) for each in (self.cpu, self.disk) if each))

    @property
    def joined_by(self) -> list[str]:
        """The files that a process writes its pid to."""
        return [f"{path}/cgroup.procs" for path in self.paths]

    def cpu_limit(self, cores: float) -> tuple[Path, str, str]:
        """Return the file of the quota, its value for so many cores, and its value for no limit."""
        quota_us = max(_LEAST_QUOTA_US, round(cores * _PERIOD_US))
        if self.is_unified:
            return self.cpu / "cpu.max", f"{quota_us} {_PERIOD_US}", f"max {_PERIOD_US}"
        return self.cpu / "cpu.cfs_quota_us", str(quota_us), "-1"

    def throttled(self) -> int:
        """Return in how many periods the quota has held the command back."""
        return int(_facts(self.cpu / "cpu.stat").get("nr_throttled", "0"))

    def disk_limits(self, device: str, bytes_per_s: float) -> list[tuple[Path, str, str]]:
        """Return files, each with its value for so many bytes a second, and for no limit."""
        disk = self._its_disk()
        rate = max(1, round(bytes_per_s))
        if self.is_unified:
            both = f"{device} rbps={rate} wbps={rate}"
            return [(disk / "io.max", both, f"{device} rbps=max wbps=max")]
        files = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
        return [(disk / name, f"{device} {rate}", f"{device} 0") for name in files]

    def disk_bytes(self) -> int:
        """Return how many bytes of reads and writes the kernel has counted for the command."""
        disk = self._its_disk()
        if self.is_unified:
            words = (disk / "io.stat").read_text().split()
            return sum(int(w[7:]) for w in words if w.startswith(("rbytes=", "wbytes=")))
        text = (disk / "blkio.throttle.io_service_bytes").read_text()
        return sum(int(line.split()[2]) for line in text.splitlines() if _is_transfer(line))

    def _its_disk(self) -> Path:
        if self.disk is None:
            raise GroupError("this user may not slow the disk down by a control group")
        return self.disk


def _is_transfer(line: str) -> bool:
    return len(line.split()) == 3 and line.split()[1] in ("Read", "Write")


def _facts(path: Path) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in path.read_text().splitlines())


def make(name: str, root: Path = _ROOT, own: Path = _OWN) -> Group:
    """Make the groups of a command. Raises :class:`GroupError` where the CPU cannot be limited.

    Nothing is limited yet. Take the lease on :func:`groups_of` before.
    """
    group = groups_of(name, root, own)
    for path in map(Path, group.paths):
        with contextlib.suppress(OSError):
            path.mkdir(exist_ok=True)
    if not _is_writable(group.cpu_limit(1.0)[0]):
        raise GroupError(f"{group.cpu}: this user may not limit CPU time there")
    if not group.is_unified:
        (group.cpu / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    has_disk = group.disk is not None and _is_writable(group.disk_limits("", 1)[0][0])
    return group if has_disk else replace(group, disk=None)


def groups_of(name: str, root: Path = _ROOT, own: Path = _OWN) -> Group:
    """Return where the groups of a command would be. Raises :class:`GroupError` if nowhere."""
    at = _places(own)
    if (root / "cgroup.controllers").exists():
        folder = _beside(root, at.get("", "/"), name)
        return Group(folder, folder, is_unified=True)
    found = {each: root / each for each in _V1 if (root / each / "cgroup.procs").exists()}
    if "cpu" not in found:
        raise GroupError(f"no controller for CPU time under {root}")
    cpu = _beside(found["cpu"], at.get("cpu", "/"), name)
    disk = _beside(found["blkio"], at.get("blkio", "/"), name) if "blkio" in found else None
    return Group(cpu, disk, is_unified=False)


def _places(own: Path) -> dict[str, str]:
    """Return the group of this process by controller; "" is version 2."""
    places = {}
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        places.update(dict.fromkeys(controllers.split(","), path))
    return places


def _beside(root: Path, place: str, name: str) -> Path:
    """Return the folder of a new group: at the top where that may be written, else next to ours."""
    if os.access(root, os.W_OK):
        return root / name
    own = root / place.lstrip("/")
    # With version 2 a group with processes in it cannot hand controllers down, so not under ours.
    return own.parent / name if own != root else root / name


def _is_writable(path: Path) -> bool:
    return path.exists() and os.access(path, os.W_OK)
