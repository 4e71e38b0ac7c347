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

from headroom.contracts import TelemetryBatch, decode_batch, encode_batch
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


class SpoolError(HeadroomError):
    """The spool cannot be used."""


class Spool:
    """A queue of batches that outlives the process. Safe to use from several threads.

    ``boot_id`` names one life of the spool: it is made with the file, and ``seq`` counts up within
    it, over restarts. Over ``max_bytes`` or ``max_age_s`` the oldest batches are dropped, and
    counted in ``dropped``.
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
        self.boot_id, self.dropped = self._read_life()
        self._bytes = self._scalar("SELECT coalesce(sum(bytes), 0) FROM batch")

    def close(self) -> None:
        """Close the file. What it holds stays."""
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
        body = zstandard.compress(encode_batch(batch))
        with self._writing():
            seq = self._db.execute(
                "INSERT INTO batch (at, bytes, body) VALUES (?, ?, ?)",
                (self._clock(), len(body), body),
            ).lastrowid
            self._bytes += len(body)
            self._trim()
        assert seq is not None  # noqa: S101 -- an INSERT has a row id
        return seq

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
            try:
                batch = decode_batch(zstandard.decompress(row[0]), json=False)
            except (ValueError, zstandard.ZstdError):
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
            db.executescript(_SCHEMA)
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

    def _read_life(self) -> tuple[str, int]:
        row = self._db.execute("SELECT boot_id, dropped FROM life").fetchone()
        if row is None:
            row = (uuid.uuid4().hex, 0)
            self._db.execute("INSERT INTO life VALUES (?, ?)", row)
        return row[0], row[1]

    def _scalar(self, sql: str) -> int:
        value: int = self._db.execute(sql).fetchone()[0]
        return value

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """Keep other threads out and make a SpoolError of what SQLite says."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as exc:
                raise SpoolError(f"the spool {self._path} cannot be used: {exc}") from exc

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction; a failure leaves the counts as they were."""
        with self._using():
            before = self._bytes, self.dropped
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._bytes, self.dropped = before
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _trim(self) -> None:
        """Drop the oldest batches until both bounds hold again."""
        lost = self._delete("at < ?", self._clock() - self._max_age_s)
        while self._bytes > self._max_bytes:
            gone = self._delete("seq = (SELECT min(seq) FROM batch)")
            if not gone:
                break
            lost += gone
        self._count_dropped(lost)

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


def _way_out(exc: Exception) -> str:
    if "locked" in str(exc):
        return "; another agent has it: stop that one or give this one another --spool"
    return ""
