"""The fleet's headroom now, under the restrictions in force, as rules, pages and API see it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from fleet import snapshot
from fleet.cache import Cache, KeyedCache
from fleet.snapshot import FleetArrays
from policies.headroom import live
from policies.headroom.conditions import SiteConditions, conditions
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Limits
from policies.limiting import limits_in
from policies.restrictions import store
from policies.restrictions.strictest import InForce

#: Conditions serve for this long, s: they try ways out.
_CONDITIONS_SERVE_S = 5.0


_limits: Cache[Limits] = Cache()
_conditions = KeyedCache(_CONDITIONS_SERVE_S)


def headroom(now: float) -> Headroom:
    """Return the headroom at ``now`` (Unix s) under the restrictions in force. One query."""
    return live.current(now, limits=limits(now))


def limits(now: float) -> Limits:
    """Return the limits that the restrictions in force at ``now`` (Unix s) set. One query."""
    return limits_of(store.in_force(datetime.fromtimestamp(now, UTC)), snapshot.current())


def limits_of(in_force: InForce, fleet: FleetArrays) -> Limits:
    """Return :func:`limits_in`, and the same object while nothing has changed."""
    return _limits.get(lambda: limits_in(in_force, fleet), of=(in_force.restrictions, fleet))


def conditions_of(site: str, now: float | None = None) -> SiteConditions:
    """Return the conditions of ``site`` at ``now`` (Unix seconds; left out: by the clock).

    At most five seconds old. Raises KeyError for a site that is not in the inventory.
    """
    at = time.time() if now is None else now
    return _conditions.get(site, lambda: conditions(headroom(at), site), now=at)


def invalidate() -> None:
    """Have the next calls compute all anew, as in a process that has just begun."""
    _limits.invalidate()
    _conditions.invalidate()
    live.invalidate()
