"""Writing to the audit log."""

from __future__ import annotations

from typing import Any

from accounts.models import AuditEntry, User

SYSTEM = "system"


def record(actor: User | str, action: str, target: str = "", **detail: Any) -> AuditEntry:
    """Add one entry. Call it inside the transaction that it tells of."""
    made = entry(actor, action, target, **detail)
    made.save(force_insert=True)
    return made


def entry(actor: User | str, action: str, target: str = "", **detail: Any) -> AuditEntry:
    """Return an entry for those who write it themselves, with what it tells of."""
    name = actor if isinstance(actor, str) else actor.get_username()
    return AuditEntry(actor=name, action=action, target=target[:300], detail=detail)
