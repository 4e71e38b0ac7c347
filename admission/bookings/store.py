"""The bookings that are not over, as the cycle sees them."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from admission.bookings.models import Booking as Row
from admission.core.placement.bookings import Booking, Bookings
from admission.core.placement.topology import Bools
from fleet.snapshot import FleetArrays
from policies.scopes import Scope, ScopeKind, UnknownScope, nodes_in

__all__ = ["live", "mask_of", "scope_of"]


def live(fleet: FleetArrays, now: float) -> Bookings:
    """Return the bookings that are not over at ``now`` (Unix s), in rows of ``fleet``. A query."""
    rows = list(Row.objects.live(datetime.fromtimestamp(now, UTC)).select_related("project"))
    return Bookings(
        tuple(
            Booking(
                begin_at=row.starts_at.timestamp(),
                end_at=row.ends_at.timestamp(),
                what=row.what,
                project=row.project.name if row.project else "",
                scope=scope_of(row),
            )
            for row in rows
        ),
        tuple(mask_of(row, fleet) for row in rows),
    )


def scope_of(row: Row) -> Scope | None:
    """Return the place that is booked; None: some hosts are."""
    return Scope(ScopeKind(row.scope_kind), row.scope_name) if row.scope_kind else None


def mask_of(row: Row, fleet: FleetArrays) -> Bools:
    """Say of each node whether it is booked: also of those that came to the place since."""
    found = np.isin(fleet.nodes.names.astype(str), row.nodes)
    scope = scope_of(row)
    if scope is None:
        return found
    try:
        return np.asarray(found | nodes_in(fleet, scope))
    except UnknownScope:
        return found
