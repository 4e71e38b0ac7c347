"""The book of restrictions: leases that have an effect, or wait for a person. Pure.

What policies may take of a site without a person, and whether they may add anything at all, is
asked before a restriction comes into force, and before a stricter value does. A looser value is
taken over at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import structlog
from django.db.models import TextChoices

from fleet.tables import FleetArrays
from headroom.numbers import plain
from policies.leases import book as leases
from policies.leases.book import Book, Changes, Line, Store
from policies.restrictions.breakers import BlastRadius, Taking
from policies.restrictions.kinds import LONGEST, BadRestriction, Wanted, check
from policies.scopes import Scope, ScopeKind

__all__ = [
    "LIVE",
    "PERSON",
    "Breaker",
    "BreakerOpen",
    "Conflict",
    "Lease",
    "LineKind",
    "Named",
    "RestrictionBook",
    "RestrictionStore",
    "State",
]

log = structlog.get_logger(__name__)

#: How the owner of what a person issues begins.
PERSON = "user:"


class State(TextChoices):
    """The state of a restriction."""

    #: It waits for a person, and has no effect.
    PENDING_APPROVAL = "pending_approval", "Pending approval"
    IN_FORCE = "in_force", "In force"
    #: A person refused or lifted it while its owner goes on to want it. It has no effect.
    REFUSED = "refused", "Refused"
    #: Nobody renewed its lease.
    EXPIRED = "expired", "Expired"
    #: Its cause has ended, or whoever issued it has lifted it.
    RELEASED = "released", "Released"


#: In these its owner wants it, as far as is known.
LIVE = (State.PENDING_APPROVAL, State.IN_FORCE, State.REFUSED)


class LineKind(TextChoices):
    """The kind of a line of the ledger."""

    ISSUED = "issued", "Issued"
    PENDING_APPROVAL = "pending_approval", "Waits for a person"
    IN_FORCE = "in_force", "In force"
    CHANGED = "changed", "Value changed"
    EXTENDED = "extended", "Extended"
    APPROVED = "approved", "Approved"
    REFUSED = "refused", "Refused"
    LIFTED = "lifted", "Lifted"
    RELEASED = "released", "Released"
    EXPIRED = "expired", "Expired"
    #: An agent has reported on it.
    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    #: All GPUs have reported, or time was up.
    APPLIED = "applied", "Applied"
    #: What power, heat and clocks did in the first minute.
    MEASURED = "measured", "Measured"
    #: What came of it.
    VERDICT = "verdict", "Verdict"


class Breaker(Protocol):
    """The fleet breaker: while it is open no effect is added."""

    @property
    def is_open(self) -> bool: ...

    @property
    def by(self) -> str: ...

    @property
    def reason(self) -> str: ...


class Named:
    """Properties derived from the columns of a restriction, wherever it is kept."""

    @property
    def scope(self: Any) -> Scope:
        return Scope(ScopeKind(self.scope_kind), self.scope_name)

    @property
    def key(self: Any) -> tuple[str, str, str, str, str]:
        """The same as ``Wanted.key``."""
        return self.owner, self.cause, self.kind, self.scope_kind, self.scope_name

    @property
    def is_of_a_person(self: Any) -> bool:
        return str(self.owner).startswith(PERSON)


@dataclass(kw_only=True, eq=False)
class Lease(Named, leases.Lease):
    """A restriction in memory."""

    scope_kind: str
    scope_name: str
    #: a stricter value that waits for a person
    pending_value: float | None = None
    #: a person refused this one: nothing so strict is asked again
    refused_value: float | None = None
    state: str = State.PENDING_APPROVAL
    #: grows as its value or its state changes
    version: int = 1
    #: how many values have come into force, and when the last of them did
    cycle: int = 0
    effect_at: datetime | None = None
    pending_why: str = ""
    #: who approved it
    decided_by: str = ""
    #: when it has to be met, where that is announced
    starts_at: datetime | None = None


R = TypeVar("R", bound=Lease)


class RestrictionStore(Store[R], Protocol[R]):
    """Where restrictions are kept."""

    def get(self, pk: int) -> R:
        """Return one, live or not. Raises LookupError or DoesNotExist."""

    def uncounted_by_people(self, now: datetime) -> Iterable[Taking]:
        """Return the restrictions in force at ``now`` without any person having agreed to them."""

    def breaker(self) -> Breaker:
        """Return the fleet breaker."""


class Conflict(Exception):
    """The restriction is not as the caller takes it to be. ``code`` names the conflict."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BreakerOpen(Conflict):
    """The fleet breaker is open: no effect is added."""

    def __init__(self, breaker: Breaker) -> None:
        super().__init__(
            "fleet_breaker_open",
            f"{breaker.by} has opened the fleet breaker ({breaker.reason}); close it first",
        )


class RestrictionBook(Book[R, Wanted], Generic[R]):
    """All restrictions.

    ``fleet`` returns the inventory that they are on. ``max_site_share`` is the share of a site that
    policies may take without a person, where what is wanted states no other.
    """

    store: RestrictionStore[R]

    def __init__(
        self, store: RestrictionStore[R], fleet: Callable[[], FleetArrays], *, max_site_share: float
    ) -> None:
        super().__init__(store)
        self._fleet, self._max_site_share = fleet, max_site_share
        #: what the present call has found out about breakers
        self._radius: BlastRadius | None = None
        self._breaker: Breaker | None = None

    # --- What policies want ----------------------------------------------------------------------

    def check(self, wanted: Wanted, now: datetime) -> None:
        """Raise :class:`BadRestriction` where ``wanted`` is not valid on this fleet."""
        check(wanted, self._fleet(), now=now)

    def _can_be(self, wanted: Wanted, now: datetime) -> bool:
        """Say whether it is valid; the log tells why not: others are not to suffer by it."""
        try:
            self.check(wanted, now)
        except BadRestriction as exc:
            log.error(
                "restriction_cannot_be", owner=wanted.owner, kind=wanted.kind.value,
                scope=str(wanted.scope), field=exc.field, why=str(exc),
            )  # fmt: skip
            return False
        return True

    def _begin(self, now: datetime) -> Changes[R]:
        self._radius = self._breaker = None
        return super()._begin(now)

    def _fields(self, wanted: Wanted, now: datetime) -> Mapping[str, Any]:
        return {
            "kind": wanted.kind.value,
            "scope_kind": wanted.scope.kind.value,
            "scope_name": wanted.scope.name,
            "value": wanted.value,
            "reason": wanted.reason,
            "owner": wanted.owner,
            "cause": wanted.cause,
            "evidence": _as_json(wanted.evidence),
            "state": State.PENDING_APPROVAL,
            "issued_at": now,
            "expires_at": wanted.expires_at,
            "starts_at": wanted.starts_at,
        }

    def _issued(self, work: Changes[R], row: R, wanted: Wanted) -> None:
        work.tell(row, LineKind.ISSUED, wanted.reason, value=wanted.value)
        self._let_in(work, wanted, row)
        row.version = 1

    def _take_over(self, work: Changes[R], row: R, wanted: Wanted) -> bool:
        before = row.version
        if row.state == State.PENDING_APPROVAL:
            row.version += row.value != wanted.value
            row.value = wanted.value
            self._let_in(work, wanted, row)
        elif row.state == State.IN_FORCE and wanted.value != row.value:
            self._change(work, wanted, row)
        elif row.state == State.IN_FORCE and row.pending_value is not None:
            row.pending_value, row.pending_why = None, ""
            row.version += 1
        return row.version != before

    def _let_in(self, work: Changes[R], wanted: Wanted, row: R) -> None:
        """Bring a held restriction into force, unless it has to go on waiting."""
        why_not = self._why_not(work, wanted)
        if not why_not:
            _come_into_force(row, work.now)
            work.tell(row, LineKind.IN_FORCE, _announcement(row, work.now), value=row.value)
        elif _breaker_of(why_not) != _breaker_of(row.pending_why):
            row.pending_why = why_not
            row.version += 1
            work.tell(row, LineKind.PENDING_APPROVAL, why_not, value=row.value)

    def _change(self, work: Changes[R], wanted: Wanted, row: R) -> None:
        """Take over another value: a looser one at once, a stricter one if it may be."""
        wanted_value, value = _number(wanted.value), _number(row.value)
        if wanted_value < value:
            if wanted_value <= _number(row.refused_value):
                return
            why_not = self._why_not(work, wanted)
            if why_not:
                self._wait_with(work, row, wanted_value, why_not)
                return
            row.decided_by = ""  # who approved the old value did not approve this one
        was, row.value = row.value, wanted.value
        row.pending_value, row.reason, row.evidence = None, wanted.reason, _as_json(wanted.evidence)
        _come_into_force(row, work.now)
        work.tell(row, LineKind.CHANGED, wanted.reason, value=row.value, was=was)

    @staticmethod
    def _wait_with(work: Changes[R], row: R, value: float, why_not: str) -> None:
        if row.pending_value != value:
            row.pending_value, row.pending_why = value, why_not
            row.version += 1
            work.tell(row, LineKind.PENDING_APPROVAL, why_not, value=value, was=row.value)

    def _why_not(self, work: Changes[R], wanted: Wanted) -> str:
        """Say why ``wanted`` has to wait for a person; "": it need not."""
        if self._breaker is None:
            self._breaker = self.store.breaker()
        if self._breaker.is_open:
            return f"the fleet breaker is open: {self._breaker.by} opened it"
        if wanted.owner.startswith(PERSON):
            return ""
        if self._radius is None:
            self._radius = BlastRadius(self._fleet(), self.store.uncounted_by_people(work.now))
        most = wanted.most_of_site
        return self._radius.admit(
            (wanted.kind, wanted.scope, wanted.value),
            most=self._max_site_share if most is None else most,
        )

    def _cease(self, row: R, kind: str, *, at: datetime, by: str, why: str) -> None:
        self._stop(row, State(kind), at=at, by=by, why=why)

    def _stop(self, row: R, state: State, *, at: datetime, by: str, why: str) -> None:
        """End the effect of a restriction."""
        was_in_force = row.state == State.IN_FORCE
        row.state = state
        row.version += 1
        row.pending_value, row.pending_why = None, ""
        # What a person lifted earlier has ended then, by that person.
        if was_in_force or row.ended_at is None:
            super()._cease(row, state, at=at, by=by, why=why)

    # --- What people do --------------------------------------------------------------------------

    def extend(self, pk: int, *, expires_at: datetime, by: str, now: datetime) -> R:
        """Draw out a lease; it cannot be made shorter. Raises :class:`Conflict`, BadRestriction."""

        def change(row: R) -> Line[R]:
            if not row.expires_at < expires_at <= now + LONGEST:
                raise BadRestriction(
                    "expires_at",
                    f"it ends at {row.expires_at.isoformat()}: give a later time, within"
                    f" {LONGEST.days} days",
                    "to end it earlier, lift it",
                )
            row.expires_at = expires_at
            return Line(row, LineKind.EXTENDED, now, by, f"until {expires_at.isoformat()}")

        return self._decided(pk, change, now=now)

    def lift(self, pk: int, *, by: str, why: str, now: datetime, version: int = 0) -> R:
        """End a restriction. That of a policy stays lifted for as long as its cause goes on.

        ``version``: what the person has seen; 0: whatever it is. Raises :class:`Conflict`.
        """

        def change(row: R) -> Line[R]:
            is_of_a_person = row.owner.startswith(PERSON)
            state = State.RELEASED if is_of_a_person else State.REFUSED
            self._stop(row, state, at=now, by=by, why=why)
            return Line(row, LineKind.LIFTED, now, by, why)

        return self._decided(pk, change, now=now, version=version)

    def approve(self, pk: int, *, by: str, now: datetime, version: int = 0) -> R:
        """Approve a restriction that waits for a person, or that a person refused.

        Raises :class:`Conflict`.
        """

        def change(row: R) -> Line[R]:
            self.ensure_closed()
            if row.state == State.IN_FORCE:
                _ensure_waiting(row)
            row.value = row.value if row.pending_value is None else row.pending_value
            row.pending_value = None
            row.decided_by = by
            _come_into_force(row, now)
            data = {} if row.value is None else {"value": row.value}
            return Line(row, LineKind.APPROVED, now, by, data=data)

        return self._decided(pk, change, now=now, version=version, states=LIVE)

    def refuse(self, pk: int, *, by: str, why: str, now: datetime, version: int = 0) -> R:
        """Refuse a restriction that waits for a person, for as long as its cause goes on.

        Raises :class:`Conflict`.
        """

        def change(row: R) -> Line[R]:
            _ensure_waiting(row)
            if row.state == State.PENDING_APPROVAL:
                self._stop(row, State.REFUSED, at=now, by=by, why=why)
            else:  # what is in force goes on; only the stricter value is refused
                row.refused_value, row.pending_value, row.pending_why = row.pending_value, None, ""
                row.version += 1
            return Line(row, LineKind.REFUSED, now, by, why)

        return self._decided(pk, change, now=now, version=version)

    def ensure_closed(self) -> None:
        """Raise :class:`BreakerOpen` where people have opened the fleet breaker."""
        breaker = self.store.breaker()
        if breaker.is_open:
            raise BreakerOpen(breaker)

    def _decided(
        self,
        pk: int,
        change: Callable[[R], Line[R]],
        *,
        now: datetime,
        version: int = 0,
        states: Collection[str] = (State.IN_FORCE, State.PENDING_APPROVAL),
    ) -> R:
        """Change a live restriction while no other writer can."""
        with self.store.writing():
            self.expire(now)
            row = self.store.get(pk)
            _ensure_live(row, states)
            if version and version != row.version:
                raise Conflict("changed", "it has changed since you looked: look again")
            line = change(row)
            is_over = row.state not in LIVE
            self.store.save(
                Changes(
                    now,
                    changed=[] if is_over else [row],
                    ended=[row] if is_over else [],
                    lines=[line],
                )
            )
        return row


def _come_into_force(row: Lease, now: datetime) -> None:
    """Put a restriction in force with its present value."""
    row.state = State.IN_FORCE
    row.pending_why = row.ended_by = row.ended_why = ""
    row.ended_at = None
    row.version += 1
    row.cycle += 1
    row.effect_at = now if row.starts_at is None else max(now, row.starts_at)


def _announcement(row: Lease, now: datetime) -> str:
    if row.starts_at is None or row.starts_at <= now:
        return ""
    return f"announced: to be met from {row.starts_at:%Y-%m-%d %H:%M:%S} UTC"


def _ensure_live(row: Lease, states: Collection[str]) -> None:
    if row.state not in states:
        by = f" by {row.ended_by}" if row.ended_by else ""
        raise Conflict("ended", f"it is {State(row.state).label.lower()}{by} already")


def _ensure_waiting(row: Lease) -> None:
    if row.state != State.PENDING_APPROVAL and row.pending_value is None:
        raise Conflict("not_held", "nothing of it waits for a person")


def _breaker_of(why_not: str) -> str:
    """Tell which breaker speaks. Its figures change with each round, and are no news."""
    return why_not.partition(" ")[0]


def _number(value: float | None) -> float:
    return -math.inf if value is None else value


def _as_json(value: Any) -> Any:
    """Return ``value`` as Postgres' JSON can hold it: values that it lacks become null, or words.

    Numbers of headroom may be unknown or without bound, and no evidence is to keep an effect from
    being.
    """
    if isinstance(value, Mapping):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(inner) for inner in value]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):  # NumPy's float64 is one, too
        return plain(float(value))
    return str(value).replace("\x00", "")
