"""Passwords as Django checks them; permissions by role alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend

from accounts.models import User
from accounts.roles import MODEL_CAPABILITIES, Capability

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser
    from django.db.models import Model
    from django.http import HttpRequest


class RoleBackend(ModelBackend):
    """Answers the admin site's questions for permissions out of the role's capabilities.

    Groups and permissions of single users, which Django would also look at, do not count.
    """

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """Return the user of this name and password, if passwords let them in at all.

        The password is looked at first: who may not use one looks and costs the same as a stranger.
        """
        user = super().authenticate(request, username, password, **kwargs)
        return user if isinstance(user, User) and may_use_password(user) else None

    def has_perm(self, user_obj: User | AnonymousUser, perm: str, obj: Model | None = None) -> bool:
        """Say whether the role holds the capability for ``perm``, such as ``fleet.change_rack``."""
        app_label, _, action = perm.partition(".")
        capability = _needed(app_label, viewing=action.startswith("view_"))
        return isinstance(user_obj, User) and capability is not None and user_obj.can(capability)

    def has_module_perms(self, user_obj: User | AnonymousUser, app_label: str) -> bool:
        """Say whether the role may view any model of an app."""
        capability = _needed(app_label, viewing=True)
        return isinstance(user_obj, User) and capability is not None and user_obj.can(capability)

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        return set()


def may_use_password(user: User) -> bool:
    """Say whether a password lets ``user`` in at all."""
    return settings.LOCAL_LOGIN == "all" or user.username in settings.EMERGENCY_USERS


def _needed(app_label: str, *, viewing: bool) -> Capability | None:
    capabilities = MODEL_CAPABILITIES.get(app_label)
    return None if capabilities is None else capabilities[0 if viewing else 1]
