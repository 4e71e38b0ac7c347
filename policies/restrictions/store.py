"""Restrictions in Postgres, under the book of :mod:`policies.restrictions.book`.

All writes take one lock before they look at anything, so of two that come at once the second sees
what the first has done. Whoever writes restrictions in a transaction of their own has all other
writers wait until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings

from fleet import locks, snapshot
from policies.leases.book import SYSTEM, Line
from policies.leases.postgres import PostgresStore
from policies.restrictions import metrics
from policies.restrictions.book import RestrictionBook
from policies.restrictions.breakers import Taking
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.models import (
    FleetBreaker,
    Restriction,
    RestrictionEvent,
    RestrictionQuerySet,
    read_in_force,
)
from policies.restrictions.strictest import InForce

__all__ = [
    "SYSTEM",
    "apply",
    "book",
    "expire",
    "in_force",
    "note",
    "release",
    "writing",
]

_LOCK = 0x52455354


class _Store(PostgresStore[Restriction]):
    key = ("owner", "cause", "kind", "scope_kind", "scope_name")
    fields = (
        "value", "pending_value", "refused_value", "reason", "evidence", "state", "version",
        "expires_at", "cycle", "effect_at", "pending_why", "decided_by", "ended_at", "ended_by",
        "ended_why",
    )  # fmt: skip

    def _lock(self) -> None:
        locks.wait_until_commit(_LOCK)

    def _live(self) -> RestrictionQuerySet:
        return Restriction.objects.live()

    def event(self, line: Line[Any]) -> RestrictionEvent:
        return note(line.row, line.kind, at=line.at, by=line.by, text=line.text, **line.data)

    def _count(self, events: Sequence[RestrictionEvent]) -> None:
        metrics.count(events)

    def get(self, pk: int) -> Restriction:
        """One query."""
        return Restriction.objects.get(pk=pk)

    def breaker(self) -> FleetBreaker:
        """One query."""
        return FleetBreaker.current()

    def uncounted_by_people(self, now: datetime) -> Iterable[Taking]:
        """One query."""
        rows = Restriction.objects.uncounted_by_people(now).only(
            "kind", "scope_kind", "scope_name", "value"
        )
        return ((RestrictionKind(row.kind), row.scope, row.value) for row in rows)


_store = _Store(Restriction, RestrictionEvent)
#: Have the only right to write restrictions, in a transaction.
writing = _store.writing


def book() -> RestrictionBook[Any]:
    """Return the book of restrictions on the inventory of the server."""
    share = settings.POLICY_MAX_SITE_SHARE
    return RestrictionBook(_store, snapshot.current, max_site_share=share)


def in_force(now: datetime) -> InForce:
    """Return the restrictions in force at ``now``: by the clock, not by whether a sweep has passed.

    One query.
    """
    return read_in_force(now)


def note(
    row: Restriction, kind: str, *, at: datetime, by: str, text: str, **data: Any
) -> RestrictionEvent:
    """Return a line of the ledger, to be saved in the transaction of the change that it records."""
    return RestrictionEvent(
        restriction=row, at=at, kind=kind, by=by, text=text[:1000], data=data, cycle=row.cycle
    )


def apply(wanted: Iterable[Wanted], *, now: datetime) -> list[Restriction]:
    """Put each of ``wanted`` in force, or hold it for a person; return their rows, in order.

    What cannot be (an unknown scope, a value out of bounds) is left out and told to the log. Use
    ``kinds.check`` first to be told.
    """
    return book().apply(wanted, now=now)


def release(owner: str, *, now: datetime, by: str, why: str, cause: str | None = None) -> int:
    """End the restrictions of ``owner``, or those of one ``cause``; return how many there were."""
    return book().release(owner, now=now, by=by, why=why, cause=cause)


def expire(now: datetime) -> int:
    """End leases that nobody has renewed; return how many. They had no effect any more anyway."""
    return book().expire(now)
