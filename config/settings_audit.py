"""Settings in the audit log: those changed since the last start, without secrets."""

from __future__ import annotations

import hashlib
import hmac
import importlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from accounts import audit
from accounts.models import AuditEntry

__all__ = ["current", "note"]

#: Names of settings whose values are not shown. URLs may hold passwords.
_SECRET = re.compile(r"KEY|PASSWORD|TOKEN|SECRET|_URL$")
_LABEL = b"headroom.settings"


def current() -> dict[str, Any]:
    """Return the settings that are plain values; secrets as keyed digests."""
    module = importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
    return {
        name: _shown(name, value)
        for name, value in sorted(vars(module).items())
        if name.isupper() and _is_plain(value)
    }


def note() -> bool:
    """Add an entry where a setting differs from the last entry. False: none does."""
    with transaction.atomic():
        last = AuditEntry.objects.filter(action="settings.change").order_by("-id").first()
        before: Mapping[str, Any] | None = last.detail["settings"] if last else None
        after = current()
        if before == after:
            return False
        changed = audit.changes(before, after) if before is not None else {}
        audit.record(audit.SYSTEM, "settings.change", settings=after, **changed)
    return True


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, str | int | float | bool | Path)


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if not (_SECRET.search(name) and isinstance(value, str) and value):
        return value
    key = hashlib.sha256(_LABEL + settings.SECRET_KEY.encode()).digest()
    digest = hmac.new(key, f"{name}={value}".encode(), hashlib.sha256).hexdigest()
    return f"(secret {digest[:8]})"
