"""Notes when each session was last used, and ends those that lack a second factor now required."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from accounts.sessions.facts import Facts
from accounts.sessions.models import Session
from accounts.sessions.store import SessionStore

#: A session's row is written no more often than this.
_SEEN_EVERY = timedelta(minutes=1)


class SessionUseMiddleware:
    """Stands behind Django's middleware for authentication."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.SECOND_FACTOR_ROLES and _lacks_second_factor(request):
            logout(request)
        response = self._get_response(request)
        # Whoever did not look at the session is not made to: probes and polls ask for little.
        if request.session.accessed and _by_a_person(request):
            _see(request.session)
        return response


def _lacks_second_factor(request: HttpRequest) -> bool:
    """Say whether a session lacks the second factor that its user's role requires by now."""
    role = getattr(request.user, "role", None)
    return role in settings.SECOND_FACTOR_ROLES and not Facts.of(request.session).second_factor


def _by_a_person(request: HttpRequest) -> bool:
    """Say whether a person made the request, and not a page that polls."""
    return request.method not in ("GET", "HEAD") or request.headers.get("Sec-Fetch-Dest") != "empty"


def _see(session: object) -> None:
    now = timezone.now()
    if not isinstance(session, SessionStore) or session.last_seen_at is None:
        return  # it was not loaded: it is new
    if now - session.last_seen_at >= _SEEN_EVERY:
        Session.objects.filter(pk=session.session_key).update(last_seen_at=now)
