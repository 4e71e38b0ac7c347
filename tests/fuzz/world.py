"""The server's side of a run: something of everything, and somebody of each kind."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from accounts.models import ApiToken, User
from accounts.roles import Role
from tests.fuzz.making import Identity

_ROLES = (Role.ADMIN, Role.OPERATOR, Role.ML_USER, Role.VIEWER)


def people() -> dict[str, Identity]:
    """Return one of each role, and an agent, with what they show. They are made where missing."""
    return {str(role): _person(role) for role in _ROLES}


def _person(role: Role) -> Identity:
    user, _ = User.objects.update_or_create(
        username=f"fuzz-{role}", defaults={"role": role, "is_active": True}
    )
    _, secret = ApiToken.issue(user, "fuzz")
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return Identity(secret, f"sessionid={session.session_key}")
