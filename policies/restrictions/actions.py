"""What people do with restrictions, each with its line in the ledger and in the audit log."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from django.db import transaction

from accounts import audit
from accounts.models import User
from fleet import snapshot
from policies.restrictions import metrics
from policies.restrictions.kinds import LONGEST, BadRestriction, Wanted, check
from policies.restrictions.models import FleetBreaker, Restriction, RestrictionEvent
from policies.restrictions.store import (
    FIELDS,
    cease,
    come_into_force,
    expire,
    hold,
    note,
    writing,
)

__all__ = [
    "BreakerOpen",
    "Conflict",
    "approve",
    "extend",
    "issue",
    "lift",
    "owner_of",
    "refuse",
    "throw_breaker",
]

_Kind = RestrictionEvent.Kind
_State = Restriction.State


class Conflict(Exception):
    """It is not as whoever asks takes it to be. ``code`` says what is in the way."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BreakerOpen(Conflict):
    """The fleet breaker is open: no effect is added."""

    def __init__(self, breaker: FleetBreaker) -> None:
        super().__init__(
            "fleet_breaker_open",
            f"{breaker.by} has opened the fleet breaker ({breaker.reason}); close it first",
        )


def owner_of(user: User) -> str:
    """Return the owner of what a person issues."""
    return f"user:{user.get_username()}"


@transaction.atomic
def issue(user: User, wanted: Wanted, *, now: datetime) -> Restriction:
    """Have what a person wants be in force at once.

    Raises :class:`~policies.restrictions.kinds.BadRestriction`, :class:`Conflict`.
    """
    check(wanted, snapshot.fresh(), now=now)
    with writing():
        _ensure_closed()
        expire(now)
        live = {row.key for row in Restriction.objects.live().of_owners([wanted.owner])}
        if wanted.key in live:
            raise Conflict("exists", "you have this very restriction in force: extend it")
        (row,) = hold([wanted], now=now)
        audit.record(
            user, "restriction.issue", str(row.scope), id=row.pk, kind=row.kind, value=row.value,
            expires_at=row.expires_at.isoformat(), reason=row.reason,
            **audit.changes(None, audit.state(row)),
        )  # fmt: skip
    return row


def extend(user: User, pk: int, *, expires_at: datetime, now: datetime) -> Restriction:
    """Draw out a lease; it cannot be made shorter. Raises :class:`Conflict`, BadRestriction."""

    def change(row: Restriction) -> RestrictionEvent:
        if not row.expires_at < expires_at <= now + LONGEST:
            raise BadRestriction(
                "expires_at",
                f"it ends at {row.expires_at.isoformat()}: give a later time, within"
                f" {LONGEST.days} days",
                "to end it earlier, lift it",
            )
        row.expires_at = expires_at
        text = f"until {expires_at.isoformat()}"
        return note(row, _Kind.EXTENDED, at=now, by=user.get_username(), text=text)

    return _changed(user, pk, "restriction.extend", change, now=now)


def lift(user: User, pk: int, *, why: str, now: datetime, version: int = 0) -> Restriction:
    """End a restriction. That of a policy stays lifted for as long as its cause goes on.

    ``version``: what the person has seen; 0: whatever it is. Raises :class:`Conflict`.
    """

    def change(row: Restriction) -> RestrictionEvent:
        state = _State.RELEASED if row.is_of_a_person else _State.REFUSED
        cease(row, state, at=now, by=user.get_username(), why=why)
        return note(row, _Kind.LIFTED, at=now, by=user.get_username(), text=why)

    return _changed(user, pk, "restriction.lift", change, now=now, version=version, why=why)


def approve(user: User, pk: int, *, now: datetime, version: int = 0) -> Restriction:
    """Let what waits for a person, or what a person refused, have its effect.

    Raises :class:`Conflict`.
    """

    def change(row: Restriction) -> RestrictionEvent:
        _ensure_closed()
        if row.state == _State.IN_FORCE:
            _ensure_waiting(row)
        row.value = row.value if row.held_value is None else row.held_value
        row.held_value = None
        row.decided_by = user.get_username()
        come_into_force(row, now)
        data = {} if row.value is None else {"value": row.value}
        return note(row, _Kind.APPROVED, at=now, by=row.decided_by, text="", **data)

    return _changed(
        user,
        pk,
        "restriction.approve",
        change,
        now=now,
        version=version,
        states=Restriction.LIVE,
    )


def refuse(user: User, pk: int, *, why: str, now: datetime, version: int = 0) -> Restriction:
    """Say no to what waits for a person, for as long as its cause goes on.

    Raises :class:`Conflict`.
    """

    def change(row: Restriction) -> RestrictionEvent:
        _ensure_waiting(row)
        if row.state == _State.HELD:
            cease(row, _State.REFUSED, at=now, by=user.get_username(), why=why)
        else:  # what is in force goes on; only the stricter value is refused
            row.refused_value, row.held_value, row.held_why = row.held_value, None, ""
            row.version += 1
        return note(row, _Kind.REFUSED, at=now, by=user.get_username(), text=why)

    return _changed(user, pk, "restriction.refuse", change, now=now, version=version, why=why)


@transaction.atomic
def throw_breaker(user: User, *, is_open: bool, reason: str, now: datetime) -> FleetBreaker:
    """Open the fleet breaker, or close it. Closing brings in what waits at its owners' next say."""
    with writing():
        before = audit.state(FleetBreaker.current())
        breaker, _ = FleetBreaker.objects.update_or_create(
            id=1,
            defaults={
                "is_open": is_open, "by": user.get_username(), "reason": reason, "at": now
            },
        )  # fmt: skip
        action = "fleet_breaker.open" if is_open else "fleet_breaker.close"
        told = audit.changes(before, audit.state(breaker))
        audit.record(user, action, reason=reason, **told)
    return breaker


def _changed(
    user: User,
    pk: int,
    action: str,
    change: Callable[[Restriction], RestrictionEvent],
    *,
    now: datetime,
    version: int = 0,
    states: Collection[str] = (_State.IN_FORCE, _State.HELD),
    **detail: str,
) -> Restriction:
    """Change a live restriction as nobody else can meanwhile; write the ledger and the audit."""
    with writing():
        expire(now)
        row = Restriction.objects.get(pk=pk)
        _ensure_live(row, states)
        if version and version != row.version:
            raise Conflict("changed", "it has changed since you looked: look again")
        before = audit.state(row)
        event = change(row)
        row.save(update_fields=FIELDS)
        event.save()
        metrics.count([event])
        told = audit.changes(before, audit.state(row))
        audit.record(user, action, str(row.scope), id=row.pk, kind=row.kind, **detail, **told)
    return row


def _ensure_live(row: Restriction, states: Collection[str]) -> None:
    if row.state not in states:
        by = f" by {row.ended_by}" if row.ended_by else ""
        raise Conflict("ended", f"it is {row.get_state_display().lower()}{by} already")


def _ensure_waiting(row: Restriction) -> None:
    if row.state != _State.HELD and row.held_value is None:
        raise Conflict("not_held", "nothing of it waits for a person")


def _ensure_closed() -> None:
    breaker = FleetBreaker.current()
    if breaker.is_open:
        raise BreakerOpen(breaker)
