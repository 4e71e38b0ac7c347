"""Restrictions in memory, as worlds of the twin have them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from policies.leases.book import Line
from policies.leases.memory import MemoryStore
from policies.restrictions.book import Lease, State
from policies.restrictions.breakers import Taking
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce

__all__ = ["Breaker", "MemoryRestrictions"]


@dataclass
class Breaker:
    """The fleet breaker."""

    is_open: bool = False
    by: str = ""
    reason: str = ""


class MemoryRestrictions(MemoryStore[Lease]):
    """All restrictions of a world."""

    def __init__(self, tell: Callable[[Line[Lease]], None] | None = None) -> None:
        super().__init__(Lease, tell)
        self.thrown = Breaker()
        self._in_force: tuple[int, datetime | None, InForce] | None = None

    def get(self, pk: int) -> Lease:
        """Return a live one. Raises LookupError."""
        for row in self:
            if row.id == pk:
                return row
        raise LookupError(f"there is no live restriction {pk}")

    def breaker(self) -> Breaker:
        return self.thrown

    def uncounted_by_people(self, now: datetime) -> Iterable[Taking]:
        return [
            (RestrictionKind(row.kind), row.scope, row.value)
            for row in self._with_effect(now)
            if not row.decided_by and not row.is_of_a_person
        ]

    def in_force(self, now: datetime) -> InForce:
        """Return the restrictions in force at ``now``; the same object while they are the same."""
        known = self._in_force
        if known is None or known[0] != self.version or (known[1] is not None and known[1] <= now):
            rows = self._with_effect(now)
            found = InForce.standing(now, [_restriction(row) for row in rows])
            edges = [each.held_from for each in found.announced]
            first = min([*edges, *(row.expires_at for row in rows)], default=None)
            known = self._in_force = self.version, first, found
        return known[2]

    def waiting(self) -> list[Lease]:
        """Return those of which a person has to decide something."""
        return [
            row
            for row in self
            if row.state == State.PENDING_APPROVAL
            or (row.state == State.IN_FORCE and row.pending_value is not None)
        ]

    def _with_effect(self, now: datetime) -> list[Lease]:
        return [row for row in self if row.state == State.IN_FORCE and row.expires_at > now]


def _restriction(row: Lease) -> ActiveRestriction:
    return ActiveRestriction(
        id=row.id,
        kind=RestrictionKind(row.kind),
        scope=row.scope,
        value=row.value,
        reason=row.reason,
        owner=row.owner,
        cause=row.cause,
        issued_at=row.issued_at,
        expires_at=row.expires_at,
        starts_at=row.starts_at,
    )
