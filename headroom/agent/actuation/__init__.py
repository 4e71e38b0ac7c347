"""Limits that the server asks for, set on this machine as leases.

Each of them ends by itself; what was in force before is on disk before anything is changed, and is
restored when the lease ends, when the agent stops, and when it starts again after it was killed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from headroom.agent.actuation.actuator import LimitActuator
from headroom.agent.actuation.journal import Journal, JournalError
from headroom.agent.actuation.leases import LeaseBook
from headroom.agent.actuation.poller import LimitPoller
from headroom.agent.actuation.reports import Reports

__all__ = [
    "Actuation",
    "LimitPoller",
    "Reports",
    "journal_beside",
    "open_actuation",
    "warn_of_leftovers",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Actuation:
    """The leases, reports and actuator of limits that the parts of the agent share."""

    leases: LeaseBook
    reports: Reports
    actuator: LimitActuator


def journal_beside(spool: Path) -> Path:
    """Return the path of the journal of limits of the agent with this spool."""
    return spool.with_name(f"{spool.stem}-limits.json")


def open_actuation(node: str, journal: Path, reports: Reports) -> Actuation | None:
    """Make ready to set limits; None, and an error in the log, where the journal is of no use."""
    try:
        kept = Journal(journal)
    except JournalError as exc:
        logger.error("limits cannot be set", extra={"cause": exc})
        return None
    leases = LeaseBook(node)
    logger.info("limits of the server will be set", extra={"left_over": len(kept.entries)})
    return Actuation(leases, reports, LimitActuator(node, leases, kept, reports))


def warn_of_leftovers(journal: Path) -> None:
    """Warn where an earlier life was killed with limits in force that this one may not undo."""
    try:
        left = len(Journal(journal).entries) if journal.exists() else 0
    except JournalError as exc:
        logger.error("limits of an earlier run are unknown", extra={"cause": exc})
        return
    if left:
        logger.error(
            "limits of an earlier run remain in force; start with --allow-actuation to undo them",
            extra={"limits": left, "journal": str(journal)},
        )
