"""Firings of what is no rule: those that somebody says hold are held, and all others end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from policies.firings import Firing
from policies.incidents import follow
from policies.incidents.grouping import FINGERPRINT
from policies.incidents.rows import active_members, firing_of

__all__ = ["keep"]


def keep(prefix: str, wanted: Mapping[str, Firing], now: datetime) -> None:
    """Open, join and clear incidents. Repeated with the same firings, it changes nothing.

    ``wanted`` are all that hold of those whose rules begin with ``prefix``, by their fingerprint.
    No rule of anybody has a colon in its name, so give one that ends with it.
    """
    known = {
        row.labels.get(FINGERPRINT, ""): firing_of(row)
        for row in active_members()
        if row.rule.startswith(prefix)
    }
    over = [firing for name, firing in known.items() if name not in wanted]
    new = [firing for name, firing in wanted.items() if name not in known]
    if over:
        follow.cleared(over, now=now)
    if new:
        # Not handed over: playbooks are for the fleet, and those are for the policy loop.
        follow.take(new, now=now, hand_over=False)
