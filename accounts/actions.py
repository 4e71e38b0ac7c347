"""Actions on users and tokens, each with its line in the audit log."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.models import ApiToken, User
from accounts.roles import Capability


class TokenRefused(Exception):
    """A token that may not be made like this. ``field``: the field at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def token_end(days: int | None) -> datetime | None:
    """Return the end of a token that lasts for ``days``; 0: never; None: the usual time.

    Raises :class:`TokenRefused`.
    """
    days = min(settings.API_TOKEN_DAYS, settings.API_TOKEN_MAX_DAYS) if days is None else days
    if days == 0:
        if not settings.API_TOKEN_MAY_BE_ENDLESS:
            raise TokenRefused("days", f"it has to end: {_up_to()}")
        return None
    if not 0 < days <= settings.API_TOKEN_MAX_DAYS:
        raise TokenRefused("days", f"{days} is not a length that it can have: {_up_to()}")
    return timezone.now() + timedelta(days=days)


def _up_to() -> str:
    endless = ", or 0 for never" if settings.API_TOKEN_MAY_BE_ENDLESS else ""
    return f"give 1 to {settings.API_TOKEN_MAX_DAYS} days{endless}"


@transaction.atomic
def create_token(
    actor: User | str,
    user: User,
    name: str,
    *,
    expires_at: datetime | None = None,
    scope: Collection[Capability] | None = None,
) -> tuple[ApiToken, str]:
    """Make an API token of ``user`` and return it with its secret, which is not kept.

    ``scope``: the capabilities that it is for; None: all that its user may. Raises
    :class:`TokenRefused` where the user may not do all of it.
    """
    beyond = sorted(each.phrase for each in (scope or ()) if not user.can(each))
    if beyond:
        raise TokenRefused("scope", f"{user.username} may not {', '.join(beyond)}")
    token, secret = ApiToken.issue(user, name, expires_at=expires_at, scope=scope)
    told = audit.changes(None, audit.state(token))
    audit.record(actor, "token.create", user.username, name=name, hint=token.hint, **told)
    return token, secret


@transaction.atomic
def revoke_token(actor: User | str, token: ApiToken) -> bool:
    """End a token for good. Return False where it was revoked before."""
    before = audit.state(token)
    now = timezone.now()
    if not ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now):
        return False
    token.revoked_at = now
    told = audit.changes(before, audit.state(token))
    of_token = {"name": token.name, "hint": token.hint}
    audit.record(actor, "token.revoke", token.user.username, **of_token, **told)
    return True
