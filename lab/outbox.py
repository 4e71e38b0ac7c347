"""The batches that an agent of the twin keeps until the server has stored them.

The agent that runs on real machines keeps this on disk; the twin's readings are worth no more than
the process that makes them, so here it is memory, and bounded.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from headroom import __version__
from headroom.client import compress_batch
from headroom.contracts import (
    AgentStatus,
    JobColumns,
    LimitReport,
    LinkColumns,
    MeterColumns,
    NodeReport,
    TelemetryBatch,
    VersionReport,
    row_count,
)
from headroom.layouts import Encoder, Layout, joined, layout_of


@dataclass(frozen=True, slots=True)
class Pending:
    """A batch that is not known to be stored. ``body`` is ready to be pushed."""

    seq: int
    rows: int
    body: bytes
    #: of rows of fixed width, the layout under which they are; None: it is a typed batch
    layout: Layout | None = None
    #: of rows under a layout that names jobs, the typed batch: the layout ends with its jobs
    typed: bytes = b""

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return len(self.body) + len(self.typed)


@dataclass(slots=True)
class Counts:
    """Counts of the batches and rows of one outbox. ``stored_*`` are durable at the server."""

    batches: int = 0
    rows: int = 0
    stored_batches: int = 0
    stored_rows: int = 0
    stored_seq_rows: int = 0
    dropped_batches: int = 0
    refused_batches: int = 0


class Outbox:
    """The batches of one agent, in order, each kept until the server says that it is stored.

    One thread may add while another delivers. Where more than ``max_bytes`` wait when the next is
    made, the oldest are given up and counted.
    """

    def __init__(self, agent: str, *, max_bytes: int, boot_id: str = "") -> None:
        self.agent = agent
        self.boot_id = boot_id or uuid.uuid4().hex
        self.counts = Counts()
        self._max_bytes = max_bytes
        self._bytes = 0
        self._pending: OrderedDict[int, Pending] = OrderedDict()
        self._next_seq = 1
        self._sent_seq = 0
        self._waiting_since: float | None = None
        self._last_error = self._told_error = ""
        self._encoder: Encoder | None = None
        #: the layout that batches would go under, had the server agreed on it
        self.wanted: Layout | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        """Size of all that is not known to be stored."""
        return self._bytes

    @property
    def unsent_batches(self) -> int:
        """How many batches wait for a push."""
        with self._lock:
            first = next(iter(self._pending), self._next_seq)
            return self._next_seq - max(self._sent_seq + 1, first)

    @property
    def last_seq(self) -> int:
        """The seq of the newest batch, 0 before the first."""
        return self._next_seq - 1

    def add(
        self,
        *,
        nodes: list[NodeReport] | None = None,
        links: LinkColumns | None = None,
        meters: MeterColumns | None = None,
        jobs: JobColumns | None = None,
        limits: list[LimitReport] | None = None,
        versions: list[VersionReport] | None = None,
        sent_at: float | None = None,
    ) -> None:
        """Make the next batch of these readings and keep it."""
        with self._lock:
            # Before the batch is made, so that it tells the server what was given up.
            self._trim()
            oldest = next(iter(self._pending), self._next_seq)
            batch = TelemetryBatch(
                agent=self.agent,
                boot_id=self.boot_id,
                seq=self._next_seq,
                oldest_seq=oldest,
                sent_at=time.time() if sent_at is None else sent_at,
                status=self._status(),
                nodes=nodes or [],
                links=links,
                meters=meters,
                jobs=jobs,
                limits=limits or [],
                versions=versions or [],
            )
            rows = self._as_rows(batch)
            body = compress_batch(batch) if rows is None else rows
            layout = self._encoder.layout if self._encoder and rows is not None else None
            typed = compress_batch(batch) if layout and layout.jobs else b""
            self._keep(Pending(batch.seq, row_count(batch), body, layout, typed))

    def _as_rows(self, batch: TelemetryBatch) -> bytes | None:
        """Return ``batch`` under the agreed layout; None: it goes in the typed form.

        So does one that has an error to tell, since rows have no text.
        """
        if self._last_error != self._told_error:
            self._told_error = self._last_error
            return None
        body = self._encoder.encode(batch) if self._encoder else None
        if body is None and (layout := layout_of(batch)) is not None:
            known = self._encoder.layout if self._encoder else layout
            self.wanted = joined(known, layout)
        return body

    def agreed(self, layout: Layout, layout_id: str | None) -> None:
        """Send what fits ``layout`` as rows from now on; None: the server does not take it."""
        with self._lock:
            self.wanted = None
            self._encoder = Encoder(layout, layout_id) if layout_id else None

    def add_encoded(
        self, rows: int, encode: Callable[[int, int], bytes], *, layout: Layout | None = None
    ) -> None:
        """Keep the next batch, of so many rows, that ``encode`` makes of its seq and oldest_seq.

        ``layout``: the one that its rows of fixed width are under, where they are such.
        """
        with self._lock:
            self._trim()
            oldest = next(iter(self._pending), self._next_seq)
            self._keep(Pending(self._next_seq, rows, encode(self._next_seq, oldest), layout))

    def _keep(self, batch: Pending) -> None:
        self._pending[batch.seq] = batch
        self._bytes += batch.size
        self._next_seq += 1
        self.counts.batches += 1
        self.counts.rows += batch.rows

    def forget(self, layout: Layout) -> None:
        """Have what is under ``layout`` go in the typed form: the server does not take it again.

        What is not kept in the typed form stays as it is.
        """
        with self._lock:
            if self._encoder is not None and self._encoder.layout == layout:
                self._encoder = None
            for seq, each in self._pending.items():
                if each.layout == layout and each.typed:
                    self._pending[seq] = Pending(seq, each.rows, each.typed)
                    self._bytes -= len(each.body)

    def unsent(self) -> Pending | None:
        """Return the oldest batch that was not sent since the last :meth:`rewind`."""
        with self._lock:
            first = max(self._sent_seq + 1, next(iter(self._pending), self._next_seq))
            # Seqs follow each other but where a batch was refused.
            known = (seq for seq in range(first, self._next_seq) if seq in self._pending)
            seq = next(known, None)
            return None if seq is None else self._pending[seq]

    def sent(self, seq: int, *, durable_seq: int, now_s: float) -> None:
        """Note that ``seq`` was taken and that the server has stored all up to ``durable_seq``."""
        with self._lock:
            self._sent_seq = max(self._sent_seq, seq)
            if self._waiting_since is None:
                self._waiting_since = now_s
        self.stored(durable_seq, now_s=now_s)

    def stored(self, durable_seq: int, *, now_s: float) -> None:
        """Let go of every batch up to ``durable_seq``."""
        with self._lock:
            while self._pending and next(iter(self._pending)) <= durable_seq:
                batch = self._pop()
                self.counts.stored_batches += 1
                self.counts.stored_rows += batch.rows
                self.counts.stored_seq_rows += batch.seq * batch.rows
                self._waiting_since = now_s
            if not self._pending:
                self._waiting_since = None

    def refused(self, seq: int, reason: str) -> None:
        """Give up the batch ``seq``: the server will never take it."""
        with self._lock:
            batch = self._pending.pop(seq, None)
            if batch is not None:
                self._bytes -= batch.size
                self.counts.refused_batches += 1
            self._last_error = reason[:500]

    def rewind(self, *, now_s: float, after_s: float) -> bool:
        """Mark all as unsent if nothing was stored for ``after_s``.

        What the server has after all it knows by its seq, and stores no second time.
        """
        with self._lock:
            if self._waiting_since is None or now_s - self._waiting_since < after_s:
                return False
            self._sent_seq = 0
            self._waiting_since = now_s
            return True

    def _status(self) -> AgentStatus:
        return AgentStatus(
            version=__version__,
            spooled_batches=len(self._pending),
            dropped_batches=self.counts.dropped_batches,
            errors=self.counts.refused_batches,
            last_error=self._last_error,
        )

    def _trim(self) -> None:
        while self._bytes > self._max_bytes:
            self._pop()
            self.counts.dropped_batches += 1

    def _pop(self) -> Pending:
        _, batch = self._pending.popitem(last=False)
        self._bytes -= batch.size
        return batch
