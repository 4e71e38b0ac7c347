"""How many wrong passwords there may be: for a name from an address, for either alone.

A browser in which somebody has logged in before is known for them, by a signed cookie, and has a
count of its own. So nobody can lock somebody else out of their own browser, from wherever they try.
"""

from __future__ import annotations

import math
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from axes.attempts import get_cool_off_threshold
from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_cool_off
from axes.models import AccessAttempt
from django.conf import settings
from django.core import signing
from django.db.models import Max, Sum
from django.shortcuts import render
from django.utils import timezone

from accounts.addresses import client_network

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse, HttpResponseBase

COOKIE = "known_browser"
_SALT = "accounts.lockout.known_browser"
#: A browser of somebody who has not logged in for so long counts as a stranger's again.
_KNOWN_FOR = timedelta(days=180)


class Handler(AxesDatabaseHandler):  # type: ignore[misc]
    """Axes' counts of failures, by client and name, compared with three limits in place of one."""

    def user_login_failed(
        self,
        sender: object,
        credentials: dict[str, Any],
        request: HttpRequest | None = None,
        **kwargs: Any,
    ) -> None:
        """Count a wrong password; where the browser is known, by that browser."""
        browser = request and known_browser(request, _name(credentials))
        if request is not None and browser:
            request.axes_user_agent = browser  # type: ignore[attr-defined]
        super().user_login_failed(sender, credentials, request, **kwargs)

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Return the failures that count for this attempt; a full limit reads as the first one."""
        limits = _limits(request, _name(credentials))
        first = settings.AXES_FAILURE_LIMIT
        shares = [_failures(found) / limit for found, limit in limits]
        return first if max(shares) >= 1 else int(max(shares) * first)


def remember_browser(request: HttpRequest, response: HttpResponseBase, username: str) -> None:
    """Set a cookie by which the browser is known as one of ``username`` from now on."""
    browser = known_browser(request, username) or secrets.token_urlsafe(12)
    response.set_cookie(
        COOKIE,
        signing.dumps([username, browser], salt=_SALT),
        max_age=_KNOWN_FOR,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
        path="/login/",
    )


def known_browser(request: HttpRequest, username: str) -> str | None:
    """Return the id of the browser if ``username`` has logged in there before."""
    try:
        owner, browser = signing.loads(
            request.COOKIES.get(COOKIE, ""), salt=_SALT, max_age=_KNOWN_FOR
        )
    except (signing.BadSignature, ValueError):
        return None
    return str(browser) if owner == username else None


def locked(
    request: HttpRequest, _response: HttpResponse | None, credentials: dict[str, Any] | None
) -> HttpResponse:
    """Return the page that says how long the lockout lasts."""
    left = remaining(request, _name(credentials))
    page = render(
        request,
        "registration/locked.html",
        {"minutes": math.ceil(left.total_seconds() / 60)},
        status=429,
    )
    page["Retry-After"] = str(math.ceil(left.total_seconds()))
    return page


def remaining(request: HttpRequest, username: str) -> timedelta:
    """Return the time until the next try counts for sure, at most the whole cool-off."""
    cool_off: timedelta = get_cool_off(request)
    full = [found for found, limit in _limits(request, username) if _failures(found) >= limit]
    last = [found.aggregate(last=Max("attempt_time"))["last"] for found in full]
    return max(last) + cool_off - timezone.now() if last else cool_off


def _limits(request: HttpRequest, username: str) -> list[tuple[QuerySet[AccessAttempt], int]]:
    """Return the failures that concern a try, by limit, each with the limit."""
    recent = AccessAttempt.objects.filter(attempt_time__gte=get_cool_off_threshold(request))
    by_name = recent.filter(username=username)
    browser = known_browser(request, username)
    if browser:
        return [(by_name.filter(user_agent=browser), settings.AXES_FAILURE_LIMIT)]
    network = client_network(request)
    return [
        (by_name.filter(ip_address=network), settings.AXES_FAILURE_LIMIT),
        (recent.filter(ip_address=network), settings.LOGIN_ADDRESS_LIMIT),
        (by_name, settings.LOGIN_NAME_LIMIT),
    ]


def _failures(attempts: QuerySet[AccessAttempt]) -> int:
    return attempts.aggregate(count=Sum("failures_since_start"))["count"] or 0


def _name(credentials: dict[str, Any] | None) -> str:
    return (credentials or {}).get("username") or ""
