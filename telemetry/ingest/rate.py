"""How many rows an agent may send: a bucket of rows for each, refilled at a steady rate.

The bucket is one time in Redis: when it will be full again. A batch moves that on by what its rows
take to refill, and is refused where it would lie further ahead than a whole bucket takes. Batches
larger than the bucket pass when it is full. Beside it stands when that was written: where the clock
of Redis is behind that, it was set back, and what was left to refill then is left now.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from django.conf import settings

__all__ = ["FUNCTION", "TAKE", "Share", "bucket_key", "hold", "share_of", "wait_s"]

#: Lua functions for scripts that do more than this. ``wait_for_rows`` returns how long to wait, s,
#: or nothing when the rows were taken from the bucket.
FUNCTION = """
local function time_now()
  local clock = redis.call('TIME')
  return tonumber(clock[1]) + tonumber(clock[2]) / 1e6
end
local function wait_for_rows(now, key, rows, rate, bucket)
  if rows == 0 then return nil end
  local kept = redis.call('GET', key) or '0'
  local full_at, written_at = string.match(kept, '^(%S+) (%S+)$')
  full_at, written_at = tonumber(full_at or kept), tonumber(written_at or '0')
  if now < written_at then full_at = now + full_at - written_at end
  if full_at < now then full_at = now end
  local next_at = full_at + rows / rate
  local wait = next_at - now - bucket / rate
  if wait > 0 and full_at > now then return wait end
  local text = string.format('%.6f %.6f', next_at, now)
  redis.call('SET', key, text, 'PX', math.ceil((next_at - now) * 1e3) + 1)
  return nil
end
"""

# KEYS: the agent's bucket. ARGV: rows, rows per second, rows of a bucket.
#: The function as a script by itself.
TAKE = f"""
{FUNCTION}
local rows, rate, bucket = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local wait = wait_for_rows(time_now(), KEYS[1], rows, rate, bucket)
return wait and tostring(wait)
"""


def bucket_key(agent_id: int) -> str:
    """Return the key of an agent's bucket."""
    return f"telemetry:rows:{agent_id}"


class Share(NamedTuple):
    """How much one agent may send."""

    rows_per_s: int
    rows_at_once: int


def share_of(nodes: int) -> Share:
    """Return the share of an agent that speaks for ``nodes``: who has more to tell may send more.

    What one node can tell in earnest is little. Else whoever has its token could keep everybody's
    readings waiting.
    """
    nodes = max(nodes, 1)
    return Share(
        min(
            nodes * settings.TELEMETRY_MAX_ROWS_PER_S_PER_NODE,
            settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT,
        ),
        min(
            nodes * settings.TELEMETRY_BURST_ROWS_PER_NODE, settings.TELEMETRY_BURST_ROWS_PER_AGENT
        ),
    )


#: Until when (monotonic s) agents are to wait, as far as this process has told them so.
_waits: dict[int, float] = {}
_MOST_WAITS = 10_000


def hold(agent_id: int, for_s: float) -> None:
    """Have :func:`wait_s` tell for a while that the agent is to wait: its requests are not read."""
    if len(_waits) >= _MOST_WAITS:
        now = time.monotonic()
        for each in [key for key, until in _waits.items() if until <= now]:
            _waits.pop(each, None)
    _waits[agent_id] = time.monotonic() + for_s


def wait_s(agent_id: int) -> float:
    """Return how long the agent has still to wait, as this process knows; 0: not at all."""
    until = _waits.get(agent_id)
    if until is None:
        return 0.0
    left = until - time.monotonic()
    if left <= 0:
        _waits.pop(agent_id, None)
    return max(left, 0.0)
