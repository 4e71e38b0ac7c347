"""Classes of traffic, and the marks in IP headers by which hosts and switches tell them apart."""

from __future__ import annotations

import enum
import socket
from collections.abc import Mapping

__all__ = ["DSCP", "OF_JOBS", "TrafficClass", "reading_of", "socket_options"]


class TrafficClass(enum.StrEnum):
    """What traffic is for."""

    #: Heartbeats, readings, orders, and what loops are told: Headroom's own, and small.
    CONTROL = "control"
    #: What ranks of one job tell each other in each step.
    COLLECTIVE = "collective"
    #: Checkpoints on their way to a store.
    CHECKPOINT = "checkpoint"
    #: What training reads.
    DATA = "data"
    #: Images, packages and models.
    ARTIFACT = "artifact"
    #: Output of jobs, logs and traces.
    LOG = "log"
    #: People at work on machines.
    OPERATOR = "operator"


#: The classes that a `link_share` holds down together.
OF_JOBS = tuple(
    each for each in TrafficClass if each not in (TrafficClass.CONTROL, TrafficClass.OPERATOR)
)

#: Code points by RFC 4594, and by RFC 8622 for what may wait. 26 is what RoCE is marked with.
DSCP: Mapping[TrafficClass, int] = {
    TrafficClass.CONTROL: 40,
    TrafficClass.COLLECTIVE: 26,
    TrafficClass.CHECKPOINT: 10,
    TrafficClass.DATA: 18,
    TrafficClass.ARTIFACT: 12,
    TrafficClass.LOG: 1,
    TrafficClass.OPERATOR: 16,
}


def reading_of(traffic_class: TrafficClass) -> str:
    """Return the field of a link's readings that has what was sent of a class, bytes per second."""
    return f"tx_{traffic_class}_bytes_per_s"


def socket_options(
    traffic_class: TrafficClass, family: int = socket.AF_INET
) -> list[tuple[int, int, int]]:
    """Return the options of a socket that have the kernel mark what it sends.

    The two low bits of the octet are congestion notification's, and left to it.
    """
    octet = DSCP[traffic_class] << 2
    if family == socket.AF_INET6:
        return [(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, octet)]
    return [(socket.IPPROTO_IP, socket.IP_TOS, octet)]
