"""Headroom's own incident: troubles of the server, by the way that alerts take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from config.condition import Trouble
from policies.firings import Firing, Severity
from policies.incidents.grouping import FINGERPRINT
from policies.incidents.incoming import NOWHERE
from policies.incidents.keeping import keep

__all__ = ["follow"]

_PREFIX = "headroom:"


def follow(troubles: Sequence[Trouble], now: datetime) -> None:
    """Open, join and clear incidents. Repeated with the same troubles, it changes nothing."""
    wanted = {each.name: _firing(each, now) for each in troubles if each.lasting}
    keep(_PREFIX, wanted, now)


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
