"""The agent's one loop: sample, seal, push, until told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headroom import __version__, heartbeat
from headroom.agent.actuation.reports import Reports
from headroom.agent.delivery import Delivery, DeliverySettings, Server
from headroom.agent.devices import Block, ColumnBuffer, Row, Source, close_all
from headroom.agent.spool import Spool, SpoolError
from headroom.agent.versions import Versions
from headroom.contracts import (
    AgentStatus,
    CheckpointReport,
    Columns,
    GpuColumns,
    HostColumns,
    JobColumns,
    LinkColumns,
    MeterColumns,
    NodeReport,
    StorageColumns,
    TelemetryBatch,
    XidColumns,
)
from headroom.errors import HeadroomError

__all__ = ["Agent", "AgentSettings", "Sampler"]

logger = logging.getLogger(__name__)

#: How long one push may take while the agent runs, and while it stops, s.
_PUSH_TIMEOUT_S = 10.0
_LAST_WORD_S = 3.0
_HEARTBEAT_S = 60.0
#: Whoever samples seldom shows signs of life in between, s.
_SIGN_S = 5.0
#: How long a round that failed for a reason of our own (a full disk) is put off, s.
_OWN_FAULT_PAUSE_S = 5.0

_KINDS: dict[Block, type[Columns]] = {
    "gpus": GpuColumns,
    "host": HostColumns,
    "storage": StorageColumns,
    "xids": XidColumns,
    "links": LinkColumns,
    "meters": MeterColumns,
    "jobs": JobColumns,
}
#: The blocks that are not of one node.
_OF_THE_BATCH: tuple[Block, ...] = ("links", "meters", "jobs")


@dataclass(frozen=True)
class AgentSettings:
    """The names of agent and node, and the intervals of sampling and pushing."""

    agent: str
    node: str
    sample_s: float = 1.0
    push_s: float = 5.0


class Sampler:
    """Gathers the rows of all sources into batches. The clock is the machine's own."""

    def __init__(
        self,
        settings: AgentSettings,
        sources: Sequence[Source],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._clock = clock
        self._buffers: dict[tuple[str, Block], ColumnBuffer[Any]] = {}
        self._crashes = 0
        self._last_crash = ""

    @property
    def errors(self) -> int:
        """How many reads failed, or gave values that the contract refuses, since the start."""
        failed = sum(source.errors for source in self._sources) + self._crashes
        # A copy, since this is asked by the thread that pushes.
        return failed + sum(buffer.rejected for buffer in list(self._buffers.values()))

    @property
    def last_error(self) -> str:
        """The message of the last failed read, or ""."""
        return next((s.last_error for s in self._sources if s.last_error), self._last_crash)

    def sample(self) -> int:
        """Read every source once; return the number of rows."""
        return sum(self._sample(source) for source in self._sources)

    def _sample(self, source: Source) -> int:
        ts = self._clock()
        try:
            rows = list(source.read())
        except Exception as exc:  # a defect in one source must not silence the others
            self._crashes += 1
            crash = f"{type(source).__name__}: {exc!r}"
            if crash != self._last_crash:
                logger.exception("source failed", extra={"source": type(source).__name__})
            self._last_crash = crash
            return 0
        for row in rows:
            self._keep(source.block, row, ts)
        return len(rows)

    def _keep(self, block: Block, row: Row, ts: float) -> None:
        node = "" if block in _OF_THE_BATCH else str(row.get("node") or self._settings.node)
        if (node, block) not in self._buffers:
            self._buffers[node, block] = ColumnBuffer(_KINDS[block])
        taken_at = row.get("ts")
        self._buffers[node, block].append(float(taken_at) if taken_at else ts, row)

    def seal(self) -> TelemetryBatch:
        """Return a batch of everything sampled since the last seal.

        Its seq is given by the spool. One without rows still says that the agent lives.
        """
        taken = {place: buffer.take() for place, buffer in self._buffers.items()}
        reports: dict[str, NodeReport] = {}
        for (node, block), columns in taken.items():
            if node and columns is not None:
                setattr(reports.setdefault(node, NodeReport(node=node)), block, columns)
        return TelemetryBatch(
            agent=self._settings.agent,
            boot_id="unspooled",
            seq=1,
            oldest_seq=1,
            sent_at=self._clock(),
            nodes=list(reports.values()),
            links=taken.get(("", "links")),
            meters=taken.get(("", "meters")),
            jobs=taken.get(("", "jobs")),
        )


class Agent:
    """Samples in the thread that calls :meth:`run`, pushes in another.

    A slow server thus costs no reading. Stopping, it seals what it sampled and tries for three
    seconds to hand it over; the rest waits in the spool for the next start.
    """

    def __init__(
        self,
        settings: AgentSettings,
        sources: Sequence[Source],
        spool: Spool,
        server: Server,
        *,
        limit_reports: Reports | None = None,
        checkpoint_reports: Callable[[str], list[CheckpointReport]] | None = None,
        before_last_word: Callable[[], None] | None = None,
        versions: Versions | None = None,
        delivery_settings: DeliverySettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._spool = spool
        self._limit_reports = limit_reports or Reports(clock)
        self._checkpoint_reports = checkpoint_reports
        self._before_last_word = before_last_word
        self._versions = versions
        self._sampler = Sampler(settings, sources, clock=clock)
        self.delivery = Delivery(
            server,
            spool,
            status=self.status,
            settings=delivery_settings or DeliverySettings(),
            clock=clock,
        )
        #: When the loop last went round, by :func:`time.monotonic`.
        self.heartbeat = time.monotonic()
        self._stop = threading.Event()
        self._wake_pusher = threading.Event()
        self._rows = 0
        self._lost_batches = 0

    def stop(self) -> None:
        """Ask the loop to end. May be called from a signal handler or another thread."""
        self._stop.set()
        self._wake_pusher.set()

    def status(self) -> AgentStatus:
        """Return the status of the agent, as its batches carry it."""
        return AgentStatus(
            version=__version__,
            spooled_batches=len(self._spool),
            dropped_batches=self._spool.dropped + self._lost_batches,
            thinned_rows=self._spool.thinned_rows,
            errors=self._sampler.errors + self.delivery.errors,
            last_error=(self.delivery.last_error or self._sampler.last_error)[:500],
            skew_s=self.delivery.clock_skew.skew_s,
        )

    def run(self) -> None:
        """Go round until :meth:`stop`."""
        pusher = threading.Thread(target=self._push_until_stopped, name="push", daemon=True)
        pusher.start()
        logger.info(
            "agent started",
            extra={"node": self._settings.node, "boot_id": self._spool.boot_id},
        )
        try:
            self._sample_until_stopped()
        finally:
            self.stop()
            # First, for closing undoes the limits that were set, and the last batch tells of it.
            close_all(self._sources)
            if self._before_last_word is not None:
                self._before_last_word()
            self._seal()
            self._last_word(pusher)

    def run_once(self) -> bool:
        """Sample, seal and push once; return whether the server took all batches."""
        self._sampler.sample()
        self._stop.wait(self._settings.sample_s)  # rates need two looks
        self._sampler.sample()
        self._seal()
        while self.delivery.round(timeout_s=_PUSH_TIMEOUT_S):
            pass
        return not self.delivery.unsent

    def _sample_until_stopped(self) -> None:
        sample_s, push_s = self._settings.sample_s, self._settings.push_s
        next_sample = time.monotonic()
        next_seal = next_sample + push_s
        next_heartbeat = next_sample + _HEARTBEAT_S
        while not self._waited_until(next_sample):
            self._rows += self._sampler.sample()
            now = self.heartbeat = time.monotonic()
            next_sample = _next_on_grid(next_sample, sample_s, now)
            if now >= next_seal:
                self._seal()
                self._wake_pusher.set()
                next_seal = _next_on_grid(next_seal, push_s, now)
            if now >= next_heartbeat:
                self._log_heartbeat()
                next_heartbeat = now + _HEARTBEAT_S

    def _waited_until(self, moment: float) -> bool:
        """Wait until ``moment`` and show signs of life meanwhile; True: asked to end before."""
        while True:
            heartbeat.beat()
            left_s = max(0.0, moment - time.monotonic())
            if left_s <= _SIGN_S:
                return self._stop.wait(left_s)
            if self._stop.wait(_SIGN_S):
                return True

    def _seal(self) -> None:
        batch = self._sampler.seal()
        batch.limits = self._limit_reports.take()
        # Keepers tell them again, so that those of a lost batch are not missed for long.
        if self._checkpoint_reports is not None:
            batch.checkpoints = self._checkpoint_reports(self._settings.node)
        if self._versions is not None:
            batch.versions = self._versions.due()
        try:
            self._spool.put(batch)
        except SpoolError as exc:
            self._lost_batches += 1
            self._limit_reports.put_back(batch.limits)
            logger.error("batch lost", extra={"cause": exc})

    def _push_until_stopped(self) -> None:
        more = True  # what an earlier life left behind
        while not self._stop.is_set():
            if not more:
                self._wake_pusher.wait(self.delivery.wait_s or None)
                self._wake_pusher.clear()
            try:
                more = self.delivery.round(timeout_s=_PUSH_TIMEOUT_S)
                more = more or (self.delivery.unsent and not self.delivery.wait_s)
            except HeadroomError as exc:
                logger.error("push round failed", extra={"cause": exc})
                self._stop.wait(_OWN_FAULT_PAUSE_S)

    def _last_word(self, pusher: threading.Thread) -> None:
        """Deliver remaining batches, for as long as a stop may take, and close the spool."""
        deadline = time.monotonic() + _LAST_WORD_S
        pusher.join(_LAST_WORD_S)
        if pusher.is_alive():
            # It hangs in a push and uses the spool; both end with the process.
            logger.warning("agent stopped during a push", extra={"spooled": len(self._spool)})
            return
        self.delivery.hurry()
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                if not self.delivery.round(timeout_s=left_s):
                    break
        except HeadroomError as exc:
            logger.error("last push failed", extra={"cause": exc})
        logger.info("agent stopped", extra={"spooled": len(self._spool)})
        self._spool.close()

    def _log_heartbeat(self) -> None:
        logger.info(
            "heartbeat",
            extra={
                "rows": self._rows,
                "accepted": self.delivery.accepted,
                "durable_seq": self.delivery.durable_seq,
                "spooled": len(self._spool),
                "dropped": self._spool.dropped + self._lost_batches,
                "thinned": self._spool.thinned_rows,
                "errors": self._sampler.errors + self.delivery.errors,
            },
        )


def _next_on_grid(due: float, period: float, now: float) -> float:
    """Return the first of ``due + n * period`` after ``now``.

    What a slow device made us miss is left out, not made up for in a burst.
    """
    return due + period * (1 + max(0.0, now - due) // period)
