"""Batches that cannot be stored, for faults that no check foresaw: kept for a person, and counted.

Each is kept once, however often its agent sends it again; an agent does not give it up. They are
bounded in number, bytes and age: beyond that the log alone has the error. One that is stored after
all, since the code was mended, goes by itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import msgspec
import redis
import structlog

from telemetry import stream
from telemetry.models import IngestPosition

__all__ = ["Kept", "count", "forget", "found", "keep", "settle"]

log = structlog.get_logger(__name__)

_KEY = "telemetry:set-aside"
#: The most that is kept: batches, and bytes of all of them.
MOST, MOST_BYTES = 100, 32 * 2**20
#: They go when none was added for so long, s.
_KEPT_S = 7 * 86_400
_ERROR_LENGTH = 500


class Kept(msgspec.Struct, array_like=True):
    """A batch that was set aside. ``at``: when that was first, Unix s; ``body``: the message."""

    agent_id: int
    boot_id: str
    seq: int
    at: float
    error: str
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kept).decode


def keep(shard: int, entry: stream.Entry, error: Exception) -> None:
    """Take the oldest message out of its stream, and keep it where there is room."""
    if entry.message is not None:
        _keep(entry.message, error)
    stream.remove(shard, [entry])


def _keep(message: stream.Message, error: Exception) -> None:
    client = stream.connection()
    name = f"{message.agent_id} {message.seq} {message.boot_id}"
    body = _encode(message)
    text = f"{type(error).__name__}: {error}"[:_ERROR_LENGTH]
    kept = Kept(message.agent_id, message.boot_id, message.seq, time.time(), text, body)
    if count(client) >= MOST or _bytes(client) + len(body) > MOST_BYTES:
        log.warning("no_room_to_set_aside", agent_id=message.agent_id, seq=message.seq)
    elif client.hsetnx(_KEY, name, _encode(kept)):
        client.expire(_KEY, _KEPT_S)


def _bytes(client: redis.Redis) -> int:
    """Return the memory that all kept batches take, by Redis' own account."""
    return client.memory_usage(_KEY, samples=0) or 0


def count(client: redis.Redis) -> int:
    """Return how many are kept. One round trip."""
    return client.hlen(_KEY)


def found() -> list[Kept]:
    """Return those that are kept, the oldest first."""
    every = cast(dict[bytes, bytes], stream.connection().hgetall(_KEY))
    return sorted(map(_decode, every.values()), key=lambda kept: kept.at)


def settle() -> int:
    """Remove those that are stored by now, or given up by their agents; return how many."""
    if not count(stream.connection()):
        return 0
    every = found()
    positions = IngestPosition.objects.filter(agent__in={kept.agent_id for kept in every})
    known = {(row.agent_id, row.boot_id): row for row in positions}
    over = [kept for kept in every if _is_over(kept, known.get((kept.agent_id, kept.boot_id)))]
    return forget(over)


def _is_over(kept: Kept, position: IngestPosition | None) -> bool:
    if position is None:
        return False
    return kept.seq <= position.mark or kept.seq in position.beyond


def forget(every: Sequence[Kept]) -> int:
    """Remove these; return how many were there still."""
    names = [f"{kept.agent_id} {kept.seq} {kept.boot_id}" for kept in every]
    return stream.connection().hdel(_KEY, *names) if names else 0
