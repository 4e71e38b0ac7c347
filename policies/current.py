"""The fleet's headroom now, under the restrictions in force, as rules, pages and API see it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from fleet import snapshot
from fleet.snapshot import FleetArrays
from policies.headroom import live
from policies.headroom.conditions import SiteConditions, conditions
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Limits
from policies.limiting import limits_in
from policies.restrictions import store
from policies.restrictions.strictest import ActiveRestriction, InForce

#: Conditions serve for this long, s: they try ways out.
_CONDITIONS_SERVE_S = 5.0


class _Present:
    """The limits and site conditions that this process computed last."""

    def __init__(self) -> None:
        self._limits: tuple[tuple[ActiveRestriction, ...], FleetArrays, Limits] | None = None
        self._conditions: dict[str, SiteConditions] = {}

    def limits(self, in_force: InForce, fleet: FleetArrays) -> Limits:
        """Return the same object while nothing has changed: headroom is cached by it."""
        last = self._limits
        if last is None or last[0] != in_force.restrictions or last[1] is not fleet:
            last = self._limits = (in_force.restrictions, fleet, limits_in(in_force, fleet))
        return last[2]

    def conditions_of(self, site: str, now: float) -> SiteConditions:
        found = self._conditions.get(site)
        if found is None or not 0 <= now - found.at < _CONDITIONS_SERVE_S:
            found = self._conditions[site] = conditions(headroom(now), site)
        return found

    def forget(self) -> None:
        self._limits = None
        self._conditions.clear()
        live.forget()


_present = _Present()


def headroom(now: float) -> Headroom:
    """Return the headroom at ``now`` (Unix s) under the restrictions in force. One query."""
    return live.current(now, limits=limits(now))


def limits(now: float) -> Limits:
    """Return the limits that the restrictions in force at ``now`` (Unix s) set. One query."""
    return limits_of(store.in_force(datetime.fromtimestamp(now, UTC)), snapshot.current())


def limits_of(in_force: InForce, fleet: FleetArrays) -> Limits:
    """Return :func:`limits_in`, and the same object while nothing has changed."""
    return _present.limits(in_force, fleet)


def conditions_of(site: str, now: float | None = None) -> SiteConditions:
    """Return the conditions of ``site`` at ``now`` (Unix seconds; left out: by the clock).

    At most five seconds old. Raises KeyError for a site that is not in the inventory.
    """
    return _present.conditions_of(site, time.time() if now is None else now)


def forget() -> None:
    """Forget all, as a process that has just begun."""
    _present.forget()
