"""This process as it is when it has just begun: it has read and compared nothing yet."""

from __future__ import annotations

from admission.allocation import open_attempts
from admission.cycle import live, reconciliation
from admission.executors.schedulers import registered
from fleet import snapshot

__all__ = ["begin_anew"]


def begin_anew() -> None:
    """Forget what is kept between cycles, such as an earlier test's fleet."""
    snapshot.fresh()
    reconciliation._LastLook.at = -float("inf")
    reconciliation._LastLook.offered.clear()
    for each in (registered, open_attempts, live):
        each.invalidate()
