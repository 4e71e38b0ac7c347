"""The restrictions of a world: held as leases, renewed, released, and in force or waiting.

What the server keeps in its database is kept here in a dictionary; what may be in force, and what
takes too much of a site and has to wait for a person, is decided by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from fleet.tables import FleetArrays
from policies.restrictions.breakers import BlastRadius
from policies.restrictions.kinds import BadRestriction, Wanted, check
from policies.restrictions.strictest import InForce, Standing

__all__ = ["Held", "Restrictions"]

Key = tuple[str, str, str, str, str]


@dataclass
class Held:
    """A restriction that somebody wants, in force or waiting for a person."""

    id: int
    wanted: Wanted
    issued_at: datetime
    expires_at: datetime
    #: why it waits for a person; empty: it is in force
    waits: str = ""
    #: a person has let it in, so it takes nothing of what policies may take
    approved: bool = False


@dataclass
class Restrictions:
    """All restrictions that are held."""

    #: the share of a site that policies may restrict without a person
    max_site_share: float
    held: dict[Key, Held] = field(default_factory=dict)
    issued: int = 0
    #: goes up with each change of what is in force
    version: int = 0
    _in_force: InForce | None = None

    def hold(self, wanted: Wanted, fleet: FleetArrays, now: datetime) -> Held:
        """Have ``wanted`` be in force, or wait for a person; renew it where it is already.

        Raises :class:`BadRestriction` where it makes no sense on this fleet.
        """
        check(wanted, fleet, now=now)
        known = self.held.get(wanted.key)
        if known is not None and known.wanted.value == wanted.value and not known.waits:
            known.expires_at = max(known.expires_at, wanted.expires_at)
            return known
        return self._issue(wanted, known, fleet, now)

    def _issue(self, wanted: Wanted, known: Held | None, fleet: FleetArrays, now: datetime) -> Held:
        self.held.pop(wanted.key, None)
        if known is None:
            self.issued += 1
            known = Held(self.issued, wanted, now, wanted.expires_at)
        known.wanted = wanted
        known.expires_at = max(known.expires_at, wanted.expires_at)
        known.waits = "" if known.approved else self._why_not(wanted, fleet)
        self.held[wanted.key] = known
        self._changed()
        return known

    def _why_not(self, wanted: Wanted, fleet: FleetArrays) -> str:
        counted = (
            (each.wanted.kind, each.wanted.scope, each.wanted.value)
            for each in self.held.values()
            if not each.waits and not each.approved
        )
        most = self.max_site_share if wanted.most_of_site is None else wanted.most_of_site
        return BlastRadius(fleet, counted).admit(
            (wanted.kind, wanted.scope, wanted.value), most=most
        )

    def approve(self, held: Held) -> None:
        """Let in what has waited for a person."""
        held.waits, held.approved = "", True
        self._changed()

    def waiting(self) -> list[Held]:
        """Return what waits for a person."""
        return [each for each in self.held.values() if each.waits]

    def release(self, owner: str, cause: str | None = None) -> int:
        """Let go what ``owner`` holds, for one cause alone where it is given; return how many."""
        over = [key for key in self.held if key[0] == owner and (cause is None or key[1] == cause)]
        return self._drop(over)

    def expire(self, now: datetime) -> int:
        """Let go what nobody has renewed; return how many."""
        return self._drop([key for key, each in self.held.items() if each.expires_at <= now])

    def in_force(self, now: datetime) -> InForce:
        """Return what is in force; the same standing restrictions while nothing changes."""
        if self._in_force is None:
            standing = tuple(_standing(each) for each in self.held.values() if not each.waits)
            self._in_force = InForce(now, standing)
        return self._in_force

    def _drop(self, keys: Iterable[Key]) -> int:
        dropped = [self.held.pop(key) for key in keys]
        if dropped:
            self._changed()
        return len(dropped)

    def _changed(self) -> None:
        self.version += 1
        self._in_force = None


def _standing(held: Held) -> Standing:
    wanted = held.wanted
    return Standing(
        id=held.id,
        kind=wanted.kind,
        scope=wanted.scope,
        value=wanted.value,
        reason=wanted.reason,
        owner=wanted.owner,
        cause=wanted.cause,
        issued_at=held.issued_at,
        expires_at=held.expires_at,
    )


def is_good(wanted: Wanted, fleet: FleetArrays, now: datetime) -> bool:
    """Say whether ``wanted`` can be; what is gone from the inventory cannot."""
    try:
        check(wanted, fleet, now=now)
    except BadRestriction:
        return False
    return True
