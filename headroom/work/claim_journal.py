"""The attempts that this machine has claimed, on disk before any of them starts."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from headroom.errors import HeadroomError
from headroom.work.contract import Task, WorkReport

__all__ = ["Claim", "ClaimJournal", "ClaimState", "JournalError"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS life (store TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS claim (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    attempt TEXT NOT NULL UNIQUE,  -- for good: what is written here once is never taken again
    state TEXT NOT NULL,
    task BLOB,
    signals INTEGER NOT NULL DEFAULT 0,
    report BLOB,                   -- how it ended
    at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS claim_open ON claim (id) WHERE state <> 'forgotten';
"""


class JournalError(HeadroomError):
    """The claim journal cannot be used."""


class ClaimState(StrEnum):
    """The state of an attempt. It only ever goes down this list."""

    CLAIMED = "claimed"
    #: It may have been started.
    STARTING = "starting"
    ENDED = "ended"
    #: The server has written its end down.
    FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class Claim:
    """One attempt. ``signals`` is the seq of the last signal that was passed on."""

    id: int
    attempt: str
    state: ClaimState
    task: Task | None
    signals: int
    report: WorkReport | None


class ClaimJournal:
    """The claims of one machine. Changes of a call are on disk when it returns.

    ``store`` names this journal: a machine that has lost it is another machine to the server.
    """

    def __init__(self, path: Path) -> None:
        """Open the journal, or make it. Raises :class:`JournalError`."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # It holds the environments of jobs. What SQLite puts beside it gets the same rights.
            path.touch(0o600)
            path.chmod(0o600)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # FULL: a claim that a power cut takes back would be given twice.
            self._db.executescript(
                f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {_SCHEMA}"
            )
            self.store = self._store()
        except (sqlite3.Error, OSError) as exc:
            raise JournalError(
                f"the claim journal {path} cannot be used: {exc}; where it is damaged, see that "
                "no job runs on this machine any more, then remove it"
            ) from exc

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def claim(self, attempt: str, task: Task, now: float) -> bool:
        """Take an attempt; return whether it had never been seen here before."""
        with self._writing() as db:
            done = db.execute(
                "INSERT INTO claim (attempt, state, task, at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (attempt, ClaimState.CLAIMED, msgspec.json.encode(task), now),
            )
            return done.rowcount == 1

    def refuse(self, report: WorkReport, now: float) -> None:
        """Record that an attempt is never to be started here. One that was stays as it is."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO claim (attempt, state, report, at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (attempt) DO UPDATE"
                " SET state = excluded.state, report = excluded.report WHERE state = 'claimed'",
                (report.attempt, ClaimState.ENDED, msgspec.json.encode(report), now),
            )

    def start(self, attempt: str) -> bool:
        """Move a claim on to be started; return whether that is so now."""
        with self._writing() as db:
            done = db.execute(
                "UPDATE claim SET state = 'starting' WHERE attempt = ? AND state = 'claimed'",
                (attempt,),
            )
            return done.rowcount == 1

    def signaled(self, attempt: str, seq: int) -> None:
        """Record the last signal that an attempt has been given."""
        with self._writing() as db:
            db.execute("UPDATE claim SET signals = ? WHERE attempt = ?", (seq, attempt))

    def end(self, report: WorkReport) -> None:
        """Record how an attempt ended. The first end counts."""
        with self._writing() as db:
            db.execute(
                "UPDATE claim SET state = 'ended', report = ? WHERE attempt = ?"
                " AND state IN ('claimed', 'starting')",
                (msgspec.json.encode(report), report.attempt),
            )

    def forget(self, attempt: str) -> None:
        """Record that the server knows the end. That the attempt was here is kept."""
        with self._writing() as db:
            db.execute(
                "UPDATE claim SET state = 'forgotten', report = NULL, task = NULL"
                " WHERE attempt = ? AND state = 'ended'",
                (attempt,),
            )

    def held(self) -> list[Claim]:
        """Return all attempts that the server has not released, oldest first."""
        rows = self._db.execute(
            "SELECT id, attempt, state, task, signals, report FROM claim"
            " WHERE state <> 'forgotten' ORDER BY id"
        )
        return [_claim(*row) for row in rows]

    def get(self, attempt: str) -> Claim | None:
        """Return one attempt, if it was ever here."""
        row = self._db.execute(
            "SELECT id, attempt, state, task, signals, report FROM claim WHERE attempt = ?",
            (attempt,),
        ).fetchone()
        return None if row is None else _claim(*row)

    def _store(self) -> str:
        with self._writing() as db:
            row = db.execute("SELECT store FROM life").fetchone()
            if row is None:
                row = (uuid.uuid4().hex,)
                db.execute("INSERT INTO life VALUES (?)", row)
            return str(row[0])

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as exc:
            raise JournalError(f"the claim journal cannot be written: {exc}") from exc


def _claim(
    number: int,
    attempt: str,
    state: str,
    task: bytes | None,
    signals: int,
    report: bytes | None,
) -> Claim:
    return Claim(
        number,
        attempt,
        ClaimState(state),
        None if task is None else msgspec.json.decode(task, type=Task),
        signals,
        None if report is None else msgspec.json.decode(report, type=WorkReport),
    )
