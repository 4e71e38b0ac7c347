"""What every page says, whatever it is about."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest

from admission.executors.schedulers import standing
from fleet.cache import Cache

__all__ = ["invalidate", "schedulers"]

#: How old what pages say may be, s.
_MAX_AGE_S = 2.0
_standing: Cache[list[standing.Standing]] = Cache(_MAX_AGE_S)
invalidate = _standing.invalidate


def schedulers(request: HttpRequest) -> dict[str, Any]:
    """Give pages what becomes of new jobs of schedulers without Headroom, and who is away."""
    # Errors may be told before anybody has looked who asks.
    if not hasattr(request, "user") or not request.user.is_authenticated:
        return {}
    now = time.time()
    found = _standing.get(standing.read)
    return {"schedulers": [(each.sentence(now), each.is_away(now)) for each in found]}
