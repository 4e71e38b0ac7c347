"""Ending sessions, with the line in the audit log. Ended sessions open nothing any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from accounts import audit
from accounts.sessions.models import Session

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from accounts.models import User


@transaction.atomic
def end(actor: User | str, user: User, handle: str) -> bool:
    """End one session of ``user``. Return False where there is none of this handle."""
    named = [session.pk for session in user.sessions.all() if session.handle == handle]
    return _ended(actor, user, Session.objects.filter(pk__in=named), why="one")


@transaction.atomic
def end_all(actor: User | str, user: User, *, but: str | None = None, why: str) -> bool:
    """End all sessions of ``user`` but that with the key ``but``. Say whether there were any."""
    return _ended(actor, user, Session.objects.filter(user=user).exclude(pk=but), why=why)


def _ended(actor: User | str, user: User, sessions: QuerySet[Session], *, why: str) -> bool:
    count, _ = sessions.delete()
    if count:
        audit.record(actor, "session.end", user.username, sessions=count, why=why)
    return bool(count)
