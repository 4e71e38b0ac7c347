"""The standing of sessions: the users and rights that they represent, many at once."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.utils import timezone

from accounts.models import Session, User
from accounts.sessions.facts import Facts
from accounts.sessions.store import SessionStore

__all__ = ["standing"]


def standing(keys: Collection[str]) -> dict[str, Hashable]:
    """Return the standing of each live session of ``keys``; two queries for all of them.

    While that stays the same, the session means the same user with the same rights. A session that
    has ended, belongs to nobody, or lacks a second factor that it needs by now, is left out.
    """
    live = Session.objects.live(timezone.now()).filter(pk__in=keys)
    store = SessionStore()
    found = {row.session_key: store.decode(row.session_data) for row in live}
    ids = {data[SESSION_KEY] for data in found.values() if SESSION_KEY in data}
    users = {
        str(user[0]): user
        for user in User.objects.filter(is_active=True, pk__in=ids).values_list(
            "pk", "password", "role"
        )
    }
    return {
        key: (users[data[SESSION_KEY]], data.get(HASH_SESSION_KEY))
        for key, data in found.items()
        if data.get(SESSION_KEY) in users and _is_enough(data, users[data[SESSION_KEY]][2])
    }


def _is_enough(data: dict[str, Any], role: str) -> bool:
    return role not in settings.SECOND_FACTOR_ROLES or Facts.of(data).second_factor
