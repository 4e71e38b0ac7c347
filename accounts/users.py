"""Making and changing users, with the line in the audit log.

Whoever makes or changes one, on the pages or on the admin site, is held to :func:`check_change`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q

from accounts import audit
from accounts.models import User
from accounts.roles import CAPABILITIES, Role
from accounts.sessions import actions as sessions
from accounts.sign_on import provider

__all__ = ["change", "check_change", "create", "keep_an_admin", "may_give", "role_decided_by"]

_ACTIVE_ADMIN = Q(role=Role.ADMIN, is_active=True)
#: Where one of these changes, all sessions of the user end.
_OF_RIGHTS = {"role", "is_active"}


def role_decided_by(user: User) -> str:
    """Return the name of the identity provider whose groups decide the role of ``user``.

    Empty where admins do. One query where there is a provider.
    """
    if not provider.is_configured():
        return ""
    is_theirs = user.identities.filter(issuer=settings.OIDC_ISSUER).exists()
    return settings.OIDC_NAME if is_theirs else ""


def may_give(actor: User, role: str) -> bool:
    """Say whether ``actor`` may do all that somebody of ``role`` may, and so give it."""
    return CAPABILITIES[role] <= actor.capabilities


@transaction.atomic
def create(actor: User, *, username: str, role: str, **person: str) -> User:
    """Make a user without a password: who it is for sets one, by a link of ``password_links``.

    Raises ``ValidationError``, by field.
    """
    user = User(username=username, role=role, **person)
    user.set_unusable_password()
    user.clean_fields(exclude=["password"])
    _check_role(actor, role)
    if User.objects.filter(username__iexact=username).exists():
        raise _name_taken()
    try:
        with transaction.atomic():
            user.save(force_insert=True)
    except IntegrityError as error:
        raise _name_taken() from error
    told = audit.changes(None, audit.state(user))
    audit.record(actor, "user.create", username, **told, role=role, active=True)
    return user


@transaction.atomic
def change(actor: User, user: User, **fields: Any) -> User:
    """Change fields of a user; with another role, or not active any more, all sessions end.

    Return the user as it is then. Raises ``ValidationError``, by field.
    """
    row = _locked(user.pk)
    before = audit.state(row)
    check_change(actor, row, **{name: fields[name] for name in _OF_RIGHTS & fields.keys()})
    changed = {name: value for name, value in fields.items() if getattr(row, name) != value}
    if not changed:
        return row
    for name, value in changed.items():
        setattr(row, name, value)
    row.clean_fields(exclude=["password"])
    row.save(update_fields=list(changed))
    told = audit.changes(before, audit.state(row))
    audit.record(actor, "user.change", row.username, **told, role=row.role, active=row.is_active)
    if _OF_RIGHTS & changed.keys():
        sessions.end_all(actor, row, why="user.change")
    return row


def check_change(
    actor: User, user: User, *, role: str | None = None, is_active: bool | None = None
) -> None:
    """Refuse what nobody may do to ``user``, which is as it is stored; None: stays so.

    Call it in the transaction of the change. Raises ``ValidationError``, by field.
    """
    if role is not None and role != user.role:
        _check_role(actor, role)
        if decides := role_decided_by(user):
            raise ValidationError(
                {"role": f"{decides} decides it, by groups, anew at each sign-on. Change it there."}
            )
    if role not in (None, Role.ADMIN):
        keep_an_admin([user.pk], "role")
    if is_active is False:
        keep_an_admin([user.pk], "is_active")


def keep_an_admin(leaving: Collection[int], field: str) -> None:
    """Refuse to lose the last active admin, were the users ``leaving`` to be none any more.

    Locks all active admins until the transaction ends: of two who take the role from each other at
    once the second one is refused. Raises ``ValidationError``.
    """
    admins = User.objects.filter(_ACTIVE_ADMIN).select_for_update().order_by("pk")
    found = set(admins.values_list("pk", flat=True))
    if found and found <= set(leaving):
        raise ValidationError(
            {field: "This is the last active admin. Make another user an admin first."}
        )


def _check_role(actor: User, role: str) -> None:
    if not may_give(actor, role):
        raise ValidationError(
            {"role": f"You may not give the role {role}: it may do what you may not."}
        )


def _locked(pk: int) -> User:
    """Return a user for a change, locked together with all admins.

    In one order, so that no two changes wait for each other.
    """
    rows = User.objects.filter(_ACTIVE_ADMIN | Q(pk=pk)).select_for_update().order_by("pk")
    found = {row.pk: row for row in rows}
    if pk not in found:
        raise User.DoesNotExist
    return found[pk]


def _name_taken() -> ValidationError:
    return ValidationError({"username": "There is a user of this name, in whatever case."})
