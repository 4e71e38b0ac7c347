"""What every page says, whatever it is about."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from django.http import HttpRequest

from accounts import visibility
from admission.executors.schedulers import standing
from dashboard import navigation as pages
from fleet.cache import Cache
from policies.firings import Severity
from policies.incidents.models import Incident

__all__ = ["criticals", "criticals_of", "invalidate", "navigation", "schedulers"]

#: How old what pages say may be, s.
_MAX_AGE_S = 2.0
_standing: Cache[list[standing.Standing]] = Cache(_MAX_AGE_S)
#: The scopes of critical incidents that are not over.
_critical: Cache[list[tuple[str, str]]] = Cache(_MAX_AGE_S)


def invalidate() -> None:
    """Have the next page read all anew."""
    _standing.invalidate()
    _critical.invalidate()


def criticals(request: HttpRequest) -> dict[str, Any]:
    """Give pages how many critical incidents are not over, of those that the reader may see.

    Counted where it is shown: panels have no header.
    """
    if not hasattr(request, "user") or not request.user.is_authenticated:
        return {}
    return {"criticals": partial(criticals_of, request)}


def criticals_of(request: HttpRequest) -> int:
    """Return how many critical incidents are not over, of those that the reader may see.

    One query each two seconds, and one of readers who do not see all jobs.
    """
    rows = Incident.objects.unresolved().filter(severity=Severity.CRITICAL)
    found = _critical.get(lambda: list(rows.values_list("scope_kind", "scope_name")))
    reader = visibility.of(request)
    reader.seen([name for kind, name in found if kind == "job"])
    return sum(not reader.hides(kind, name) for kind, name in found)


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Give pages their navigation, made where it is shown: panels have no header."""
    if not hasattr(request, "user") or not request.user.is_authenticated:
        return {}
    match = request.resolver_match
    name = (match.url_name if match else "") or ""
    return {"navigation": partial(pages.of, request.user, name)}


def schedulers(request: HttpRequest) -> dict[str, Any]:
    """Give pages what becomes of new jobs of schedulers without Headroom, and who is away."""
    # Errors may be told before anybody has looked who asks.
    if not hasattr(request, "user") or not request.user.is_authenticated:
        return {}
    now = time.time()
    found = _standing.get(standing.read)
    return {"schedulers": [(each.sentence(now), each.is_away(now)) for each in found]}
