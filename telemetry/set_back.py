"""How far ahead of our clock a reading may be.

After the clock was set back, readings of the minutes before are of a time that is still to come;
and where it was set wrong, all readings of machines whose clocks are right are. Refused, they would
be gone for good: an agent gives up what it is told is wrong. So what our clock was set back by is
allowed besides. Such readings count as stale until their time comes (``live_frame.is_fresh``).
"""

from __future__ import annotations

import time
from contextlib import suppress

import redis
from django.conf import settings

from telemetry import stream

__all__ = ["max_future_s", "note"]

#: What the last step back was, s; for processes that began after it. Forgotten after a day.
_KEY = "clock:set_back"
_KEPT_S = 24 * 3600
#: NTP slews what is less, s.
_LEAST_S = 2.0

#: What the wall clock had more than the monotonic one when this process began.
_offset_s = time.time() - time.monotonic()


def max_future_s() -> float:
    """Return the most that a reading may be ahead of the clock, s. At worst one round trip."""
    own_s = _offset_s - (time.time() - time.monotonic())
    if own_s < _LEAST_S:
        own_s = 0.0
        with suppress(redis.RedisError, ValueError):
            kept = stream.connection().get(_KEY)
            own_s = float(kept) if isinstance(kept, bytes) else 0.0
    return settings.TELEMETRY_MAX_FUTURE_S + own_s


def note(by_s: float) -> None:
    """Note that the clock was set, s; negative: back. Set forth again, it is as it was."""
    if by_s < 0:
        stream.connection().set(_KEY, repr(-by_s), ex=_KEPT_S)
    else:
        stream.connection().delete(_KEY)
