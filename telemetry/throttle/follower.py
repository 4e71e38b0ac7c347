"""Follows the throttling of a shard's GPUs, as its writer stores their readings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from psycopg import Cursor

from fleet import snapshot
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from headroom.contracts import LimitKind, LimitState
from telemetry.faults.ecc import Increases
from telemetry.samples import Rows
from telemetry.throttle import memory, store
from telemetry.throttle.events import Changes
from telemetry.throttle.readings import Ratings, Readings
from telemetry.throttle.rules import Array

#: A cap is known to the tracker so long after its report, s.
_CAPS_MAX_AGE_S = 5.0

_CAPPED = """
SELECT gpu.id FROM telemetry_limitreport AS report
JOIN fleet_gpu AS gpu ON gpu.node_id = report.node_id AND gpu.index = report.gpu_index
WHERE report.kind = %s AND report.state = %s
"""


@dataclass(frozen=True)
class Found:
    """What a round has brought: changes of throttle events, and counts of memory errors."""

    changes: Changes
    rose: Increases


class Follower:
    """The tracker of one shard, as its writer holds it. Only one may be at work for a shard."""

    #: what the round goes by, once it was looked at
    _fleet: FleetArrays
    _ratings: Ratings

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._capped: Cache[Array] = Cache(_CAPS_MAX_AGE_S)
        self._memory = memory.recall(shard)

    def look(self, cursor: Cursor[Any]) -> None:
        """Learn what a round goes by besides readings, so that :meth:`advance` asks nobody.

        From here on this object must be thrown away when the round's transaction is rolled back.
        """
        self._fleet = snapshot.current()
        capped = self._capped.get(partial(_capped, cursor))
        self._ratings = replace(memory.ratings_of(self._fleet), capped=capped)

    def advance(self, rows: Rows) -> Found:
        """Return what follows from the GPU rows of a round, which is then to be saved."""
        columns = rows.columns
        changes = self._memory.tracker.advance(Readings.of(rows), self._ratings)
        rose = self._memory.ecc.advance(columns["ts"], columns["gpu_id"], columns["ecc"])
        return Found(changes, rose)

    @property
    def rounds(self) -> int:
        """How many rounds of the shard there were, as far as this object knows."""
        return self._memory.rounds

    def save(self, cursor: Cursor[Any], found: Found | None) -> None:
        """Write what a round has brought, in its transaction; None: it had no rows of GPUs."""
        if found is not None:
            store.save(cursor, found.changes, self._fleet)
            store.save_ecc(cursor, found.rose)
        self._memory.rounds = memory.count_round(cursor, self._shard)

    def keep(self) -> None:
        """Leave the memory to the next writer of the shard. After the last commit."""
        memory.keep(self._shard, self._memory)


def _capped(cursor: Cursor[Any]) -> Array:
    """Return the GPUs whose power agents say that they have capped."""
    cursor.execute(_CAPPED, [LimitKind.POWER_CAP_W, LimitState.APPLIED])
    return np.array([gpu_id for (gpu_id,) in cursor.fetchall()], "i8")
