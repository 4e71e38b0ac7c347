"""Shares of links by class of traffic, set on this machine's interfaces as leases.

The kernel's own queues hold them (``tc``, HTB). What is unmarked and what came before is as it was
when a lease ends, when the agent stops, and within a second after it is killed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from headroom.agent.actuation.leases import LinkLeases
from headroom.agent.actuation.reports import Reports
from headroom.agent.traffic.guard import Guard
from headroom.agent.traffic.keeping import TrafficKeeper
from headroom.agent.traffic.queues import Matches
from headroom.agent.traffic.tc import Tc, TcError

__all__ = ["TrafficKeeper", "open_traffic", "warn_of_leftovers"]

logger = logging.getLogger(__name__)


def open_traffic(
    node: str, links: Mapping[str, str], matches: Matches, reports: Reports
) -> TrafficKeeper | None:
    """Make ready to share ``links`` (by interface); None, and an error in the log, where it fails.

    What an earlier life has left on these interfaces is undone.
    """
    try:
        tc = Tc.find()
        for device in links:
            if tc.is_ours(device):
                tc.remove(device)
                logger.warning("shares of an earlier run undone", extra={"interface": device})
        guard = Guard(tc.path)
    except (TcError, OSError) as exc:
        logger.error("links cannot be shared by class", extra={"cause": exc})
        return None
    return TrafficKeeper(
        node, links, matches, LinkLeases(node), reports, tc, guard, monotonic=time.monotonic
    )


def warn_of_leftovers(links: Mapping[str, str]) -> None:
    """Warn where an earlier life was killed together with its guard, and this one may not undo."""
    try:
        left = [device for device in links if Tc.find().is_ours(device)]
    except TcError:
        return
    if left:
        logger.error(
            "shares of an earlier run remain in force; set [traffic] enabled to undo them",
            extra={"interfaces": ", ".join(left)},
        )
