"""Progress of the jobs that run on this machine: their ranks report it, and are folded into one.

What keepers of their checkpoints tell goes on as it is. All of them send to a socket of their
attempt's own. What comes from jobs is not trusted: it is bounded, and what is no report is left out
and counted.
"""

from __future__ import annotations

import logging
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

import msgspec

from headroom.agent.devices import Block, Row, Value
from headroom.contracts import CheckpointReport, StoreState
from headroom.training.reports import (
    MOST_BYTES,
    RankReport,
    ShippingReport,
    StoreReport,
    address_of,
)
from headroom.training.sections import LOST, Section

__all__ = ["Fold", "TrainingSource"]

logger = logging.getLogger(__name__)

#: Reports that are taken of one attempt before another is looked at, and the pause after that, s:
#: as fast as anybody may have us work.
_AT_ONCE, _PAUSE_S = 64, 0.02
_WAIT_S = 0.5
#: So long a row waits for ranks that have reported before, s: they do so each second, and not at
#: the same moment. A row of some of them would tell of what these alone waited for.
_WHOLE_S = 3.0
#: A rank whose steps take so much longer than the median rank's stands out.
_STANDS_OUT = 1.1
#: Ranks that one machine has of one attempt, at most, and stores of its checkpoints.
_MOST_RANKS, _MOST_STORES = 1024, 16


class _Either(msgspec.Struct):
    """A report of any kind, looked at no further than to tell which."""

    store: msgspec.Raw = msgspec.Raw()
    shipping: msgspec.Raw = msgspec.Raw()


@dataclass
class _Rank:
    """What one rank has reported since the last row."""

    step: int = 0
    steps: int = 0
    span_s: float = 0.0
    lost_s: float = 0.0
    data_wait_s: float = 0.0
    sync_s: float = 0.0
    samples: int = 0
    tokens: int = 0
    loss: float | None = None
    memory_bytes: int = 0
    flops_per_step: float = 0.0

    def add(self, report: RankReport) -> None:
        self.step, self.loss = report.step, report.loss
        self.steps += report.steps
        self.span_s += report.span_s
        self.lost_s += sum(spent for name, spent in report.sections.items() if name in LOST)
        self.data_wait_s += report.sections.get(Section.DATA_LOADING, 0.0)
        self.sync_s += report.sections.get(Section.GRADIENT_SYNC, 0.0)
        self.samples += report.samples
        self.tokens += report.tokens
        self.memory_bytes = max(self.memory_bytes, report.memory_bytes)
        self.flops_per_step = report.flops_per_step

    @property
    def lost_share(self) -> float:
        """The share of its time that it did not spend in steps. It has reported some time."""
        return min(self.lost_s / self.span_s, 1.0)

    @property
    def step_time_s(self) -> float:
        """How long its steps took, without what it did between them. It has made some."""
        return max(self.span_s - self.lost_s, 0.0) / self.steps

    @property
    def own_time_s(self) -> float:
        """The part of that in which it did not wait for other ranks: these end a step together."""
        return max(self.span_s - self.lost_s - self.sync_s, 0.0) / self.steps


class Fold:
    """Reports of the ranks of one attempt on this machine, until a row is made of them. Pure."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        #: the ranks that were in the last row
        self._before: frozenset[int] = frozenset()
        self._since, self._last = math.inf, 0.0
        self._world = 1

    def add(self, report: RankReport, now: float = 0.0) -> None:
        """Take a report that came at ``now``, Unix s."""
        if report.rank in self._ranks or len(self._ranks) < _MOST_RANKS:
            self._since, self._last = min(self._since, now), now
            self._ranks.setdefault(report.rank, _Rank()).add(report)
            self._world = report.world

    def row(self, job: str, now: float = math.inf) -> Row | None:
        """Return what came since the last row, as that of the job; None: nothing did.

        None as well where ranks of the last row have not reported yet, for three seconds at most.
        It is of the moment at which the last report came, which is over where it was waited for.
        A step takes as long as on the slowest rank. Samples are those of the whole gang, taking the
        ranks of other machines for as fast as those here.
        """
        is_whole = self._before <= self._ranks.keys()
        if not self._ranks or not (is_whole or now - self._since >= _WHOLE_S):
            return None
        ranks, self._ranks, self._since = self._ranks, {}, math.inf
        self._before = frozenset(ranks)
        losses = [rank.loss for rank in ranks.values() if rank.loss is not None]
        of_all = max(self._world / len(ranks), 1.0)
        timed = [rank for rank in ranks.values() if rank.span_s > 0]
        return {
            "job": job,
            "ts": self._last,
            "step": max(rank.step for rank in ranks.values()),
            "loss": fmean(losses) if losses else None,
            "samples_per_s": of_all * sum(rank.samples / rank.span_s for rank in timed) or None,
            "tokens_per_s": of_all * sum(rank.tokens / rank.span_s for rank in timed) or None,
            "lost_share": max((rank.lost_share for rank in timed), default=None),
            "rank_mem_bytes": max(rank.memory_bytes for rank in ranks.values()) or None,
            "flops_per_step": max(rank.flops_per_step for rank in ranks.values()) or None,
            **_steps_of({number: rank for number, rank in ranks.items() if rank.steps}),
        }


def _steps_of(ranks: Mapping[int, _Rank]) -> Row:
    """Return how long steps of ranks that made some took, and who of them stands out."""
    if not ranks:
        return {}
    row: dict[str, Value] = {
        "step_time_s": max(rank.step_time_s for rank in ranks.values()),
        "data_wait_s": max(rank.data_wait_s / rank.steps for rank in ranks.values()),
        "sync_s": fmean(rank.sync_s / rank.steps for rank in ranks.values()),
    }
    own = {number: rank.own_time_s for number, rank in ranks.items()}
    usual_s = median(own.values())
    if len(own) > 1 and usual_s > 0:
        slowest = max(own, key=lambda number: own[number])
        row["rank_spread"] = own[slowest] / usual_s
        row["slowest_rank"] = slowest if own[slowest] >= _STANDS_OUT * usual_s else None
    return row


@dataclass
class _Desk:
    """The socket of one attempt."""

    job: str
    socket: socket.socket
    path: Path
    fold: Fold = field(default_factory=Fold)
    #: what was told last of each store, by site, and when, Unix s
    stores: dict[str, tuple[float, StoreState]] = field(default_factory=dict)
    #: the limits that the keeper keeps to, by their ids; None: no keeper was heard
    obeyed: frozenset[str] | None = None
    #: of what its ranks run with
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether nobody is listened to any more."""
        return self.socket.fileno() < 0

    def row(self, now: float) -> Row | None:
        """Return what its ranks have reported, all of it where no more comes."""
        return self.fold.row(self.job, math.inf if self.is_over else now)

    def take(self, said: bytes, now: float) -> None:
        """Take a report. Raises what the decoder does."""
        either = msgspec.msgpack.decode(said, type=_Either)
        if bytes(either.shipping):
            report = msgspec.msgpack.decode(said, type=ShippingReport)
            self.obeyed = frozenset(report.shipping)
            return
        if not bytes(either.store):
            ranks = msgspec.msgpack.decode(said, type=RankReport)
            self.versions = {"nccl": ranks.nccl, "image": ranks.image}
            self.fold.add(ranks, now)
            return
        store = msgspec.msgpack.decode(said, type=StoreReport).store
        if store.site in self.stores or len(self.stores) < _MOST_STORES:
            self.stores[store.site] = (now, store)


class TrainingSource:
    """Listens to the ranks of all attempts that run here, in a thread of its own."""

    block: Block = "jobs"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.errors = 0
        self.last_error = ""
        self._clock = clock
        self._lock = threading.Lock()
        self._desks: dict[str, _Desk] = {}
        #: versions that ranks told last
        self._versions: dict[str, str] = {}
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
            if desk is not None and not desk.is_over:
                self._take(desk)
                self._selector.unregister(desk.socket)
                desk.socket.close()

    def obeyed(self, attempt: str) -> frozenset[str] | None:
        """Return the limits on sending that an attempt's keeper keeps to; None: it has none."""
        with self._lock:
            desk = self._desks.get(attempt)
            return None if desk is None else desk.obeyed

    def read(self) -> Iterable[Row]:
        """Return a row for each attempt that has reported since the last read."""
        with self._lock:
            now = self._clock()
            rows = [(attempt, desk.row(now)) for attempt, desk in self._desks.items()]
            for attempt, row in rows:
                desk = self._desks[attempt]
                if row is None and not desk.stores and desk.is_over:
                    del self._desks[attempt]
        return [row for _, row in rows if row is not None]

    def take_stores(self, node: str) -> list[CheckpointReport]:
        """Return what was told of stores of checkpoints on ``node`` since the last call."""
        found = []
        with self._lock:
            for desk in self._desks.values():
                told, desk.stores = desk.stores, {}
                found += [
                    CheckpointReport(job=desk.job, node=node, at=at, store=store)
                    for at, store in told.values()
                ]
        return found

    def versions(self) -> dict[str, str]:
        """Return the versions that ranks here run with, as they told last."""
        with self._lock:
            for desk in self._desks.values():
                self._versions |= {name: each for name, each in desk.versions.items() if each}
            return dict(self._versions)

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
                    if not key.data.is_over:
                        self._take(key.data)
            self._stop.wait(_PAUSE_S)

    def _take(self, desk: _Desk) -> None:
        for _ in range(_AT_ONCE):
            try:
                said = desk.socket.recv(MOST_BYTES + 1)
            except OSError:
                return
            try:
                desk.take(said, self._clock())
            except (msgspec.MsgspecError, RecursionError) as exc:
                self.errors += 1
                self.last_error = f"a report of {desk.job}: {exc}"
