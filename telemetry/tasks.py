"""Celery tasks: the writer, and the keeping of partitions.

A task of the schedule that returns False has not done its work, since another process is at it.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import redis
import structlog
from celery import shared_task
from celery.signals import worker_shutting_down
from django.conf import settings
from django.db import InterfaceError, InternalError, OperationalError

from telemetry import aside, forgetting, housekeeping, stream
from telemetry.checkpoints import store as checkpoints
from telemetry.cold.places import Unreachable
from telemetry.ingest import inbox
from telemetry.lemons import watch
from telemetry.limits import store as limits
from telemetry.sql import PositionsMoved
from telemetry.trust import metrics as trust_metrics
from telemetry.writer import BYTES_PER_ROUND, MESSAGES_PER_ROUND, Writer, only_one

log = structlog.get_logger(__name__)

#: The servers are away, or only read since another has taken their place: nothing is wrong with the
#: messages. Of COPY the errors are psycopg's own.
_NOT_ABOUT_MESSAGES = (
    InterfaceError,
    InternalError,
    OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,
    psycopg.OperationalError,
    redis.RedisError,
    PositionsMoved,
)
#: A writer that has work gives way to other tasks after this long.
_BUDGET_S = 10.0
#: Whether the worker is to end, for its processes, which do not hear of it by themselves.
_stopping = multiprocessing.RawValue("b", 0)
#: Between rounds that leave nothing behind, wait for messages to share the next commit: so many
#: times as long as the last round took, within these bounds.
_REST = 20.0
_LINGER_S = (0.15, 0.5)
#: A writer that finds nothing for this long ends.
_IDLE_S = 1.0


@worker_shutting_down.connect
def _stop(**_details: Any) -> None:
    _stopping.value = 1


@shared_task
def write(shard: int) -> None:
    """Empty the stream of ``shard``, and stay for messages of the next second."""
    with only_one(shard) as held:
        if not held:
            return
        try:
            _write_for_a_while(shard)
        finally:
            stream.say_done(shard)
    # Messages that came after the last look found the sign that a writer was at work.
    if stream.ask_for_writer(shard):
        write.delay(shard)


def _write_for_a_while(shard: int) -> None:
    work = Writer.recall(shard)
    end = time.monotonic() + _BUDGET_S
    last_found = time.monotonic()
    while time.monotonic() < end and time.monotonic() - last_found < _IDLE_S:
        if _stopping.value:
            break
        stream.say_writing(shard)
        began = time.monotonic()
        try:
            count = work.step()
        except _NOT_ABOUT_MESSAGES:
            raise
        except Exception:
            log.exception("writer_round_failed", shard=shard)
            step_around(shard)
            return
        if count:
            last_found = time.monotonic()
        if not work.has_more:
            shortest, longest = _LINGER_S
            time.sleep(min(longest, max(shortest, _REST * (time.monotonic() - began))))
    work.keep()


def step_around(shard: int) -> None:
    """Store the waiting messages one by one and set aside the first that cannot be stored.

    One batch that no check foresaw must not hold up a whole fleet.
    """
    work = Writer(shard)
    for entry in stream.read(shard, MESSAGES_PER_ROUND, BYTES_PER_ROUND):
        try:
            work.step(limit=1)
        except _NOT_ABOUT_MESSAGES:
            raise
        except Exception as error:
            agent_id = entry.message.agent_id if entry.message else None
            log.exception("message_set_aside", shard=shard, agent_id=agent_id)
            aside.keep(shard, entry, error)
            return


@shared_task
def write_all() -> None:
    """Start a writer wherever messages wait: for when the message that asked for one was lost."""
    aside.settle()
    for shard in range(settings.TELEMETRY_SHARDS):
        if stream.ask_for_writer(shard):
            write.delay(shard)


def ask_for_forward() -> None:
    """Have the inbox forwarded once the rest of its newest rows may have come."""
    if stream.ask_for_forward():
        forward_pushed.apply_async(countdown=settings.TELEMETRY_ASSEMBLY_S)


@shared_task
def forward_pushed() -> bool:
    """Put the requests of remote write and OTLP on the streams."""
    with inbox.only_one() as held:
        if not held:
            return False
        while (done := inbox.forward(time.time())).batches:
            for shard in done.shards_to_drain:
                write.delay(shard)
    return True


@shared_task
def forget_pushed() -> None:
    """Forget requests that no sender sends again any more."""
    inbox.prune(time.time())


@shared_task
def keep_partitions() -> None:
    """Create the partitions of the next hours, drop those past their retention, and forget."""
    now = datetime.now(UTC)
    housekeeping.keep_partitions(now)
    limits.prune(now)
    checkpoints.prune(now)


@shared_task
def roll_up() -> bool:
    """Compute the roll-ups of the minutes and hours that have ended."""
    with housekeeping.only_one() as held:
        if held:
            housekeeping.roll_up(time.time())
        return held


@shared_task
def move_to_cold() -> bool:
    """Move partitions that are old enough into the cold tier."""
    with housekeeping.only_one() as held:
        return held and with_cold_tier(housekeeping.move_to_cold)


@shared_task
def keep_cold_files() -> bool:
    """Merge, retire and clean the files of the cold tier."""
    with housekeeping.only_one() as held:
        return held and with_cold_tier(housekeeping.keep_cold_files)


def with_cold_tier(work: Callable[[datetime], object]) -> bool:
    """Do the work; False where the cold tier is away. Rows stay in Postgres until it is back."""
    try:
        work(datetime.now(UTC))
    except Unreachable as error:
        log.error("cold_tier_unreachable", error=str(error))
        return False
    return True


@shared_task
def forget_events() -> None:
    """Remove events past their retention, and names and positions that are of no use any more."""
    with housekeeping.only_one() as held:
        if held:
            forgetting.prune(datetime.now(UTC), housekeeping.BUDGET_S)


@shared_task
def compare_power() -> None:
    """Compare what the sources of power tell of all nodes, for the metrics."""
    trust_metrics.show()


@shared_task
def look_for_lemons() -> None:
    """Compare GPUs with their peers over the windows that have ended."""
    watch.look(time.time())
