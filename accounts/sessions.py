"""What sessions stand for, many at once."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from importlib import import_module

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.utils import timezone

__all__ = ["standing"]


def standing(keys: Collection[str]) -> dict[str, Hashable]:
    """Return for each live session of ``keys`` what it stands for; two queries for all of them.

    While that stays the same, the session means the same user with the same rights. A session that
    has ended, or belongs to nobody, is left out.
    """
    from accounts.models import User

    store = import_module(settings.SESSION_ENGINE).SessionStore
    if not hasattr(store, "get_model_class"):
        return {}  # sessions are not kept in the database
    live = store.get_model_class().objects.filter(
        session_key__in=keys, expire_date__gt=timezone.now()
    )
    found = [(row.session_key, row.get_decoded()) for row in live]
    ids = {data[SESSION_KEY] for _, data in found if SESSION_KEY in data}
    users = {
        str(user[0]): user
        for user in User.objects.filter(is_active=True, pk__in=ids).values_list(
            "pk", "password", "role"
        )
    }
    return {
        key: (users[data[SESSION_KEY]], data.get(HASH_SESSION_KEY))
        for key, data in found
        if data.get(SESSION_KEY) in users
    }
