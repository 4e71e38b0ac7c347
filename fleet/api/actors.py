from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.exceptions import NotAuthenticated

from accounts.models import User

if TYPE_CHECKING:
    from rest_framework.request import Request


def actor_of(request: Request) -> User:
    """Return who asks; the permissions have let nobody in who is not known."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user
