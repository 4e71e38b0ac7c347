"""Actions of people on restrictions, each with its line in the ledger and in the audit log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from django.db import transaction

from accounts import audit
from accounts.models import User
from fleet import snapshot
from policies.restrictions import store
from policies.restrictions.book import BreakerOpen, Conflict
from policies.restrictions.kinds import Wanted, check
from policies.restrictions.models import FleetBreaker, Restriction

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


def owner_of(user: User) -> str:
    """Return the name under which a person owns restrictions."""
    return f"user:{user.get_username()}"


@transaction.atomic
def issue(user: User, wanted: Wanted, *, now: datetime) -> Restriction:
    """Put a person's restriction in force at once.

    Raises :class:`~policies.restrictions.kinds.BadRestriction`, :class:`Conflict`.
    """
    check(wanted, snapshot.fresh(), now=now)
    with store.writing():
        book = store.book()
        book.ensure_closed()
        book.expire(now)
        issued = book.issue([wanted], now=now)
        if not issued:
            raise Conflict("exists", "you have this very restriction in force: extend it")
        row: Restriction = issued[0]
        audit.record(
            user, "restriction.issue", str(row.scope), id=row.pk, kind=row.kind, value=row.value,
            expires_at=row.expires_at.isoformat(), reason=row.reason,
            **audit.changes(None, audit.state(row)),
        )  # fmt: skip
    return row


def extend(user: User, pk: int, *, expires_at: datetime, now: datetime) -> Restriction:
    """Draw out a lease; it cannot be made shorter. Raises :class:`Conflict`, BadRestriction."""
    change = partial(store.book().extend, expires_at=expires_at)
    return _changed(user, pk, "restriction.extend", change, now=now)


def lift(user: User, pk: int, *, why: str, now: datetime, version: int = 0) -> Restriction:
    """End a restriction. That of a policy stays lifted for as long as its cause goes on.

    ``version``: what the person has seen; 0: whatever it is. Raises :class:`Conflict`.
    """
    change = partial(store.book().lift, why=why, version=version)
    return _changed(user, pk, "restriction.lift", change, now=now, why=why)


def approve(user: User, pk: int, *, now: datetime, version: int = 0) -> Restriction:
    """Approve a restriction that waits for a person, or that a person refused.

    Raises :class:`Conflict`.
    """
    change = partial(store.book().approve, version=version)
    return _changed(user, pk, "restriction.approve", change, now=now)


def refuse(user: User, pk: int, *, why: str, now: datetime, version: int = 0) -> Restriction:
    """Refuse a restriction that waits for a person, for as long as its cause goes on.

    Raises :class:`Conflict`.
    """
    change = partial(store.book().refuse, why=why, version=version)
    return _changed(user, pk, "restriction.refuse", change, now=now, why=why)


@transaction.atomic
def throw_breaker(user: User, *, is_open: bool, reason: str, now: datetime) -> FleetBreaker:
    """Open or close the fleet breaker. Waiting restrictions come in at their owners' next call."""
    with store.writing():
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
    change: Callable[..., Restriction],
    *,
    now: datetime,
    **detail: str,
) -> Restriction:
    """Change a live restriction under the lock of its store, with an entry in the audit log."""
    with store.writing():
        before = audit.state(Restriction.objects.get(pk=pk))
        row = change(pk, by=user.get_username(), now=now)
        told = audit.changes(before, audit.state(row))
        audit.record(user, action, str(row.scope), id=row.pk, kind=row.kind, **detail, **told)
    return row
