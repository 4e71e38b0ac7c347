"""What somebody sees after too many wrong passwords."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from axes.attempts import get_cool_off_threshold
from axes.helpers import get_cool_off
from axes.models import AccessAttempt
from django.db.models import Max
from django.shortcuts import render
from django.utils import timezone

from accounts.addresses import client_address

if TYPE_CHECKING:
    from datetime import timedelta

    from django.http import HttpRequest, HttpResponse


def locked(
    request: HttpRequest, _response: HttpResponse | None, credentials: dict[str, Any] | None
) -> HttpResponse:
    """Return the page that says for how long this user name is locked from this address."""
    left = remaining(request, (credentials or {}).get("username", ""))
    page = render(
        request,
        "registration/locked.html",
        {"minutes": math.ceil(left.total_seconds() / 60)},
        status=429,
    )
    page["Retry-After"] = str(math.ceil(left.total_seconds()))
    return page


def remaining(request: HttpRequest, username: str) -> timedelta:
    """Return the time until the next try counts, at most the whole cool-off."""
    cool_off: timedelta = get_cool_off(request)
    last = AccessAttempt.objects.filter(
        username=username,
        ip_address=client_address(request),
        attempt_time__gte=get_cool_off_threshold(request),
    ).aggregate(last=Max("attempt_time"))["last"]
    return cool_off if last is None else last + cool_off - timezone.now()
