"""Links by which a person sets a password that nobody else knows.

An admin makes one and hands it over; no mail server is asked for. It is shown once, and kept
nowhere: Django's generator signs it over what the account is now. So it ends when a password is
set, when its user logs in, when another link is made or this one is taken back, and a day after it
was made.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.backends import may_use_password
from accounts.models import User
from accounts.sessions import actions as sessions
from accounts.users import role_decided_by

__all__ = ["ends_at", "make", "opened_by", "set_password", "take_back", "why_not"]


class _Links(PasswordResetTokenGenerator):
    key_salt = "accounts.password_links"

    def _make_hash_value(self, user: Any, timestamp: int) -> str:
        # Whatever else changes, such as the address, the link goes on as its user's page says.
        return f"{user.pk}{user.password}{user.last_login}{user.link_made_at}{timestamp}"


_links = _Links()


def why_not(user: User) -> str:
    """Return why nobody can set a password of ``user`` by a link; empty where one can be made."""
    if not user.is_active:
        return "the user is not active"
    if not may_use_password(user):
        return "passwords are for emergency accounts alone here"
    if not user.has_usable_password() and (decides := role_decided_by(user)):
        return f"the user logs in by {decides}, and has no password here"
    return ""


def ends_at(user: User) -> datetime | None:
    """Return when the link of ``user`` ends; None where there is none that opens anything."""
    made_at = user.link_made_at
    if made_at is None or (user.last_login is not None and user.last_login > made_at):
        return None
    end = made_at + timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT)
    return end if end > timezone.now() and not why_not(user) else None


@transaction.atomic
def make(actor: User, user: User) -> str:
    """Make a link for ``user`` in place of any other, and return its token, which is not kept."""
    row = _locked(user.pk)
    _write(row, timezone.now())
    audit.record(actor, "password.link", row.username)
    return _links.make_token(row)


@transaction.atomic
def take_back(actor: User, user: User) -> bool:
    """End the link of a user. Return False where there was none."""
    row = _locked(user.pk)
    if row.link_made_at is None:
        return False
    _write(row, None)
    audit.record(actor, "password.link_end", row.username)
    return True


def opened_by(user_id: int, token: str, *, lock: bool = False) -> User | None:
    """Return the user whose password may be set by this token. One query, or two.

    With ``lock``, which takes a transaction, nobody else can use it meanwhile.
    """
    rows = User.objects.select_for_update() if lock else User.objects.all()
    user = rows.filter(pk=user_id, link_made_at__isnull=False).first()
    if user is None or not _links.check_token(user, token) or why_not(user):
        return None
    return user


@transaction.atomic
def set_password(user: User, password: str, **origin: Any) -> None:
    """Set the password of a user that :func:`opened_by` has locked, and use the link up.

    All sessions and tokens of the user end. ``origin`` is for the audit log.
    """
    user.set_password(password)
    user.save(update_fields=["password"])
    audit.record(user, "password.by_link", user.username, **origin)
    sessions.end_all(user, user, why="password")


def _locked(pk: int) -> User:
    return User.objects.select_for_update().get(pk=pk)


def _write(row: User, made_at: datetime | None) -> None:
    row.link_made_at = made_at
    row.save(update_fields=["link_made_at"])
