"""Throttle truth: events by cause, from how long each cause held.

``rules`` has the numbers, ``readings`` what is taken in, ``intervals``, ``events`` and ``tracker``
the pure core; ``follower`` is the shell that a writer holds, with ``store`` and ``memory`` for what
is kept in Postgres and in Redis.
"""

from headroom.contracts import ThrottleCause

__all__ = ["EXPLAINS_SLOWDOWN", "THROTTLE_BITS"]

#: Bits that say that a GPU is throttled; the others tell of idleness or settings.
THROTTLE_BITS = sum(int(cause) for cause in ThrottleCause)
#: What a hardware slowdown, of which drivers count no time, is explained by: it lasts no longer.
EXPLAINS_SLOWDOWN = (ThrottleCause.HW_THERMAL, ThrottleCause.HW_POWER_BRAKE)
