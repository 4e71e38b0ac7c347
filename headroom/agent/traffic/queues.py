"""From the shares of a link to queues of the kernel: a tree of HTB, and what goes into which. Pure.

All of the link is one class; the classes of jobs are one below it, so that a share for jobs holds
all of them down together; below that each class of traffic has its own queue. A class is sure of
its guaranteed rate, and borrows up to its greatest while others leave it room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headroom.contracts import LinkLimit
from headroom.traffic import DSCP, OF_JOBS, TrafficClass

__all__ = ["HANDLE", "Matches", "Queue", "built", "changed", "minor_of", "queues"]

#: The number of our queues, by which they are told from others': "Hd".
HANDLE = "4864:"
#: Of the capacity: where a card sends as fast as it can, packets would else wait in the card, which
#: knows no classes.
_OF_CAPACITY = 0.98
#: The same while that drains which was sent before there were shares, and waits further on.
_OF_CAPACITY_DRAINING = 0.8
#: HTB takes no rate of nothing, bit/s.
_LEAST_BITS_PER_S = 8_000
_WHOLE, _JOBS, _FIRST = 1, 2, 0x10
#: Who borrows first, as HTB counts: control before people, ranks that wait before what is read.
_PRIORITY: Mapping[TrafficClass, int] = {
    TrafficClass.CONTROL: 0,
    TrafficClass.OPERATOR: 1,
    TrafficClass.COLLECTIVE: 2,
    TrafficClass.DATA: 3,
    TrafficClass.CHECKPOINT: 4,
    TrafficClass.ARTIFACT: 5,
    TrafficClass.LOG: 6,
}
#: How much a class may send at its turn when it borrows, bytes: at least a packet.
_LEAST_QUANTUM, _MOST_QUANTUM = 1_600, 60_000


@dataclass(frozen=True)
class Matches:
    """What goes into which class beside what is marked: TCP and UDP ports of either end.

    What matches nothing is of class ``unmarked``.
    """

    ports: Mapping[TrafficClass, tuple[int, ...]] = field(default_factory=dict)
    unmarked: TrafficClass = TrafficClass.DATA


@dataclass(frozen=True)
class Queue:
    """A class of HTB, by its number below :data:`HANDLE`. Rates in bit/s."""

    minor: int
    parent: int
    rate: int
    ceil: int
    priority: int = 0

    def told(self, device: str) -> str:
        """Return what ``tc`` is to be told after ``class add`` or ``class change``."""
        quantum = min(max(self.rate // 8_000, _LEAST_QUANTUM), _MOST_QUANTUM)
        parent = f"{HANDLE}{self.parent:x}" if self.parent else HANDLE
        return (
            f"dev {device} parent {parent} classid {HANDLE}{self.minor:x} htb rate {self.rate}bit"
            f" ceil {self.ceil}bit prio {self.priority} quantum {quantum}"
        )


def minor_of(traffic_class: TrafficClass) -> int:
    """Return the number of a class's queue."""
    return _FIRST + list(TrafficClass).index(traffic_class)


def queues(limit: LinkLimit, *, is_draining: bool = False) -> tuple[Queue, ...]:
    """Return the queues of a link, parents first.

    ``is_draining``: with less than the link can carry, so that what waits in a switch empties.

    Where guaranteed shares come to more than there is, all are lowered alike. Classes that the
    limit does not name are sure of nothing and may borrow all.
    """
    of_capacity = _OF_CAPACITY_DRAINING if is_draining else _OF_CAPACITY
    whole = limit.capacity_bits_per_s * of_capacity
    jobs = whole * limit.share
    shares = dict.fromkeys(TrafficClass, (0.0, 1.0))
    shares |= {each.name: (each.guaranteed, each.most) for each in limit.classes}
    sure_of_jobs = whole * sum(shares[each][0] for each in OF_JOBS)
    others = whole * sum(sure for each, (sure, _) in shares.items() if each not in OF_JOBS)
    given = min(sure_of_jobs, jobs, max(whole - others, 0.0))
    lowered = {True: _ratio(given, sure_of_jobs), False: min(1.0, _ratio(whole, others))}
    found = [
        Queue(_WHOLE, 0, _rate(whole), _rate(whole)),
        Queue(_JOBS, _WHOLE, _rate(given), _rate(jobs), priority=_PRIORITY[OF_JOBS[0]]),
    ]
    for each in TrafficClass:
        is_of_jobs = each in OF_JOBS
        sure, most = shares[each]
        room = jobs if is_of_jobs else whole
        ceil = min(max(most, sure) * whole, room)
        rate = min(sure * whole * lowered[is_of_jobs], ceil)
        parent = _JOBS if is_of_jobs else _WHOLE
        found.append(Queue(minor_of(each), parent, _rate(rate), _rate(ceil), _PRIORITY[each]))
    return tuple(found)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 1.0


def _rate(bits_per_s: float) -> int:
    return max(round(bits_per_s), _LEAST_BITS_PER_S)


def built(device: str, tree: tuple[Queue, ...], matches: Matches) -> Iterator[str]:
    """Yield the lines of ``tc -batch`` that make the queues on an interface without any of ours."""
    default = minor_of(matches.unmarked)
    yield f"qdisc add dev {device} root handle {HANDLE} htb default 0x{default:x}"
    for each in tree:
        yield f"class add {each.told(device)}"
    yield from _filters(device, matches)


def changed(device: str, tree: tuple[Queue, ...]) -> Iterator[str]:
    """Yield the lines that bring queues of ours to ``tree``."""
    for each in tree:
        yield f"class replace {each.told(device)}"


def _filters(device: str, matches: Matches) -> Iterator[str]:
    """Yield what finds the class of a packet: neighbors first, then marks, then ports."""
    control = TrafficClass.CONTROL
    # Without them nobody is reached, however little may be sent.
    yield _filter(device, "arp", 1, "match u32 0 0", control)
    yield _filter(device, "ipv6", 2, "match ip6 protocol 58 0xff", control)
    for each, code in DSCP.items():
        octet = f"0x{code << 2:02x} 0xfc"
        yield _filter(device, "ip", 3, f"match ip dsfield {octet}", each)
        yield _filter(device, "ipv6", 4, f"match ip6 priority {octet}", each)
    for each, ports in matches.ports.items():
        for port in ports:
            for end in ("sport", "dport"):
                yield _filter(device, "ip", 5, f"match ip {end} {port} 0xffff", each)
                yield _filter(device, "ipv6", 6, f"match ip6 {end} {port} 0xffff", each)


def _filter(device: str, protocol: str, order: int, match: str, to: TrafficClass) -> str:
    return (
        f"filter add dev {device} parent {HANDLE} protocol {protocol} prio {order} u32 {match}"
        f" flowid {HANDLE}{minor_of(to):x}"
    )
