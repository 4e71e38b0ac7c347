"""Celery tasks: the drain, and the keeping of partitions."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import numpy as np
import redis
import structlog
from celery import shared_task
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction

from telemetry import samples, stream
from telemetry.drain import MESSAGES_PER_ROUND, Drain, only_one, partition_width

log = structlog.get_logger(__name__)

#: A drain that has work gives way after this long, so that a worker can be stopped.
_BUDGET_S = 5.0
#: With few messages in a round, wait this long for more to share its commit.
_LINGER_S = 0.15
#: A drain that finds nothing for this long ends.
_IDLE_S = 1.0
_FEW_MESSAGES = 200


@shared_task
def drain(shard: int) -> None:
    """Empty the stream of ``shard``, and stay for what comes within the next second."""
    with only_one(shard) as held:
        if not held:
            return
        try:
            _drain_for_a_while(shard)
        finally:
            stream.say_done(shard)
    # Messages that came after the last look found the sign that a drain was at work.
    if stream.ask_for_drain(shard):
        drain.delay(shard)


def _drain_for_a_while(shard: int) -> None:
    work = Drain(shard)
    end = time.monotonic() + _BUDGET_S
    last_found = time.monotonic()
    while time.monotonic() < end and time.monotonic() - last_found < _IDLE_S:
        stream.say_draining(shard)
        try:
            count = work.step()
        except (InterfaceError, OperationalError, redis.RedisError):
            raise  # a server is away: nothing is wrong with the messages
        except Exception:
            log.exception("drain_round_failed", shard=shard)
            step_around(shard)
            return
        if count:
            last_found = time.monotonic()
        if count < _FEW_MESSAGES:
            time.sleep(_LINGER_S)


def step_around(shard: int) -> None:
    """Store the waiting messages one by one and set aside the first that cannot be stored.

    One batch that no check foresaw must not hold up a whole fleet.
    """
    work = Drain(shard)
    for entry_id, message in stream.read(shard, MESSAGES_PER_ROUND):
        try:
            work.step(limit=1)
        except (InterfaceError, OperationalError, redis.RedisError):
            raise
        except Exception:
            log.exception("message_set_aside", shard=shard, agent_id=message.agent_id)
            stream.set_aside(shard, entry_id, message)
            return


@shared_task
def drain_all() -> None:
    """Start a drain wherever messages wait: for when the message that asked for one was lost."""
    stream.heartbeat()
    for shard in range(settings.TELEMETRY_SHARDS):
        if stream.ask_for_drain(shard):
            drain.delay(shard)


@shared_task
def keep_partitions() -> None:
    """Create the partitions of the next hours and drop those past their retention."""
    now = datetime.now(UTC)
    width = partition_width()
    ahead = np.array([(now + n * width).timestamp() for n in range(3)])
    limit = now - timedelta(hours=settings.TELEMETRY_RETENTION_H)
    for table in samples.TABLES.values():
        with transaction.atomic(), connection.cursor() as cursor:
            samples.create_partitions(cursor.cursor, samples.partitions_for(table, ahead, width))
            dropped = samples.drop_before(cursor.cursor, table, limit)
        if dropped:
            log.info("partitions_dropped", table=table.name, names=dropped)
