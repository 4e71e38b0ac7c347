"""Who is to stand still for a limit on power that somebody has set, and is told so. Pure.

The controller of running load says which attempts those are (:mod:`policies.controller.pausing`).
They are paused by directives of its own, which are leases as all others: they end when it no longer
wants them, and by themselves if nobody renews them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from admission.core.directives.book import DirectiveBook, Kind, Wanted
from admission.core.directives.placed import Placed
from admission.core.directives.responding import LEASE
from policies.headroom.columns import Bools
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce

__all__ = ["OWNER", "Standing", "able_to_stand", "is_in_time", "keep_still", "standing_of"]

#: The owner of pauses that the controller wants.
OWNER = "controller"
_CAUSE = "power"
_REASON = "budgets cannot hold it, however slow"


@dataclass(frozen=True)
class Standing:
    """The attempts that agreed to stand still where a limit has been set, by id.

    With the speed that is left of each where it is slowed as far as it agreed, and why it would
    stand still and until when. ``is_in_time``: they come to rest before any limit counts.
    """

    speeds: Mapping[int, float] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    is_in_time: bool = False


def able_to_stand(placed: Placed, pauses: Bools) -> dict[int, float]:
    """Return the attempts that agreed to stand still, by id, and the speed that is left of each.

    That is where it is slowed as far as it agreed. ``pauses`` says of each attempt whether it
    agreed to pauses.
    """
    return {
        each.id: 1.0 - each.request.max_slowdown
        for each, does in zip(placed.held.attempts, pauses.tolist(), strict=True)
        if does and each.started_at is not None and not each.is_leaving
    }


def standing_of(
    placed: Placed, pauses: Bools, in_force: InForce, now: datetime, *, within_s: float
) -> Standing:
    """Return who may have to stand still for the power budgets that restrictions have set.

    ``pauses`` as in :func:`able_to_stand`. ``within_s``: what is told to stand still has come to
    rest by then.
    """
    asked = in_force.of(RestrictionKind.POWER_BUDGET_W)
    if not asked:
        return Standing()
    able = able_to_stand(placed, pauses)
    reasons: dict[int, str] = {}
    # The strictest comes first.
    for limit in asked:
        for each in placed.in_scope(limit.scope, in_force).tolist():
            if each in able:
                reasons.setdefault(each, _reason(limit))
    speeds = {each: able[each] for each in reasons}
    return Standing(speeds, reasons, is_in_time(in_force, now, within_s))


def is_in_time(in_force: InForce, now: datetime, within_s: float) -> bool:
    """Say whether what is told to stand still has come to rest before any power budget counts."""
    by = now + timedelta(seconds=within_s)
    asked = in_force.of(RestrictionKind.POWER_BUDGET_W)
    return bool(asked) and not any(each.is_due(by) for each in asked)


def _reason(limit: ActiveRestriction) -> str:
    until = f"{limit.expires_at:%Y-%m-%d %H:%M UTC}"
    return (
        f"{limit.scope} may draw {limit.number / 1e3:.1f} kW until {until} ({limit.reason}), and"
        " slower jobs alone do not keep that"
    )


def keep_still(
    directives: DirectiveBook[Any],
    ids: Collection[int],
    *,
    now: datetime,
    reasons: Mapping[int, str] | None = None,
) -> None:
    """Have exactly these attempts pause for the controller; the others go on."""
    wanted = [
        Wanted(
            attempt_id=each,
            kind=Kind.PAUSE,
            owner=OWNER,
            cause=_CAUSE,
            reason=(reasons or {}).get(each, _REASON),
            expires_at=now + LEASE,
        )
        for each in ids
    ]
    directives.keep(OWNER, wanted, now=now, by=OWNER, why="there is room again")
