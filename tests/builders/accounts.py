"""Users, tokens and clients for tests."""

from __future__ import annotations

import itertools

from django.test import Client
from django.utils import timezone

from accounts.models import ApiToken, User
from accounts.roles import Role

PASSWORD = "correct horse battery"

_numbers = itertools.count()


def make_user(role: Role = Role.VIEWER, *, username: str = "", is_active: bool = True) -> User:
    """Create a user with :data:`PASSWORD`."""
    username = username or f"{role}-{next(_numbers)}"
    return User.objects.create_user(username, password=PASSWORD, role=role, is_active=is_active)


def make_token(user: User) -> str:
    """Create a token of ``user`` that is in use, and return its secret."""
    token, secret = ApiToken.issue(user, "test")
    # The use of one that was not would be written down, which is a query more.
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=timezone.now())
    return secret


def client_of(role: Role = Role.VIEWER) -> Client:
    """Return a browser in which somebody of this role is logged in."""
    client = Client()
    client.force_login(make_user(role))
    return client


def bearer(secret: str) -> dict[str, str]:
    """Return the header that carries a token, for ``client.get(url, headers=…)``."""
    return {"Authorization": f"Bearer {secret}"}


def api_client(role: Role = Role.VIEWER) -> Client:
    """Return a client that sends an API token of somebody of this role."""
    return Client(headers=bearer(make_token(make_user(role))))
