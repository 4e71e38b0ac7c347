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
    audit.record(actor, "token.create", user.username, name=name, hint=token.hint)
    return token, secret


@transaction.atomic
def revoke_token(actor: User | str, token: ApiToken) -> bool:
    """End a token for good. Return False where it was revoked before."""
    revoked = ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(
        revoked_at=timezone.now()
    )
    if revoked:
        audit.record(actor, "token.revoke", token.user.username, name=token.name, hint=token.hint)
    return bool(revoked)
