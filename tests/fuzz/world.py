"""The server's side of a run: something of everything, and somebody of each kind."""

from __future__ import annotations

from accounts.models import ApiToken, User
from accounts.roles import Role
from bench.django_in import session_cookie
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
    return Identity(secret, session_cookie(user.username))
