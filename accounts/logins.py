"""Login in two steps: after the first factor comes the second, and only then the session.

Between the two the session knows whom it waits for, but nobody is logged in: no page, admin site or
API has to ask whether a second factor is missing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from django.contrib.auth import authenticate, login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from accounts.addresses import client_address
from accounts.lockout import remember_browser
from accounts.models import User
from accounts.second_factor import actions as second_factor
from accounts.sessions.facts import Facts, Way

_BACKEND = "accounts.backends.RoleBackend"
_KEY = "half_login"
#: After the first factor there is so long for the second.
_WAITS = timedelta(minutes=10)


@dataclass(frozen=True)
class _Half:
    """A first factor that was shown, and waits for the second."""

    user_id: int
    #: changes with password and role: then the first factor has to be shown again
    session_hash: str
    way: str
    next_url: str
    shown_at: str


def first_factor_shown(
    request: HttpRequest, user: User, way: Way, next_url: str, *, provider_had_second: bool = False
) -> HttpResponse:
    """Log ``user`` in, or go on to the second factor where there is one or has to be."""
    if provider_had_second:
        return _enter(request, user, way, next_url, second_factor=True)
    is_on = second_factor.is_on(user)
    if not is_on and not second_factor.is_required(user):
        return _enter(request, user, way, next_url)
    half = _Half(user.pk, user.get_session_auth_hash(), way, next_url, timezone.now().isoformat())
    request.session.flush()
    request.session[_KEY] = asdict(half)
    return redirect("login_code" if is_on else "login_enroll")


def half_logged_in(request: HttpRequest) -> User | None:
    """Return the user who has just shown the first factor here, and can still log in."""
    half = _half(request)
    if half is None or timezone.now() - datetime.fromisoformat(half.shown_at) > _WAITS:
        return None
    user = User.objects.filter(pk=half.user_id, is_active=True).first()
    if user is None or not constant_time_compare(half.session_hash, user.get_session_auth_hash()):
        return None
    return user


def second_factor_shown(request: HttpRequest, user: User) -> HttpResponse:
    """Log in the user that :func:`half_logged_in` returned."""
    half = _half(request)
    if half is None:
        return redirect("login")
    del request.session[_KEY]
    return _enter(request, user, Way(half.way), half.next_url, second_factor=True)


def user_of(request: HttpRequest) -> User:
    """Return the user of a page. Raises PermissionDenied where nobody is logged in."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def password_is_right(request: HttpRequest, user: User, password: str) -> bool:
    """Check the password of ``user``; failures count as those of a login do."""
    return authenticate(request, username=user.username, password=password) == user


def note_facts(request: HttpRequest) -> Facts:
    """Store in a new session where, when and how its user logged in."""
    given = getattr(request, "login_facts", Facts())
    facts = Facts(
        started_at=timezone.now(),
        address=client_address(request),
        agent=request.headers.get("User-Agent", "")[:255],
        way=given.way,
        second_factor=given.second_factor,
    )
    facts.write(request.session)
    return facts


def _enter(
    request: HttpRequest, user: User, way: Way, next_url: str, *, second_factor: bool = False
) -> HttpResponse:
    """Begin a session of ``user`` under a new key."""
    request.login_facts = Facts(way=way, second_factor=second_factor)  # type: ignore[attr-defined]
    login(request, user, backend=_BACKEND)
    response = redirect(next_url)
    remember_browser(request, response, user.username)
    return response


def _half(request: HttpRequest) -> _Half | None:
    kept = request.session.get(_KEY)
    return None if kept is None else _Half(**kept)
