"""Logins, logouts, failures and lockouts, in the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver

from accounts import audit, logins
from accounts.addresses import client_address
from accounts.models import User
from accounts.sessions.facts import Way

if TYPE_CHECKING:
    from django.http import HttpRequest

ANONYMOUS = "anonymous"

log = structlog.get_logger(__name__)


@receiver(user_logged_in)
def note_login(request: HttpRequest | None, user: User, **_: Any) -> None:
    if request is None:
        audit.record(user, "login")
        return
    facts = logins.note_facts(request)
    told: dict[str, Any] = {"way": facts.way, "second_factor": facts.second_factor}
    if facts.way == Way.PASSWORD and settings.LOCAL_LOGIN == "emergency":
        told["emergency"] = True
        log.warning("login.emergency", user_id=user.pk)
    audit.record(user, "login", **told, **_origin(request))


@receiver(user_logged_out)
def note_logout(request: HttpRequest | None, user: User | None, **_: Any) -> None:
    if user is not None:
        audit.record(user, "logout", **_origin(request))


@receiver(user_login_failed)
def note_failed_login(
    credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any
) -> None:
    # The try that locks is noted below. Those that follow are not looked at, and would let anybody
    # fill the table. (Axes hears of a failed login before us: the import above connects it.)
    if not getattr(request, "axes_locked_out", False):
        audit.record(ANONYMOUS, "login.failed", _known(credentials), **_origin(request))


@receiver(user_locked_out)
def note_lockout(request: HttpRequest, username: str, **_: Any) -> None:
    # Sent at each try during the lockout; only the one that led to it was counted.
    if getattr(request, "axes_failures_since_start", None) is not None:
        audit.record(ANONYMOUS, "login.locked", _known({"username": username}), **_origin(request))


def _known(credentials: dict[str, Any]) -> str:
    """Return the user name if there is such a user.

    Other input is not kept: people type passwords into the wrong field, and the log is for ever.
    """
    username = credentials.get("username") or ""
    return username if User.objects.filter(username=username).exists() else "(unknown user)"


def _origin(request: HttpRequest | None) -> dict[str, Any]:
    return {} if request is None else {"ip": client_address(request)}
