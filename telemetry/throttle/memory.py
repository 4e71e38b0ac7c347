"""The tracker's memory of each GPU, handed from one writer to the next.

It is too much to be stored with each round. A writer leaves it in Redis when it ends, with the
number of rounds that it has seen, which Postgres counts as well. Where that is gone or of
another number (a crash, a loss of Redis), it is made again from the newest samples, and open events
are brought from where they were last written down to where the samples have got.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from django.db import connection, transaction
from psycopg import Cursor

from fleet import snapshot
from fleet.snapshot import FleetArrays
from telemetry import stream
from telemetry.faults.ecc import EccCounters
from telemetry.throttle import store
from telemetry.throttle.events import EVENT
from telemetry.throttle.intervals import LAST
from telemetry.throttle.readings import Ratings, Readings
from telemetry.throttle.tracker import Tracker

#: What is kept in Redis is dropped after so long, s: by then the samples are as quick.
_KEPT_S = 600
#: Values are cut into pieces of this size, bytes: the client reads long ones slowly.
_PIECE = 2**20
#: Part of the key, so that no release reads records that another laid out otherwise.
_LAYOUT = f"{zlib.crc32(repr((LAST.descr, EVENT.descr)).encode()):08x}"

_COUNT_ROUND = """
INSERT INTO telemetry_trackedrounds AS tracked (shard, rounds) VALUES (%s, 1)
ON CONFLICT (shard) DO UPDATE SET rounds = tracked.rounds + 1
RETURNING rounds
"""
_READ_ROUNDS = "SELECT rounds FROM telemetry_trackedrounds WHERE shard = %s"


@dataclass
class Memory:
    """The state of tracker and memory error counters after so many rounds."""

    rounds: int
    tracker: Tracker
    ecc: EccCounters


def recall(shard: int) -> Memory:
    """Return the memory of a shard. To be used by one writer alone.

    After a round that was rolled back it knows too much and must be thrown away.
    """
    rounds = rounds_of(shard)
    return _kept(shard, rounds) or _rebuild(rounds)


def keep(shard: int, memory: Memory) -> None:
    """Leave ``memory`` to the next writer of the shard, in whichever process."""
    tracker, ecc = memory.tracker, memory.ecc
    arrays = [a.tobytes() for a in (tracker.last, tracker.open_events(), ecc.us, ecc.count)]
    data = b"".join(arrays)
    head = msgspec.msgpack.encode(_Head(memory.rounds, [len(array) for array in arrays]))
    pipe = stream.connection().pipeline(transaction=True)
    pipe.set(_key(shard, "head"), head, ex=_KEPT_S)
    for piece, start in enumerate(range(0, len(data), _PIECE)):
        pipe.set(_key(shard, piece), data[start : start + _PIECE], ex=_KEPT_S)
    pipe.execute()


def count_round(cursor: Cursor[Any], shard: int) -> int:
    """Count a round in its transaction, and return how many there were."""
    cursor.execute(_COUNT_ROUND, [shard])
    (rounds,) = cursor.fetchone() or (0,)
    return int(rounds)


def rounds_of(shard: int) -> int:
    """Return how many rounds of the shard are committed. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_READ_ROUNDS, [shard])
        row = cursor.fetchone()
    return 0 if row is None else int(row[0])


@lru_cache(maxsize=2)
def ratings_of(fleet: FleetArrays) -> Ratings:
    """Return the rated power and clock of each GPU, by database id."""
    size = int(fleet.gpus.ids.max(initial=0)) + 1
    power_w, sm_mhz = np.full(size, np.nan), np.full(size, np.nan)
    power_w[fleet.gpus.ids], sm_mhz[fleet.gpus.ids] = fleet.gpus.rated_w, fleet.gpus.sm_max_mhz
    return Ratings(power_w, sm_mhz)


# --- From the database ---------------------------------------------------------------------------


def _rebuild(rounds: int) -> Memory:
    """Make the memory anew from stored rows. Three queries, an index look-up a GPU."""
    fleet = snapshot.current()
    with transaction.atomic(), connection.cursor() as cursor:
        latest = store.latest_samples(cursor)
        tracker = Tracker.from_latest(Readings.of(latest), store.open_events(cursor))
        since = Readings.of(store.samples_since(cursor))
        store.save(cursor.cursor, tracker.catch_up(since, ratings_of(fleet)), fleet)
    ecc = EccCounters()
    ecc.advance(latest.columns["ts"], latest.columns["gpu_id"], latest.columns["ecc"])
    return Memory(rounds, tracker, ecc)


# --- In Redis ------------------------------------------------------------------------------------


class _Head(msgspec.Struct, array_like=True):
    """The header of a kept memory: number of rounds, and the size of each array, bytes."""

    rounds: int
    sizes: list[int]


def _key(shard: int, piece: int | str) -> str:
    return f"throttle:{_LAYOUT}:{shard}:{piece}"


def _kept(shard: int, rounds: int) -> Memory | None:
    found: Any = stream.connection().get(_key(shard, "head"))
    head = None if found is None else msgspec.msgpack.decode(found, type=_Head)
    if head is None or head.rounds != rounds:
        return None
    total = sum(head.sizes)
    pieces: Any = stream.connection().mget([_key(shard, i) for i in range(-(-total // _PIECE))])
    data = bytearray().join(piece or b"" for piece in pieces)
    if len(data) != total:
        return None
    last, events, us, count = _cut(data, head.sizes)
    tracker = Tracker(np.frombuffer(last, LAST), np.frombuffer(events, EVENT))
    ecc = EccCounters(np.frombuffer(us, "i8"), np.frombuffer(count, "i8"))
    return Memory(rounds, tracker, ecc)


def _cut(data: bytearray, sizes: list[int]) -> list[bytearray]:
    ends = np.cumsum(sizes).tolist()
    return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]
