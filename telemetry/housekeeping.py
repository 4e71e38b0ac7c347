"""Work beside the writer: roll-ups, partitions, and moving rows into the cold tier.

One of these is at work at a time, in all workers together, so that they never hold up the writer by
taking every worker; and each gives way after some seconds, so that a worker can be stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial

import numpy as np
import structlog
from django.db import connection, transaction

from fleet import locks
from telemetry import samples, tiers
from telemetry.cold import keep, move
from telemetry.rollups import progress, work
from telemetry.rollups.spec import HOUR_S, MINUTE_S, ROLLUPS
from telemetry.tiers import Kept

log = structlog.get_logger(__name__)

_LOCK = 0x4B454550
#: After this long a task gives way, s.
BUDGET_S = 8.0
#: Partitions are made for so many widths ahead.
_AHEAD = 3


def only_one() -> AbstractContextManager[bool]:
    """Hold the housekeeper's lock; the value is False where another process holds it."""
    return locks.only_one(_LOCK)


def roll_up(now: float, budget_s: float = BUDGET_S) -> bool:
    """Compute the roll-ups that are due; tell whether all of them are done."""
    deadline = time.monotonic() + budget_s
    # All that can be computed of every source, rather than one source to the end.
    done = [_roll_up(source, now, deadline) for source in ROLLUPS]
    return all(done)


def _roll_up(source: str, now: float, deadline: float) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        progress.begin(cursor.cursor, source, now)
    for width_s in (MINUTE_S, HOUR_S):
        is_done = _until(deadline, partial(work.step, source, width_s, now))
        with connection.cursor() as cursor:
            progress.advance(cursor.cursor, source, width_s, now)
        # An hour is computed from readings, once for all its minutes that were not done.
        if not is_done:
            return False
    return True


def _until(deadline: float, step: Callable[[], bool]) -> bool:
    """Take steps until one finds nothing to do; False: time was up before."""
    while step():
        if time.monotonic() > deadline:
            return False
    return True


def move_to_cold(now: datetime, budget_s: float = BUDGET_S) -> bool:
    """Move old partitions into the cold tier; tell whether all of them are done."""
    return _until(time.monotonic() + budget_s, partial(move.step, now))


def keep_cold_files(now: datetime) -> None:
    """Merge files where many small ones came late, retire old ones, remove orphans."""
    for kept in tiers.kept():
        keep.merge(kept.table)
    retired = keep.retire(now)
    if retired:
        log.info("cold_files_retired", count=len(retired), first=retired[0])
    orphans = keep.clean(now)
    if orphans:
        log.warning("orphans_removed", count=len(orphans), first=orphans[0])


def keep_partitions(now: datetime) -> None:
    """Create the partitions of the time ahead, and drop those past their retention."""
    for kept in tiers.kept():
        ahead = np.array([(now + n * kept.width).timestamp() for n in range(_AHEAD)])
        with transaction.atomic(), connection.cursor() as cursor:
            wanted = samples.partitions_for(kept.table, ahead, kept.width)
            samples.create_partitions(cursor.cursor, wanted)
        _drop_oldest(kept, now)


def _drop_oldest(kept: Kept, now: datetime) -> None:
    """Drop partitions past their retention, of these only the oldest hour.

    Retention so moves faster than time, but not in one leap: a clock that is wrong for some minutes
    does not cost all that there is.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        found = samples.existing_partitions(cursor.cursor, kept.table.name)
        if not found:
            return
        limit = min(now - kept.total, max(found[0].end, found[0].start + move.UNIT))
        dropped = samples.drop_before(cursor.cursor, kept.table, limit)
    if dropped:
        log.info("partitions_dropped", table=kept.table.name, names=dropped)
