"""Writing to the audit log."""

from __future__ import annotations

from typing import Any

from accounts.models import AuditEntry, User

SYSTEM = "system"


def record(actor: User | str, action: str, target: str = "", **detail: Any) -> AuditEntry:
    """Add one entry. Call it inside the transaction that it tells of."""
    name = actor if isinstance(actor, str) else actor.get_username()
    return AuditEntry.objects.create(actor=name, action=action, target=target[:300], detail=detail)
