"""How many rows an agent may send: a bucket of rows for each, refilled at a steady rate.

The bucket is one time in Redis: when it will be full again. A batch moves that on by what its rows
take to refill, and is refused where it would lie further ahead than a whole bucket takes. Batches
larger than the bucket pass when it is full.
"""

from __future__ import annotations

from django.conf import settings

__all__ = ["FUNCTION", "TAKE", "bucket_key", "limits"]

#: A Lua function for scripts that do more than this: returns how long to wait, s, or nothing when
#: the rows were taken from the bucket.
FUNCTION = """
local function wait_for_rows(key, rows, rate, bucket)
  if rows == 0 then return nil end
  local clock = redis.call('TIME')
  local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
  local full_at = tonumber(redis.call('GET', key) or '0')
  if full_at < now then full_at = now end
  local next_at = full_at + rows / rate
  local wait = next_at - now - bucket / rate
  if wait > 0 and full_at > now then return wait end
  redis.call('SET', key, string.format('%.6f', next_at), 'PX', math.ceil((next_at - now) * 1e3) + 1)
  return nil
end
"""

# KEYS: the agent's bucket. ARGV: rows, rows per second, rows of a bucket.
#: The function as a script by itself.
TAKE = f"""
{FUNCTION}
local wait = wait_for_rows(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
return wait and tostring(wait)
"""


def bucket_key(agent_id: int) -> str:
    """Return the key of an agent's bucket."""
    return f"telemetry:rows:{agent_id}"


def limits() -> tuple[int, int]:
    """Return the rows per second, and the rows of a bucket."""
    return (
        settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT,
        settings.TELEMETRY_BURST_ROWS_PER_AGENT,
    )
