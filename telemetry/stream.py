"""The Redis stream between the web processes and the drain.

A message is removed only after its rows are committed, and an agent keeps each batch until it is
told so; the stream may therefore lose everything at any time and no reading is lost.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import msgspec
import redis
from django.conf import settings

#: A drain says at least this often that it is alive; then another may be asked for. One too many
#: does no harm, since only one gets the lock; one too few leaves readings unseen for this long.
DRAINING_TTL_S = 3
#: Unix time at which a worker last ran a task.
HEARTBEAT_KEY = "worker:heartbeat"
_DURABLE_TTL_S = 24 * 3600


_APPEND = """
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return false end
redis.call('XADD', KEYS[1], '*', 'm', ARGV[2])
local draining = redis.call('SET', KEYS[3], 1, 'NX', 'EX', ARGV[4])
return {redis.call('HGET', KEYS[2], ARGV[3]), draining and 1 or 0}
"""


class Message(msgspec.Struct, array_like=True):
    """What the stream carries: a batch that was checked, with whose it is and when it came."""

    agent_id: int
    received_at: float
    body: bytes


@dataclass(frozen=True)
class Appended:
    """What appending a message told."""

    durable_seq: int | None
    wants_drain: bool


@cache
def connection() -> redis.Redis:
    """Return this process's Redis client (a pool of connections)."""
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=5.0, socket_connect_timeout=2.0, health_check_interval=30
    )


def shard_of(agent_name: str) -> int:
    """Return the stream of an agent. All its batches go through one, so that their order holds."""
    return zlib.crc32(agent_name.encode()) % settings.TELEMETRY_SHARDS


def _stream(shard: int) -> str:
    return f"telemetry:{shard}"


def _aside(shard: int) -> str:
    return f"telemetry:{shard}:aside"


def _draining(shard: int) -> str:
    return f"telemetry:{shard}:draining"


def _durable(agent_id: int) -> str:
    return f"telemetry:durable:{agent_id}"


def heartbeat() -> None:
    """Note that a worker lives, for /readyz."""
    connection().set(HEARTBEAT_KEY, time.time(), ex=60)


def backlog(shard: int) -> int:
    """Return the number of messages that wait."""
    return connection().xlen(_stream(shard))


def append(shard: int, message: Message, boot_id: str) -> Appended | None:
    """Append one message and look up how far the agent's batches are durable. One round trip.

    Return None, with nothing appended, where too many messages wait already.
    """
    found = _append()(
        keys=[_stream(shard), _durable(message.agent_id), _draining(shard)],
        args=[
            settings.TELEMETRY_MAX_BACKLOG,
            msgspec.msgpack.encode(message),
            boot_id,
            DRAINING_TTL_S,
        ],
    )
    if found is None:
        return None
    durable, wants_drain = cast(list[Any], found)
    return Appended(None if durable is None else int(durable), bool(wants_drain))


@cache
def _append() -> redis.commands.core.Script:
    return connection().register_script(_APPEND)


def read(shard: int, count: int) -> list[tuple[bytes, Message]]:
    """Return the oldest ``count`` messages with their ids; they stay in the stream."""
    entries = cast(list[Any], connection().xrange(_stream(shard), count=count))
    decode = msgspec.msgpack.Decoder(Message).decode
    return [(entry_id, decode(fields[b"m"])) for entry_id, fields in entries]


def remove(shard: int, entry_ids: list[bytes]) -> None:
    """Remove messages whose rows are committed."""
    connection().xdel(_stream(shard), *entry_ids)


def set_aside(shard: int, entry_id: bytes, message: Message) -> None:
    """Take a message out that cannot be stored, and keep it (the last thousand) for a person."""
    pipe = connection().pipeline(transaction=True)
    pipe.xadd(_aside(shard), {"m": msgspec.msgpack.encode(message)}, maxlen=1_000)
    pipe.xdel(_stream(shard), entry_id)
    pipe.execute()


def durable_seq(agent_id: int, boot_id: str) -> int | None:
    """Return the durable seq that the last drain left here, if Redis still has it."""
    found = connection().hget(_durable(agent_id), boot_id)
    return None if found is None else int(cast(bytes, found))


def remember_durable(agent_id: int, boot_id: str, seq: int) -> None:
    """Leave a durable seq that was read from Postgres, unless a drain has left a newer one."""
    pipe = connection().pipeline(transaction=False)
    pipe.hsetnx(_durable(agent_id), boot_id, seq)
    pipe.expire(_durable(agent_id), _DURABLE_TTL_S)
    pipe.execute()


def publish_durable(marks: dict[tuple[int, str], int]) -> None:
    """Tell the web processes how far agents' batches are committed: {(agent id, boot_id): seq}."""
    pipe = connection().pipeline(transaction=False)
    for (agent_id, boot_id), seq in marks.items():
        pipe.hset(_durable(agent_id), boot_id, seq)
        pipe.expire(_durable(agent_id), _DURABLE_TTL_S)
    pipe.execute()


def say_draining(shard: int) -> None:
    """Note that a drain is at work, so that none is asked for."""
    connection().set(_draining(shard), 1, ex=DRAINING_TTL_S)


def ask_for_drain(shard: int) -> bool:
    """Return True where messages wait and no drain is at work: the caller is to start one."""
    if not backlog(shard):
        return False
    return bool(connection().set(_draining(shard), 1, nx=True, ex=DRAINING_TTL_S))


def say_done(shard: int) -> None:
    """Note that the drain has ended."""
    connection().delete(_draining(shard))
