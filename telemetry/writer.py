"""The writer: from the stream into Postgres and the live frame, many batches at a time.

One writer works on a shard at a time (a Postgres advisory lock sees to it), so it may keep the
frame and the open throttle events in memory between rounds. A round that fails is thrown away with
the whole object: nothing was committed, the messages are still in the stream, and the next writer
reads its state afresh.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import connection, transaction

from fleet import locks, snapshot
from telemetry import late, metrics, rows, samples, sql, stream
from telemetry.checkpoints import store as checkpoints
from telemetry.frame import KINDS, FrameWriter
from telemetry.ingest.refusals import Refusals, count_refused, time_limits
from telemetry.judging import Judged, judge
from telemetry.limits import store as limits
from telemetry.positions import Position, TooFarAhead
from telemetry.rollups import marks
from telemetry.rows import Directory, Gathered, Mount
from telemetry.samples import Rows
from telemetry.silences import Silences
from telemetry.stream import Message
from telemetry.throttle import memory
from telemetry.throttle.follower import Follower, Found
from telemetry.tiers import raw_width as partition_width
from telemetry.versions import store as versions

log = structlog.get_logger(__name__)

#: What one round takes: enough for a COPY of some 50,000 rows, few enough to stay quick.
MESSAGES_PER_ROUND = 5_000
BYTES_PER_ROUND = 8 * 2**20
#: For how long a writer is kept, s. Agents push every ten seconds or so: one that lived no longer
#: would read the position of each for one batch, and note each as new. Names of jobs and mounts are
#: noted to be in use when they are looked up, and partitions leave at some time.
_LIFE_S = 600.0
#: Partitions that end so long ago, or later, stay where they are while a writer lives.
_LASTING = timedelta(minutes=30)
#: A clock that is off by so much more or less is told at once, s.
_CLOCK_NEWS_S = 1.0
#: How often a statement that is no longer wanted is canceled: it may not have begun yet, s.
_CANCEL_S = 0.5
#: First of the two keys of the advisory lock; the second is the shard.
_LOCK_CLASS = 0x48454144


def only_one(shard: int) -> AbstractContextManager[bool]:
    """Hold the shard's lock; the value is False where another process holds it."""
    return locks.only_one(_LOCK_CLASS, shard)


class Writer:
    """Empties one shard's stream, round by round.

    What it remembers of agents and their positions, of the frame and of throttling is true as long
    as no other writer stores anything of the shard.
    """

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._frame = FrameWriter(shard)
        self._throttling = Follower(shard)
        self._positions = sql.Positions()
        self._known_partitions: set[samples.Partition] = set()
        self._jobs: dict[str, int] = {}
        self._mounts: dict[Mount, int] = {}
        self._noted: dict[int, sql.AgentNote] = {}
        self._silences = Silences()
        #: whether the last round took as much as a round may take
        self.has_more = False
        self._since = time.monotonic()

    @classmethod
    def recall(cls, shard: int) -> Writer:
        """Return the writer that this process has kept, where it still knows all; else a new one.

        Postgres counts the rounds of a shard: of another number, somebody else has stored some.
        """
        # Taken away: what a round that is rolled back does to it is wrong.
        kept = _of_this_process.pop(shard, None)
        return kept if kept is not None and kept._is_current() else cls(shard)

    def _is_current(self) -> bool:
        is_young = time.monotonic() - self._since < _LIFE_S
        return is_young and self._throttling.rounds == memory.rounds_of(self._shard)

    def step(self, limit: int = MESSAGES_PER_ROUND) -> int:
        """Store one round of up to ``limit`` messages and return how many there were."""
        entries = stream.read(self._shard, limit, BYTES_PER_ROUND)
        self.has_more = len(entries) >= limit or sum(e.size for e in entries) >= BYTES_PER_ROUND
        if not entries:
            return 0
        with metrics.WRITER_SECONDS.time():
            messages = [entry.message for entry in entries if entry.message is not None]
            marks, refused = self._store(messages)
            self._frame.flush()
            stream.publish_durable(self._shard, marks, late.after(self._shard, refused))
            stream.remove(self._shard, entries)
        _count(entries, messages)
        return len(entries)

    def _store(
        self, messages: list[Message]
    ) -> tuple[dict[sql.PositionKey, int], list[tuple[Message, Refusals]]]:
        """Commit new ``messages``.

        Return how far each agent's batches now are, and which of them had bad rows.
        """
        with transaction.atomic():
            cursor = _cursor()
            positions = self._positions.load(cursor, {m.position_key for m in messages})
            messages = _of_known_agents(messages, positions)
            fresh = _take(messages, positions)
            self._learn_jobs(cursor, rows.job_names(m.packed for m in fresh))
            pairs = [(m.packed, m.received_at) for m in fresh]
            judged = judge(pairs, time_limits(time.time()), self._jobs)
            refused = [(fresh[place], found) for place, found in judged.refused.items()]
            gathered = self._gather(cursor, fresh, judged)
            throttled = self._copy(cursor, gathered)
            marks.note(cursor, gathered.rows.values())
            self._throttling.save(cursor, throttled)
            sql.save_xids(cursor, [line for m in fresh for line in m.packed.xids])
            limits.save(cursor, fresh)
            checkpoints.save(cursor, fresh)
            versions.save(cursor, fresh)
            self._positions.save(cursor, positions)
            self._silences.save(cursor, fresh, time.time())
            sql.note_agents(cursor, self._notes(messages))
            sql.note_refusals(cursor, [_refusal(*each) for each in refused])
        metrics.DUPLICATES.inc(len(messages) - len(fresh))
        metrics.DROPPED_ROWS.inc(gathered.dropped)
        for found in gathered.rows.values():
            metrics.ROWS.labels(found.table.name).inc(len(found))
        for _, found_wrong in refused:
            count_refused(found_wrong)
        return {key: position.mark for key, position in positions.items()}, refused

    def _notes(self, messages: list[Message]) -> list[sql.AgentNote]:
        """Return what is to be noted of agents: of those that went on as before, now and then."""
        notes = [
            note
            for note in _notes(messages, self._silences)
            if _is_news(note, self._noted.get(note.agent_id), settings.STALE_AFTER_S / 2)
        ]
        self._noted.update((note.agent_id, note) for note in notes)
        return notes

    def _gather(
        self, cursor: psycopg.Cursor[Any], fresh: list[Message], judged: Judged
    ) -> Gathered:
        self._learn_mounts(cursor, rows.mounts(message.packed for message in fresh))
        pairs = [(message.packed, message.received_at) for message in fresh]
        gathered = rows.gather(pairs, self._directory(snapshot.current()), judged.parts)
        if gathered.dropped:
            # The inventory may be newer than this process's copy of it: look once more.
            gathered = rows.gather(pairs, self._directory(snapshot.fresh()), judged.parts)
        return gathered

    def _directory(self, fleet: snapshot.FleetArrays) -> Directory:
        known_ids = {
            "gpu": fleet.gpus.ids,
            "host": fleet.nodes.ids,
            "link": fleet.links.ids,
            "meter": fleet.meters.ids,
        }
        return Directory(known_ids, self._jobs, self._mounts)

    def _learn_jobs(self, cursor: psycopg.Cursor[Any], names: set[str]) -> None:
        if unknown := names - self._jobs.keys():
            self._jobs.update(sql.load_jobs(cursor, unknown))

    def _learn_mounts(self, cursor: psycopg.Cursor[Any], mounts: set[Mount]) -> None:
        if unknown := mounts - self._mounts.keys():
            self._mounts.update(sql.load_mounts(cursor, unknown))

    def _copy(self, cursor: psycopg.Cursor[Any], gathered: Gathered) -> Found | None:
        """Write the rows. While Postgres takes them, throttling and frame are moved on in memory.

        Returns what is to be saved of throttling, where there are rows of GPUs.
        """
        found = list(gathered.rows.values())
        self._make_partitions(cursor, found)
        gpus, throttled = gathered.rows.get("gpu"), None
        if gpus is not None:
            self._throttling.look(cursor)
        with _meanwhile(cursor, partial(_copy_all, cursor, found)):
            if gpus is not None:
                throttled = self._throttling.advance(gpus)
            for kind in KINDS:
                if kind in gathered.rows:
                    self._frame.update(kind, gathered.rows[kind], gathered.received_at[kind])
        return throttled

    def _make_partitions(self, cursor: psycopg.Cursor[Any], found: Sequence[Rows]) -> None:
        # All partitions before any row: whoever makes some meanwhile waits for the tables that we
        # write to, and we would wait for whoever makes some.
        wanted = {
            partition
            for each in found
            for partition in samples.partitions_for(
                each.table, each.columns["ts"], partition_width()
            )
        }
        missing = sorted(wanted - self._known_partitions)
        if missing:
            samples.create_partitions(cursor, missing)
            # Old ones may leave for the cold tier at any time: those are looked for each time.
            lasting = {p for p in missing if p.end > datetime.now(UTC) - _LASTING}
            # Known only once the transaction is through: a rollback takes the partition with it.
            transaction.on_commit(lambda: self._known_partitions.update(lasting))

    def keep(self) -> None:
        """Leave what the shard's next writer would else have to make again.

        In this process that is all, in others what is dear to make.
        """
        self._throttling.keep()
        _of_this_process[self._shard] = self


_of_this_process: dict[int, Writer] = {}


def forget_own() -> None:
    """Have the next writers of this process remember nothing."""
    _of_this_process.clear()


@contextmanager
def _meanwhile(cursor: psycopg.Cursor[Any], work: Callable[[], None]) -> Iterator[None]:
    """Have ``work`` done on a thread of its own during the block; raise what it raises.

    It has ``cursor`` to itself until it is done. Where the block is left before its end, as at the
    time limit of a task, its statement is canceled.
    """
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        try:
            yield
            done.result()
        finally:
            while not done.done():
                with suppress(psycopg.Error):
                    cursor.connection.cancel_safe(timeout=_CANCEL_S)
                wait([done], timeout=_CANCEL_S)


def _copy_all(cursor: psycopg.Cursor[Any], found: Sequence[Rows]) -> None:
    for each in found:
        samples.copy(cursor, each)


def _cursor() -> psycopg.Cursor[Any]:
    """Return a cursor on Django's connection that lets the server keep plans of our statements.

    Django's own puts parameters into the text, which is then parsed and planned each time.
    """
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    raw.prepare_threshold = 2
    return psycopg.Cursor(raw)


def _of_known_agents(
    messages: list[Message], positions: dict[sql.PositionKey, Position]
) -> list[Message]:
    """Return the messages without those of agents that have gone, of which nothing is stored."""
    known = [message for message in messages if message.position_key in positions]
    if len(known) < len(messages):
        gone = {m.agent_id for m in messages if m.position_key not in positions}
        dropped = len(messages) - len(known)
        log.warning("batches_of_removed_agents_dropped", count=dropped, agent_ids=sorted(gone)[:10])
        metrics.DROPPED_ROWS.inc(sum(m.packed.weight for m in messages if m.agent_id in gone))
    return known


def _take(messages: list[Message], positions: dict[sql.PositionKey, Position]) -> list[Message]:
    """Return the messages not stored before, in order, and note them in ``positions``."""
    fresh = []
    for message in messages:
        try:
            is_new = positions[message.position_key].take(message.seq, message.oldest_seq)
        except TooFarAhead:
            log.warning("batch_too_far_ahead", agent_id=message.agent_id, seq=message.seq)
            continue
        if is_new:
            fresh.append(message)
    return fresh


def _notes(messages: list[Message], silences: Silences) -> list[sql.AgentNote]:
    """Return the status of each agent by the message of its that was sent last.

    A batch of fixed-width rows has no text of errors: that is the last typed one's.
    """
    last: dict[int, Message] = {}
    typed: dict[int, Message] = {}
    for message in messages:
        for found in (last, typed) if not message.packed.unjudged else (last,):
            known = found.get(message.agent_id)
            if known is None or message.sent_at > known.sent_at:
                found[message.agent_id] = message
    return [
        _note(message, typed.get(agent_id), silences.heard_to(agent_id))
        for agent_id, message in last.items()
    ]


def _note(last: Message, typed: Message | None, heard_to: datetime | None) -> sql.AgentNote:
    """Return the status of an agent by a message of its, and by its last typed one."""
    status, span = last.status, last.packed.span
    errors = typed.status if typed else None
    return sql.AgentNote(
        agent_id=last.agent_id,
        last_seen_at=datetime.fromtimestamp(last.received_at, UTC),
        lag_s=None if span is None else last.received_at - span[1],
        skew_s=_skew_s(last),
        version=status.version if status else None,
        spooled_batches=status.spooled_batches if status else None,
        dropped_batches=status.dropped_batches if status else None,
        thinned_rows=status.thinned_rows if status else None,
        errors=status.errors if status else None,
        last_error=errors.last_error if errors else None,
        heard_to=heard_to,
    )


def _is_news(note: sql.AgentNote, known: sql.AgentNote | None, after_s: float) -> bool:
    """Say whether a note has more to tell than that the agent is still there."""
    if known is None or _are_apart(note.last_seen_at, known.last_seen_at, after_s):
        return True
    if _are_apart(note.heard_to, known.heard_to, after_s):
        return True
    told = (note.dropped_batches, note.thinned_rows, note.errors, note.version)
    before = (known.dropped_batches, known.thinned_rows, known.errors, known.version)
    is_said = note.last_error is not None and note.last_error != known.last_error
    is_set = abs(note.skew_s - known.skew_s) > _CLOCK_NEWS_S
    return told != before or is_said or is_set


def _are_apart(one: datetime | None, other: datetime | None, by_s: float) -> bool:
    if one is None or other is None:
        return one is not other
    return abs((one - other).total_seconds()) >= by_s


def _refusal(message: Message, refusals: Refusals) -> sql.Refusal:
    (first, *_) = refusals.told
    told = f"{first.field}: {first.message}"[:500]
    return sql.Refusal(message.agent_id, refusals.rows.total(), told)


def _skew_s(last: Message) -> float:
    """Return the agent's clock minus ours: as it has measured it, else network time included."""
    if last.status is not None and last.status.skew_s is not None:
        return last.status.skew_s
    return last.sent_at - last.received_at


def _count(entries: list[stream.Entry], messages: list[Message]) -> None:
    unreadable = len(entries) - len(messages)
    if unreadable:
        # Their agents send them again, as after a loss of Redis.
        log.warning("messages_of_another_release_dropped", count=unreadable)
    now = time.time()
    for message in messages:
        metrics.VISIBLE_SECONDS.observe(now - message.received_at)
