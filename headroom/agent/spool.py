"""Batches on disk until the server says that they are durable."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import zstandard

from headroom.agent.batches import halved, thinned
from headroom.contracts import TelemetryBatch, decode_batch, encode_batch, row_count
from headroom.errors import HeadroomError

__all__ = ["Spool", "SpoolError"]

logger = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS life (
    boot_id TEXT NOT NULL,
    dropped INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS batch (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- a seq is never given twice, not even when deleted
    at REAL NOT NULL,
    bytes INTEGER NOT NULL,
    body BLOB NOT NULL
);
"""
#: What each version of the file added to the one before; `user_version` says which one it is.
_UPGRADES = (
    """
    ALTER TABLE life ADD COLUMN thinned_rows INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE batch ADD COLUMN level INTEGER NOT NULL DEFAULT 0;  -- how often it was thinned
    CREATE INDEX batch_level ON batch (level, seq);
    """,
)


class SpoolError(HeadroomError):
    """The spool cannot be used."""


class Spool:
    """A queue of batches that outlives the process. Safe to use from several threads.

    ``boot_id`` names one life of the spool: it is made with the file, and ``seq`` counts up within
    it, over restarts. Over ``max_age_s`` the oldest batches are dropped, and counted in
    ``dropped``. Over ``max_bytes`` they are thinned first, and the readings that this costs are
    counted in ``thinned_rows``.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_bytes: int = 256 * 1024 * 1024,
        max_age_s: float = 72 * 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the spool, or make it. ``:memory:`` keeps it in memory.

        A damaged file is put aside and a new life begun. Raises :class:`SpoolError` when another
        process has the spool, or the place cannot be written.
        """
        self._path = str(path)
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.RLock()
        try:
            self._db = self._open()
        except (sqlite3.OperationalError, OSError) as exc:
            raise SpoolError(f"the spool {path} cannot be opened: {exc}{_way_out(exc)}") from exc
        except sqlite3.DatabaseError as exc:
            aside = self._put_aside()
            logger.error(
                "spool is damaged and was put aside", extra={"kept_as": aside, "cause": exc}
            )
            self._db = self._open()
        self.boot_id, self.dropped, self.thinned_rows = self._read_life()
        self._bytes = self._scalar("SELECT coalesce(sum(bytes), 0) FROM batch")

    def close(self) -> None:
        """Close the file. The batches in it stay."""
        with self._lock:
            self._db.close()

    def __len__(self) -> int:
        with self._using():
            return self._scalar("SELECT count(*) FROM batch")

    @property
    def last_seq(self) -> int:
        """The highest seq given so far, or 0."""
        with self._using():
            return self._scalar(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'batch'"
            )

    @property
    def oldest_seq(self) -> int:
        """The lowest seq still held; the next one to be given when none is."""
        with self._using():
            return self._scalar("SELECT coalesce(min(seq), 0) FROM batch") or self.last_seq + 1

    def put(self, batch: TelemetryBatch) -> int:
        """Keep ``batch`` under the next seq, which is returned; its own seq is of no account.

        The batch is on disk when this returns. Raises :class:`SpoolError` when it is not.
        """
        body = _packed(batch)
        with self._writing():
            seq = self._insert(self._clock(), body)
            self._trim(seq)
        return seq

    def split(self, seq: int) -> bool:
        """Cut one batch in two, for it is too large to be taken; return whether that could be done.

        The second half gets the next seq: nothing of this one was taken, or it would be durable.
        """
        with self._writing():
            row = self._db.execute("SELECT at, body FROM batch WHERE seq = ?", (seq,)).fetchone()
            batch = None if row is None else _unpacked(row[1])
            halves = None if batch is None else halved(batch)
            if halves is None:
                return False
            self._replace(seq, _packed(halves[0]))
            self._insert(row[0], _packed(halves[1]))
        return True

    def after(self, seq: int, limit: int) -> list[int]:
        """Return up to ``limit`` of the held seqs above ``seq``, oldest first."""
        with self._using():
            rows = self._db.execute(
                "SELECT seq FROM batch WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit)
            )
            return [row[0] for row in rows]

    def get(self, seq: int) -> TelemetryBatch | None:
        """Return one batch, addressed for sending now; None when it is no longer held.

        A batch that cannot be read back is dropped and counted.
        """
        with self._using():
            row = self._db.execute("SELECT body FROM batch WHERE seq = ?", (seq,)).fetchone()
            if row is None:
                return None
            batch = _unpacked(row[0])
            if batch is None:
                self.drop(seq)
                return None
            return msgspec.structs.replace(
                batch, boot_id=self.boot_id, seq=seq, oldest_seq=self.oldest_seq
            )

    def acknowledge(self, durable_seq: int) -> int:
        """Delete all up to ``durable_seq`` and return how many those were."""
        with self._writing():
            return self._delete("seq <= ?", durable_seq)

    def drop(self, seq: int) -> None:
        """Give one batch up, and count it."""
        with self._writing():
            self._count_dropped(self._delete("seq = ?", seq))

    def _open(self) -> sqlite3.Connection:
        if self._path != ":memory:":
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            # Made here, since SQLite would leave it readable by all.
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        db = sqlite3.connect(self._path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            # One process only: two would send the same seqs.
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA journal_mode = WAL")
            # FULL, for after a power cut a seq that was sent already must not be given again: the
            # server would take the new batch for the old one.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA journal_size_limit = 4194304")
            _upgrade(db)
            found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(found)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _put_aside(self) -> str:
        aside = f"{self._path}.damaged-{int(self._clock())}"
        for suffix in ("-wal", "-shm"):
            Path(self._path + suffix).unlink(missing_ok=True)
        Path(self._path).replace(aside)
        return aside

    def _read_life(self) -> tuple[str, int, int]:
        row = self._db.execute("SELECT boot_id, dropped, thinned_rows FROM life").fetchone()
        if row is None:
            row = (uuid.uuid4().hex, 0, 0)
            self._db.execute("INSERT INTO life VALUES (?, ?, ?)", row)
        return row[0], row[1], row[2]

    def _scalar(self, sql: str) -> int:
        value: int = self._db.execute(sql).fetchone()[0]
        return value

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """Keep other threads out and turn SQLite's errors into a SpoolError."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as exc:
                raise SpoolError(f"the spool {self._path} cannot be used: {exc}") from exc

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction; a failure leaves the counts as they were."""
        with self._using():
            before = self._bytes, self.dropped, self.thinned_rows
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._bytes, self.dropped, self.thinned_rows = before
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _insert(self, at: float, body: bytes) -> int:
        seq = self._db.execute(
            "INSERT INTO batch (at, bytes, body) VALUES (?, ?, ?)", (at, len(body), body)
        ).lastrowid
        assert seq is not None  # noqa: S101 -- an INSERT has a row id
        self._bytes += len(body)
        return seq

    def _replace(self, seq: int, body: bytes) -> None:
        before = self._db.execute("SELECT bytes FROM batch WHERE seq = ?", (seq,)).fetchone()[0]
        self._db.execute(
            "UPDATE batch SET bytes = ?, body = ? WHERE seq = ?", (len(body), body, seq)
        )
        self._bytes += len(body) - before

    def _trim(self, newest: int) -> None:
        """Make room until both bounds hold again."""
        self._count_dropped(self._delete("at < ?", self._clock() - self._max_age_s))
        while self._bytes > self._max_bytes:
            most_overdue = self._most_overdue(newest)
            if most_overdue is None:
                break
            if not self._thin(*most_overdue):
                # It has no reading to spare. Whatever is oldest goes.
                self._count_dropped(self._delete("seq = (SELECT min(seq) FROM batch)"))

    def _most_overdue(self, newest: int) -> tuple[int, int] | None:
        """Return the batch to be thinned next, and its level.

        Its age, divided by two for each time that it was thinned, is the highest. So the readings
        that are kept lie the further apart the older they are, and the newest are all there.
        """
        deepest = self._db.execute("SELECT max(level) FROM batch").fetchone()[0]
        if deepest is None:
            return None
        oldest = [
            (found, level)
            for level in range(deepest + 1)
            if (found := self._oldest_of(level)) is not None
        ]
        return max(oldest, key=lambda each: (newest + 1 - each[0]) / 2 ** each[1])

    def _oldest_of(self, level: int) -> int | None:
        row = self._db.execute("SELECT min(seq) FROM batch WHERE level = ?", (level,)).fetchone()
        found: int | None = row[0]
        return found

    def _thin(self, seq: int, level: int) -> bool:
        """Leave out every second reading of a batch; return whether that made it smaller."""
        body = self._db.execute("SELECT body FROM batch WHERE seq = ?", (seq,)).fetchone()[0]
        batch = _unpacked(body)
        thinner = None if batch is None else thinned(batch)
        self._db.execute("UPDATE batch SET level = ? WHERE seq = ?", (level + 1, seq))
        if batch is None or thinner is None or row_count(thinner) == row_count(batch):
            return False
        before = self._bytes
        self._replace(seq, _packed(thinner))
        self.thinned_rows += row_count(batch) - row_count(thinner)
        self._db.execute("UPDATE life SET thinned_rows = ?", (self.thinned_rows,))
        return self._bytes < before

    def _delete(self, condition: str, *arguments: float) -> int:
        """Delete the batches that meet ``condition``, which is one of this module's own."""
        rows = self._db.execute(
            f"DELETE FROM batch WHERE {condition} RETURNING bytes",  # noqa: S608
            arguments,
        ).fetchall()
        self._bytes -= sum(row[0] for row in rows)
        return len(rows)

    def _count_dropped(self, count: int) -> None:
        if count:
            self.dropped += count
            self._db.execute("UPDATE life SET dropped = ?", (self.dropped,))


def _upgrade(db: sqlite3.Connection) -> None:
    """Make the tables, or bring those of an older agent up to date."""
    db.executescript(_SCHEMA)
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    for number, script in enumerate(_UPGRADES[version:], start=version + 1):
        db.executescript(f"BEGIN; {script}; PRAGMA user_version = {number}; COMMIT;")


def _packed(batch: TelemetryBatch) -> bytes:
    return zstandard.compress(encode_batch(batch))


def _unpacked(body: bytes) -> TelemetryBatch | None:
    """Return the batch, or None where the body is damaged."""
    try:
        return decode_batch(zstandard.decompress(body), json=False)
    except (ValueError, zstandard.ZstdError):
        return None


def _way_out(exc: Exception) -> str:
    if "locked" in str(exc):
        return "; another agent has it: stop that one or give this one another --spool"
    return ""
