"""Headroom's own incident: troubles of the server, by the way that alerts take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from config.condition import Trouble
from policies.firings import Firing, Severity
from policies.incidents import follow as incidents
from policies.incidents.grouping import FINGERPRINT
from policies.incidents.incoming import NOWHERE
from policies.incidents.rows import active_members, firing_of

__all__ = ["follow"]

#: What the rules of these firings begin with. No rule of anybody has a colon in its name.
_PREFIX = "headroom:"


def follow(troubles: Sequence[Trouble], now: datetime) -> None:
    """Open, join and clear incidents. Repeated with the same troubles, it changes nothing."""
    wanted = {each.name: each for each in troubles if each.lasting}
    known = {
        row.labels.get(FINGERPRINT, ""): firing_of(row)
        for row in active_members()
        if row.rule.startswith(_PREFIX)
    }
    over = [firing for name, firing in known.items() if name not in wanted]
    new = [_firing(each, now) for name, each in wanted.items() if name not in known]
    if over:
        incidents.cleared(over, now=now)
    if new:
        # Not handed over: playbooks are for the fleet, and those are for the policy loop.
        incidents.take(new, now=now, hand_over=False)


def _firing(trouble: Trouble, now: datetime) -> Firing:
    return Firing(
        rule=f"{_PREFIX}{trouble.check}",
        version=0,
        scope=NOWHERE,
        severity=Severity.CRITICAL if trouble.critical else Severity.WARNING,
        since=now,
        at=now,
        summary=trouble.sentence,
        labels={FINGERPRINT: trouble.name},
    )
