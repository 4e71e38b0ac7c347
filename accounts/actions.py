"""What people do with users and tokens, each with its line in the audit log."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.models import ApiToken, User


@transaction.atomic
def create_token(actor: User | str, user: User, name: str) -> tuple[ApiToken, str]:
    """Make an API token of ``user`` and return it with its secret, which is not kept."""
    token, secret = ApiToken.issue(user, name)
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
