"""Progress of the jobs that run on this machine: their ranks report it, and are folded into one.

Ranks send to a socket of their attempt's own. What comes from jobs is not trusted: it is bounded,
and what is no report is left out and counted.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headroom.agent.devices import Block, Row
from headroom.training.reports import MOST_BYTES, RankReport, address_of
from headroom.training.sections import LOST

__all__ = ["Fold", "TrainingSource"]

logger = logging.getLogger(__name__)

#: Reports that are taken of one attempt before another is looked at, and the pause after that, s:
#: as fast as anybody may have us work.
_AT_ONCE, _PAUSE_S = 64, 0.02
_WAIT_S = 0.5
#: Ranks that one machine has of one attempt, at most.
_MOST_RANKS = 1024


@dataclass
class _Rank:
    """What one rank has reported since the last row."""

    step: int = 0
    steps: int = 0
    span_s: float = 0.0
    lost_s: float = 0.0
    samples: int = 0
    loss: float | None = None

    def add(self, report: RankReport) -> None:
        self.step, self.loss = report.step, report.loss
        self.steps += report.steps
        self.span_s += report.span_s
        self.lost_s += sum(spent for name, spent in report.sections.items() if name in LOST)
        self.samples += report.samples

    @property
    def step_time_s(self) -> float | None:
        """How long its steps took, without what it did between them."""
        return max(self.span_s - self.lost_s, 0.0) / self.steps if self.steps else None

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.span_s if self.span_s > 0 else 0.0


class Fold:
    """Reports of the ranks of one attempt on this machine, until a row is made of them. Pure."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._world = 1

    def add(self, report: RankReport) -> None:
        """Take a report."""
        if report.rank in self._ranks or len(self._ranks) < _MOST_RANKS:
            self._ranks.setdefault(report.rank, _Rank()).add(report)
            self._world = report.world

    def row(self, job: str) -> Row | None:
        """Return what came since the last row, as that of the job; None: nothing did.

        A step takes as long as on the slowest rank. Samples are those of the whole gang, taking the
        ranks of other machines for as fast as those here.
        """
        ranks, self._ranks = list(self._ranks.values()), {}
        if not ranks:
            return None
        losses = [rank.loss for rank in ranks if rank.loss is not None]
        times = [rank.step_time_s for rank in ranks if rank.step_time_s is not None]
        here_per_s = sum(rank.samples_per_s for rank in ranks)
        return {
            "job": job,
            "step": max(rank.step for rank in ranks),
            "loss": sum(losses) / len(losses) if losses else None,
            "step_time_s": max(times, default=None),
            "samples_per_s": here_per_s * max(self._world / len(ranks), 1.0) or None,
        }


@dataclass
class _Desk:
    """The socket of one attempt."""

    job: str
    socket: socket.socket
    path: Path
    fold: Fold = field(default_factory=Fold)


class TrainingSource:
    """Listens to the ranks of all attempts that run here, in a thread of its own."""

    block: Block = "jobs"

    def __init__(self) -> None:
        self.errors = 0
        self.last_error = ""
        self._lock = threading.Lock()
        self._desks: dict[str, _Desk] = {}
        self._selector = selectors.DefaultSelector()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._thread.start()

    def listen(self, attempt: str, path: Path, uid: int, gid: int) -> None:
        """Listen to an attempt at ``path``, to which its user may write; once is enough.

        Raises OSError where the socket cannot be made.
        """
        if attempt in self._desks:
            return
        path.unlink(missing_ok=True)
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            ear.setblocking(False)
            with address_of(path) as address:
                ear.bind(address)
            path.chmod(0o600)
            if os.geteuid() == 0:
                os.chown(path, uid, gid, follow_symlinks=False)
        except OSError:
            ear.close()
            raise
        desk = _Desk(attempt.rpartition("/")[0], ear, path)
        with self._lock:
            self._desks[attempt] = desk
            self._selector.register(ear, selectors.EVENT_READ, desk)

    def forget(self, attempt: str) -> None:
        """Listen no more to an attempt that is over. What it has reported is still read."""
        with self._lock:
            desk = self._desks.get(attempt)
            if desk is not None and desk.socket.fileno() >= 0:
                self._take(desk)
                self._selector.unregister(desk.socket)
                desk.socket.close()

    def read(self) -> Iterable[Row]:
        """Return a row for each attempt that has reported since the last read."""
        with self._lock:
            rows = [(attempt, desk.fold.row(desk.job)) for attempt, desk in self._desks.items()]
            for attempt, row in rows:
                if row is None and self._desks[attempt].socket.fileno() < 0:
                    del self._desks[attempt]
        return [row for _, row in rows if row is not None]

    def close(self) -> None:
        """Listen to nobody any more."""
        self._stop.set()
        self._thread.join(2 * _WAIT_S)
        with self._lock:
            for desk in self._desks.values():
                desk.socket.close()
            self._selector.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            ready = self._selector.select(_WAIT_S)
            with self._lock:
                for key, _ in ready:
                    if key.data.socket.fileno() >= 0:
                        self._take(key.data)
            self._stop.wait(_PAUSE_S)

    def _take(self, desk: _Desk) -> None:
        for _ in range(_AT_ONCE):
            try:
                said = desk.socket.recv(MOST_BYTES + 1)
            except OSError:
                return
            try:
                desk.fold.add(msgspec.msgpack.decode(said, type=RankReport))
            except (msgspec.MsgspecError, RecursionError) as exc:
                self.errors += 1
                self.last_error = f"a report of {desk.job}: {exc}"
