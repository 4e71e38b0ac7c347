"""Follows the throttling of a shard's GPUs, as its writer stores their readings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from psycopg import Cursor

from fleet import snapshot
from fleet.cache import Cache
from headroom.contracts import LimitKind, LimitState
from telemetry.samples import Rows
from telemetry.throttle import memory, store
from telemetry.throttle.readings import Readings
from telemetry.throttle.rules import Array

#: A cap is known to the tracker so long after its report, s.
_CAPS_MAX_AGE_S = 5.0

_CAPPED = """
SELECT gpu.id FROM telemetry_limitreport AS report
JOIN fleet_gpu AS gpu ON gpu.node_id = report.node_id AND gpu.index = report.gpu_index
WHERE report.kind = %s AND report.state = %s
"""


class Follower:
    """The tracker of one shard, as its writer holds it. Only one may be at work for a shard."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._capped: Cache[Array] = Cache(_CAPS_MAX_AGE_S)
        self._memory = memory.recall(shard)

    def follow(self, cursor: Cursor[Any], rows: Rows) -> None:
        """Take in the GPU rows of a round and write the changes of events, in its transaction.

        When that is rolled back, this object must be thrown away.
        """
        memory.forget_own(self._shard)
        fleet, columns = snapshot.current(), rows.columns
        ratings = replace(
            memory.ratings_of(fleet), capped=self._capped.get(partial(_capped, cursor))
        )
        changes = self._memory.tracker.advance(Readings.of(rows), ratings)
        store.save(cursor, changes, fleet)
        rose = self._memory.ecc.advance(columns["ts"], columns["gpu_id"], columns["ecc"])
        store.save_ecc(cursor, rose)
        self._memory.rounds = memory.count_round(cursor, self._shard)

    def keep(self) -> None:
        """Leave the memory to the next writer of the shard. After the last commit."""
        memory.keep(self._shard, self._memory)


def _capped(cursor: Cursor[Any]) -> Array:
    """Return the GPUs whose power agents say that they have capped."""
    cursor.execute(_CAPPED, [LimitKind.POWER_CAP_W, LimitState.APPLIED])
    return np.array([gpu_id for (gpu_id,) in cursor.fetchall()], "i8")
