"""Faults while they act on a command: each begins, ends, and tells whether it touched anything.

What a fault changes on the machine has a lease before it is changed. A fault that touched nothing
of the command proves nothing: its cell was not run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headroom.work.contract import SignalKind
from lab.matrix import processes
from lab.matrix.channel import TOO_LATE, Channel, Line
from lab.matrix.faults.gpu import Gpu, GpuError, Gpus
from lab.matrix.faults.links import Link, Trouble
from lab.matrix.groups import Group
from lab.matrix.leases import Journal, Lease, ResetFile, RestoreGpu, ResumeProcesses
from lab.matrix.scenario import Fault

__all__ = [
    "Act",
    "DirectiveAct",
    "DiskAct",
    "GpuAct",
    "LinkAct",
    "PaceAct",
    "QuotaAct",
    "Several",
    "device_of",
]

#: A lease outlives its fault by this: the fault is to end it, and the guardian only if that fails.
_SLACK_S = 2.0
_PERIOD_S = 0.1
#: How often to look for processes that came since.
_LOOK_PERIODS = 5


class Act(Protocol):
    """A fault on a command."""

    def begin(self) -> None:
        """Start the fault. Raises OSError where the machine refuses: it may then act in part."""
        ...

    def end(self) -> str:
        """Undo the fault. Return why it touched nothing of the command, or ""."""
        ...


class LinkAct:
    """Trouble on links."""

    def __init__(self, links: Sequence[Link], number: int, trouble: Trouble) -> None:
        self._links = links
        self._number = number
        self._trouble = trouble
        self._bytes = 0

    def begin(self) -> None:
        self._bytes = sum(link.bytes for link in self._links)
        for link in self._links:
            link.begin(self._number, self._trouble)

    def end(self) -> str:
        for link in self._links:
            link.end(self._number)
        if sum(link.bytes for link in self._links) > self._bytes:
            return ""
        names = " and ".join(link.name for link in self._links)
        return f"the command sent nothing over {names} while it acted"


@dataclass(frozen=True)
class Setting:
    """A file of the kernel, the value that a fault writes into it, and its normal value."""

    path: Path
    value: str
    normal: str


@contextlib.contextmanager
def _forgotten_if_refused(journal: Journal, lease: Lease) -> Iterator[None]:
    try:
        yield
    except OSError:
        journal.forget(lease)
        raise


class _Settings:
    """Kernel settings that are in force for a time, each with a lease."""

    def __init__(
        self,
        settings: Sequence[tuple[Path, str, str]],
        journal: Journal,
        *,
        said: str,
        for_s: float,
    ) -> None:
        self._settings = [Setting(*each) for each in settings]
        self._journal = journal
        self._said = said
        self._for_s = for_s + _SLACK_S
        self._leases: list[Lease] = []

    def begin(self) -> None:
        for each in self._settings:
            undo = ResetFile(str(each.path), each.normal)
            lease = self._journal.take(undo, self._said, for_s=self._for_s)
            with _forgotten_if_refused(self._journal, lease):
                each.path.write_text(each.value)
            self._leases.append(lease)

    def end(self) -> None:
        for lease in reversed(self._leases):
            self._journal.undo(lease)
        self._leases = []


class QuotaAct:
    """A CPU quota in cores, by control group."""

    def __init__(self, group: Group, cores: float, journal: Journal, *, for_s: float) -> None:
        self._group = group
        limit = group.cpu_limit(cores)
        self._settings = _Settings([limit], journal, said=f"{cores:.2f} cores", for_s=for_s)
        self._throttled = 0

    def begin(self) -> None:
        self._throttled = self._group.throttled()
        self._settings.begin()

    def end(self) -> str:
        touched = self._group.throttled() > self._throttled
        self._settings.end()
        return "" if touched else "the command never wanted more CPU time than it was left"


class PaceAct:
    """A share of CPU time, by stopping the command for the rest of each tenth of a second.

    It takes no permission. What a command does while others of it are stopped differs a little
    from what a quota does.
    """

    def __init__(self, mark: str, share: float, journal: Journal, *, for_s: float) -> None:
        self._mark = mark
        self._share = share
        self._journal = journal
        self._for_s = for_s + _SLACK_S
        self._lease: Lease | None = None
        self._over = threading.Event()
        self._stops = 0
        self._thread = threading.Thread(target=self._pace, name="pace", daemon=True)

    def begin(self) -> None:
        undo = ResumeProcesses(self._mark)
        said = f"{self._share:.0%} of the time"
        self._lease = self._journal.take(undo, said, for_s=self._for_s)
        self._thread.start()

    def end(self) -> str:
        self._over.set()
        self._thread.join()
        if self._lease is not None:
            self._journal.undo(self._lease)
        return "" if self._stops else "no process of the command was there to be stopped"

    def _pace(self) -> None:
        found: list[int] = []
        periods = 0
        while not self._over.is_set():
            if periods % _LOOK_PERIODS == 0:
                found = processes.members(self._mark)
            periods += 1
            self._stops += _tell(found, signal.SIGSTOP)
            self._over.wait(_PERIOD_S * (1 - self._share))
            _tell(found, signal.SIGCONT)
            self._over.wait(_PERIOD_S * self._share)


def _tell(pids: list[int], number: signal.Signals) -> int:
    told = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        told += 1
    return told


class DiskAct:
    """A limit on the disk's bytes a second, reads and writes each, by control group."""

    def __init__(
        self, group: Group, device: str, bytes_per_s: float, journal: Journal, *, for_s: float
    ) -> None:
        self._group = group
        limits = group.disk_limits(device, bytes_per_s)
        said = f"{bytes_per_s:.0f} bytes/s from and to the disk {device}"
        self._settings = _Settings(limits, journal, said=said, for_s=for_s)
        self._bytes = 0

    def begin(self) -> None:
        self._bytes = self._group.disk_bytes()
        self._settings.begin()

    def end(self) -> str:
        moved = self._group.disk_bytes() - self._bytes
        self._settings.end()
        return "" if moved else "the command moved no bytes to or from the disk while it acted"


class GpuAct:
    """A limit on all GPUs of this machine."""

    def __init__(self, fault: Fault, journal: Journal, *, for_s: float) -> None:
        self._fault = fault
        self._journal = journal
        self._for_s = for_s + _SLACK_S
        self._gpus = Gpus()
        self._held: list[tuple[Gpu, Lease, float]] = []

    def begin(self) -> None:
        for gpu in self._gpus.of_kind(self._fault.kind):
            value = gpu.asked(self._fault)
            undo = RestoreGpu(gpu.uuid, gpu.kind, gpu.in_force())
            said = f"{self._fault.kind} {value:g} on {gpu.uuid}"
            lease = self._journal.take(undo, said, for_s=self._for_s)
            with _forgotten_if_refused(self._journal, lease):
                gpu.set(value)
            self._held.append((gpu, lease, value))

    def end(self) -> str:
        wrong = [why for gpu, _, value in self._held if (why := _not_in_force(gpu, value))]
        for _, lease, _ in reversed(self._held):
            self._journal.undo(lease)
        self._gpus.close()
        return "; ".join(wrong)


def _not_in_force(gpu: Gpu, value: float) -> str:
    try:
        found = gpu.in_force()
    except GpuError as error:
        return str(error)
    if found is None or abs(found - value) < 1:
        return ""
    return f"GPU {gpu.uuid} had a limit of {found:g} at the end, not {value:g}"


class DirectiveAct:
    """Something that the command is told to do for a time, and how it is taken back."""

    def __init__(
        self, channel: Channel, told: tuple[SignalKind, float | None], undo: SignalKind
    ) -> None:
        self._channel = channel
        self._told = told
        self._undo = undo
        self._line: Line | None = None

    def begin(self) -> None:
        self._line = self._channel.tell(*self._told)

    def has_lasted(self, seconds: float) -> bool:
        """Say whether the command has done it for so long; or has not in all this time."""
        return self._line is None or self._channel.has_lasted(self._line, seconds)

    def end(self) -> str:
        is_late = self._line is not None and self._channel.is_late(self._line)
        self._channel.tell(self._undo, 1.0 if self._undo is SignalKind.SET_BATCH_SCALE else None)
        # Of one that was told in time it is a measure whether the command did it.
        return TOO_LATE if is_late else ""


class Several:
    """Acts that are one fault. It is enough that one touches the command."""

    def __init__(self, acts: Sequence[Act]) -> None:
        self._acts = acts

    def begin(self) -> None:
        for act in self._acts:
            act.begin()

    def end(self) -> str:
        said = [act.end() for act in self._acts]
        return "" if "" in said else "; ".join(said) or "there was nothing to do"


def device_of(folder: Path) -> str | None:
    """Return the disk under a folder, as control groups name it; None: it is on no disk."""
    number = folder.stat().st_dev
    entry = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not entry.exists():
        return None
    entry = entry.resolve()
    # Limits are those of whole disks.
    disk = entry.parent if (entry / "partition").exists() else entry
    return (disk / "dev").read_text().strip()
