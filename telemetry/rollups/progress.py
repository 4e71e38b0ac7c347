"""How far roll-ups are: earlier times are read from them, later ones from finer tiers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from psycopg import Cursor

from telemetry import samples
from telemetry.rollups import marks
from telemetry.rollups.marks import NewMark
from telemetry.rollups.spec import HOUR_S, MINUTE_S
from telemetry.rollups.work import SETTLE_S

_DONE = """
SELECT width_s, extract(epoch FROM done_until)::float8
FROM telemetry_rollupprogress WHERE source = %s
"""

# Never back: a late reading makes its bucket wait, not all that came after it.
_ADVANCE = """
INSERT INTO telemetry_rollupprogress (source, width_s, done_until)
SELECT %(source)s, %(width_s)s, least(
    to_timestamp(%(limit)s),
    (SELECT min(bucket) FROM telemetry_rollupmark
     WHERE source = %(source)s AND width_s = %(width_s)s)
)
ON CONFLICT (source, width_s) DO UPDATE
SET done_until = greatest(telemetry_rollupprogress.done_until, excluded.done_until)
"""


def done(cursor: Cursor[Any], source: str) -> dict[int, float]:
    """Return by width (s) up to when (Unix s) the roll-ups of ``source`` are complete."""
    cursor.execute(_DONE, [source])
    return dict(cursor.fetchall())


def begin(cursor: Cursor[Any], source: str, now: float) -> None:
    """Ask for roll-ups of readings stored before there were any. Once for each source."""
    if done(cursor, source):
        return
    stored = [
        NewMark(source, MINUTE_S, minute, None)
        for partition in samples.existing_partitions(cursor, source)
        for minute in range(
            int(partition.start.timestamp()),
            int(min(partition.end, datetime.fromtimestamp(now, UTC)).timestamp()),
            MINUTE_S,
        )
    ]
    marks.insert(cursor, stored)
    advance(cursor, source, MINUTE_S, stored[0].bucket if stored else now)


def advance(cursor: Cursor[Any], source: str, width_s: int, now: float) -> None:
    """Note that all buckets that have ended by ``now`` are computed, but for those with a mark."""
    limit = (now - SETTLE_S[width_s]) // width_s * width_s
    if width_s == HOUR_S:
        limit = min(limit, done(cursor, source).get(MINUTE_S, 0.0) // HOUR_S * HOUR_S)
    cursor.execute(_ADVANCE, {"source": source, "width_s": width_s, "limit": limit})
