"""What machines are told of the checkpoints of the jobs that they run: see ``core.shipping``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from admission.allocation import open_attempts
from admission.core.allocation.allocations import OpenAttempt
from admission.core.shipping import of_attempts, ship_limits
from fleet import snapshot
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from headroom.work.contract import ShipLimit
from policies import traffic
from policies.restrictions.models import read_in_force

__all__ = ["invalidate", "limits_for"]

#: A change takes effect in every process within this time, s.
_found: Cache[dict[str, list[ShipLimit]]] = Cache(2.0)
invalidate = _found.invalidate


def limits_for(keys: Iterable[str], now: float) -> list[ShipLimit]:
    """Return the limits in force for attempts, by their keys, as of at most two seconds ago."""
    return of_attempts(_found.get(lambda: _read(now)), keys)


def _read(now: float) -> dict[str, list[ShipLimit]]:
    fleet = snapshot.current()
    in_force = read_in_force(datetime.fromtimestamp(now, UTC))
    # Attempts are looked at only where anything is restricted.
    return ship_limits(_attempts(fleet), in_force, fleet, traffic.current())


def _attempts(fleet: FleetArrays) -> Iterator[OpenAttempt]:
    yield from open_attempts.current(fleet).attempts
