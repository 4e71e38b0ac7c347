"""From a fault of a scenario to its act on a command, or the reason why there is none."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field

from headroom.work.contract import SignalKind
from lab.matrix.faults.acts import (
    Act,
    DirectiveAct,
    DiskAct,
    GpuAct,
    LinkAct,
    PaceAct,
    QuotaAct,
    Several,
    device_of,
)
from lab.matrix.faults.links import STORAGE, SYNC, Link, Trouble
from lab.matrix.machine import Machine
from lab.matrix.scenario import Fault, FaultKind, Level
from lab.matrix.surroundings import Surroundings

__all__ = [
    "ENDS",
    "Normal",
    "byte_rate",
    "left_of",
    "links_of",
    "make_act",
    "needs_checkpoint",
    "needs_room",
    "trouble_of",
    "why_not",
]

#: These end the command and start it again: whoever runs it does that.
ENDS = (FaultKind.KILL, FaultKind.NODE_LOSS, FaultKind.MOVE)
_DIRECTIVES = (FaultKind.SHRINK_BATCH, FaultKind.PAUSE, FaultKind.MOVE)
_DEAF = "the command hears no directives: it trains without headroom.training"
_LINKS = (
    FaultKind.LINK_BANDWIDTH,
    FaultKind.LINK_LATENCY,
    FaultKind.LINK_LOSS,
    FaultKind.LINK_JITTER,
    FaultKind.SITE_ISOLATED,
)
#: Storage that is slowed down to a share of what was never measured: nobody can say how slow.
_UNMEASURED = "how fast it is without was not measured: give bytes_per_s"


@dataclass(frozen=True)
class Normal:
    """What the command is like without faults: its use of CPU, links and disk. None: unknown.

    Rates are of the times when link and disk were used; what was moved is that of the whole run.
    """

    cores: float | None = None
    bits_per_s: dict[str, float] = field(default_factory=dict)
    bytes_moved: dict[str, int] = field(default_factory=dict)
    disk_bytes_per_s: float | None = None
    disk_bytes_moved: int = 0
    #: it reads what it is told
    hears: bool = False
    #: it writes checkpoints, and says beside them what they are to be
    saves: bool = False
    signs: bool = False
    is_known: bool = False


def needs_checkpoint(fault: Fault) -> bool:
    """Say whether a fault waits for the first checkpoint: before, nothing can be resumed."""
    return fault.kind in (FaultKind.KILL, FaultKind.NODE_LOSS) and fault.resumes


def links_of(fault: Fault, names: Sequence[str]) -> list[str]:
    """Return the links that a fault is on, of those that the command has."""
    if fault.kind == FaultKind.SITE_ISOLATED:
        # What runs in the site goes on talking to itself.
        return [name for name in names if name != SYNC]
    if fault.level == Level.STORAGE:
        return [STORAGE]
    if not fault.target.names:
        return [SYNC]
    return [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in fault.target.names)]


def needs_room(faults: Sequence[Fault], names: Sequence[str]) -> bool:
    """Say whether any of the faults is on the traffic between the command's processes."""
    return any(each.kind in _LINKS and SYNC in links_of(each, names) for each in faults)


def why_not(fault: Fault, machine: Machine, names: Sequence[str], normal: Normal) -> str:
    """Return why a fault cannot act on the command here, or ""."""
    if fault.kind in _DIRECTIVES:
        return _DEAF if normal.is_known and not normal.hears else ""
    if fault.kind in ENDS:
        return ""
    if fault.kind in _LINKS:
        return _why_not_on_links(fault, machine, names, normal)
    if fault.kind == FaultKind.CPU_QUOTA:
        return ""  # stopping and resuming takes no permission
    if fault.kind == FaultKind.POWER_LIMIT:
        return machine.why_no_power
    if fault.kind == FaultKind.CLOCK_LIMIT:
        return machine.why_no_clocks
    if fault.kind == FaultKind.STORAGE_SLOW:
        return _why_no_slow_storage(fault, machine, normal)
    return f"{fault.kind} cannot be done to a command, only to a twin"


def _why_not_on_links(fault: Fault, machine: Machine, names: Sequence[str], normal: Normal) -> str:
    on = links_of(fault, names)
    if not on:
        return f"the command has no link {' or '.join(fault.target.names)}: {', '.join(names)}"
    if SYNC in on and machine.why_no_room:
        return machine.why_no_room
    if normal.is_known and not any(name in normal.bits_per_s for name in on):
        return f"without faults the command sends nothing over {' and '.join(on)}"
    return ""


def _why_no_slow_storage(fault: Fault, machine: Machine, normal: Normal) -> str:
    if normal.is_known and STORAGE in normal.bits_per_s:
        return ""
    if machine.why_no_disk:
        return f"the command does not use HEADROOM_STORAGE_URL, and {machine.why_no_disk}"
    if normal.is_known and normal.disk_bytes_per_s is None:
        return (
            "without faults the command neither uses HEADROOM_STORAGE_URL nor moves bytes to or "
            "from the disk itself: does it fsync its checkpoints?"
        )
    return "" if normal.is_known or fault.bytes_per_s else _UNMEASURED


def make_act(
    fault: Fault, number: int, around: Surroundings, normal: Normal, *, for_s: float
) -> Act:
    """Return the act of a fault on the command, once :func:`why_not` found nothing against it."""
    if fault.kind in _LINKS:
        links = [around.links[name] for name in links_of(fault, list(around.links))]
        return Several([_link_act(fault, number, each, normal) for each in links])
    if fault.kind == FaultKind.STORAGE_SLOW:
        return Several(_storage_acts(fault, number, around, normal, for_s))
    if fault.kind == FaultKind.CPU_QUOTA:
        return _cpu_act(fault, around, normal, for_s)
    if fault.kind == FaultKind.SHRINK_BATCH:
        told = (SignalKind.SET_BATCH_SCALE, fault.share)
        return DirectiveAct(around.channel, told, SignalKind.SET_BATCH_SCALE)
    if fault.kind == FaultKind.PAUSE:
        return DirectiveAct(around.channel, (SignalKind.PAUSE, None), SignalKind.RESUME)
    return GpuAct(fault, around.journal, for_s=for_s)


def _link_act(fault: Fault, number: int, link: Link, normal: Normal) -> Act:
    return LinkAct([link], number, trouble_of(fault, normal.bits_per_s.get(link.name)))


def trouble_of(fault: Fault, normal_bits_per_s: float | None) -> Trouble:
    """Return the trouble that a fault makes on a link which carries so much without it, bit/s."""
    bits_per_s = fault.bits_per_s
    if fault.kind == FaultKind.LINK_BANDWIDTH and fault.share is not None and normal_bits_per_s:
        bits_per_s = max(1.0, fault.share * normal_bits_per_s)
    return Trouble(
        latency_s=fault.latency_s or 0.0,
        jitter_s=fault.jitter_s or 0.0,
        loss_share=fault.loss_share or 0.0,
        bits_per_s=bits_per_s,
        is_cut=fault.kind == FaultKind.SITE_ISOLATED,
    )


def _storage_acts(
    fault: Fault, number: int, around: Surroundings, normal: Normal, for_s: float
) -> list[Act]:
    acts: list[Act] = []
    bytes_per_s = left_of(fault, byte_rate(normal.bits_per_s.get(STORAGE)))
    if bytes_per_s is not None:
        trouble = Trouble(bits_per_s=8 * bytes_per_s)
        acts.append(LinkAct([around.links[STORAGE]], number, trouble))
    disk_bytes_per_s = left_of(fault, normal.disk_bytes_per_s)
    device = device_of(around.folder)
    if around.group and around.group.disk and device and disk_bytes_per_s is not None:
        acts.append(DiskAct(around.group, device, disk_bytes_per_s, around.journal, for_s=for_s))
    return acts


def byte_rate(bits: float | None) -> float | None:
    """Return bit/s as bytes/s."""
    return None if bits is None else bits / 8


def left_of(fault: Fault, normal_bytes_per_s: float | None) -> float | None:
    """Return the bytes a second that a fault leaves; None: the normal rate is not known."""
    if fault.bytes_per_s is not None:
        return fault.bytes_per_s
    if normal_bytes_per_s is None or fault.share is None:
        return None
    return max(1.0, fault.share * normal_bytes_per_s)


def _cpu_act(fault: Fault, around: Surroundings, normal: Normal, for_s: float) -> Act:
    share = 1.0 if fault.share is None else fault.share
    if around.group is None or normal.cores is None:
        return PaceAct(around.mark, share, around.journal, for_s=for_s)
    return QuotaAct(around.group, share * normal.cores, around.journal, for_s=for_s)
