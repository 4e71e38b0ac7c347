"""The drain: from the stream into Postgres and the live frame, many batches at a time.

One drain works on a shard at a time (a Postgres advisory lock sees to it), so it may keep the frame
and the open throttle events in memory between rounds. A round that fails is thrown away with the
whole object: nothing was committed, the messages are still in the stream, and the next drain reads
its state afresh.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from psycopg import Cursor

from fleet import snapshot
from headroom.contracts import TelemetryBatch, decode_batch
from telemetry import metrics, samples, sql, stream
from telemetry.directory import names_of
from telemetry.frame import KINDS, FrameWriter
from telemetry.models import ReportedJob
from telemetry.positions import Position, TooFarAhead
from telemetry.rows import Gathered, gather, job_names, newest_ts
from telemetry.samples import Rows
from telemetry.throttle import Tracker

log = structlog.get_logger(__name__)

#: Messages that one round takes: enough for a COPY of some 10,000 rows, few enough to stay quick.
MESSAGES_PER_ROUND = 1_000
#: First of the two keys of the advisory lock; the second is the shard.
_LOCK_CLASS = 0x48454144


@contextmanager
def only_one(shard: int) -> Iterator[bool]:
    """Hold the shard's lock; the value is False where another process holds it.

    The lock belongs to the database session and so ends with a process that is killed.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [_LOCK_CLASS, shard])
        held = bool(cursor.fetchone()[0])
    try:
        yield held
    finally:
        if held:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [_LOCK_CLASS, shard])


@dataclass(frozen=True)
class Received:
    """A batch out of the stream."""

    agent_id: int
    received_at: float
    batch: TelemetryBatch

    @property
    def position_key(self) -> tuple[int, str]:
        return (self.agent_id, self.batch.boot_id)


class Drain:
    """Empties one shard's stream, round by round."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._frame = FrameWriter(shard)
        self._tracker = Tracker(sql.open_events())
        self._known_partitions: set[samples.Partition] = set()
        self._jobs: dict[str, int] = {}

    def step(self, limit: int = MESSAGES_PER_ROUND) -> int:
        """Store one round of up to ``limit`` messages and return how many there were."""
        with _without_garbage_collection():
            return self._step(limit)

    def _step(self, limit: int) -> int:
        messages = stream.read(self._shard, limit)
        if not messages:
            return 0
        with metrics.DRAIN_SECONDS.time():
            received = [
                Received(m.agent_id, m.received_at, decode_batch(m.body, json=False))
                for _, m in messages
            ]
            marks = self._store(received)
            self._frame.flush()
            stream.publish_durable(marks)
            stream.remove(self._shard, [entry_id for entry_id, _ in messages])
        now = time.time()
        for item in received:
            metrics.VISIBLE_SECONDS.observe(now - item.received_at)
        return len(messages)

    def _store(self, received: list[Received]) -> dict[tuple[int, str], int]:
        """Commit what is new of ``received`` and return how far each agent's batches now are."""
        with transaction.atomic(), connection.cursor() as django_cursor:
            cursor: Cursor[Any] = django_cursor.cursor
            positions = sql.lock_positions(cursor, {item.position_key for item in received})
            fresh = _take(received, positions)
            gathered = self._gather(fresh)
            for rows in gathered.rows.values():
                self._copy(cursor, rows)
            if "gpu" in gathered.rows:
                self._follow_throttling(cursor, gathered.rows["gpu"])
            sql.save_positions(cursor, positions)
            sql.note_agents(cursor, [_last_word(items) for items in _by_agent(received)])
        for kind in KINDS:
            if kind in gathered.rows:
                self._frame.update(kind, gathered.rows[kind], gathered.received_at[kind])
        _count(received, fresh, gathered)
        return {key: position.mark for key, position in positions.items()}

    def _gather(self, fresh: list[Received]) -> Gathered:
        pairs = [(item.batch, item.received_at) for item in fresh]
        self._learn_jobs(job_names([batch for batch, _ in pairs]))
        gathered = gather(pairs, names_of(snapshot.current()), self._jobs)
        if gathered.dropped:
            # The inventory may be newer than this process's copy of it: look once more.
            gathered = gather(pairs, names_of(snapshot.fresh()), self._jobs)
        return gathered

    def _learn_jobs(self, names: set[str]) -> None:
        missing = names - self._jobs.keys()
        if missing:
            ReportedJob.objects.bulk_create(
                [ReportedJob(name=name) for name in sorted(missing)], ignore_conflicts=True
            )
            found = ReportedJob.objects.filter(name__in=missing).values_list("name", "pk")
            self._jobs.update(found)

    def _copy(self, cursor: Cursor[Any], rows: Rows) -> None:
        wanted = set(samples.partitions_for(rows.table, rows.columns["ts"], partition_width()))
        missing = sorted(wanted - self._known_partitions)
        if missing:
            samples.create_partitions(cursor, missing)
            # Known only once the transaction is through: a rollback takes the partition with it.
            transaction.on_commit(lambda: self._known_partitions.update(missing))
        samples.copy(cursor, rows)

    def _follow_throttling(self, cursor: Cursor[Any], rows: Rows) -> None:
        known_until = self._frame.ts("gpu", rows.columns["gpu_id"])
        changes = self._tracker.advance(rows, known_until)
        sql.save_events(cursor, changes)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep the collector out of a round.

    A round makes some 100,000 lists and no cycles; looking for some among them, again and again,
    costs many times what decoding does.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def partition_width() -> timedelta:
    """Return the width of new partitions: as set, else by the size of the fleet."""
    if settings.TELEMETRY_PARTITION_MIN:
        return timedelta(minutes=settings.TELEMETRY_PARTITION_MIN)
    return samples.width_for(len(snapshot.current().gpus))


def _take(received: list[Received], positions: dict[tuple[int, str], Position]) -> list[Received]:
    """Return what was not stored before, in order, and note it in ``positions``."""
    fresh = []
    for item in received:
        try:
            is_new = positions[item.position_key].take(item.batch.seq, item.batch.oldest_seq)
        except TooFarAhead:
            log.warning("batch_too_far_ahead", agent=item.batch.agent, seq=item.batch.seq)
            continue
        if is_new:
            fresh.append(item)
    return fresh


def _by_agent(received: list[Received]) -> list[list[Received]]:
    agents: dict[int, list[Received]] = {}
    for item in received:
        agents.setdefault(item.agent_id, []).append(item)
    return list(agents.values())


def _last_word(items: list[Received]) -> sql.AgentNote:
    """Return what the newest batch of one agent says of it."""
    last = max(items, key=lambda item: item.batch.sent_at)
    newest = newest_ts(last.batch)
    status = last.batch.status
    return sql.AgentNote(
        agent_id=last.agent_id,
        last_seen_at=datetime.fromtimestamp(last.received_at, UTC),
        lag_s=None if newest is None else last.received_at - newest,
        skew_s=last.batch.sent_at - last.received_at,
        version=status.version if status else None,
        spooled_batches=status.spooled_batches if status else None,
        dropped_batches=status.dropped_batches if status else None,
        errors=status.errors if status else None,
        last_error=status.last_error if status else None,
    )


def _count(received: list[Received], fresh: list[Received], gathered: Gathered) -> None:
    metrics.DUPLICATES.inc(len(received) - len(fresh))
    metrics.DROPPED_ROWS.inc(gathered.dropped)
    for rows in gathered.rows.values():
        metrics.ROWS.labels(rows.table.name).inc(len(rows))
