"""The load generator: pushes batches at a set rate, or as fast as the server takes them.

It shares the machine with what it loads, so it has to be cheap: a batch is encoded once for each
agent, and differs from the one before it in some bytes of fixed places, its seq, its times and its
energy. ``energy_j`` of every row is the seq of its batch, so what a database holds of one agent can
be compared with what was sent, row by row: the sum is the same if each row is there once.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from headroom.client import Refused, Unavailable
from headroom.contracts import NodeReport, TelemetryBatch, encode_batch
from headroom.layouts import Encoder, Layout, layout_of
from lab import enroll
from lab.delivery import Delivery, Sender
from lab.enroll import PUSH_TIMEOUT_S, Server
from lab.fleet import GPUS_PER_NODE, inventory_yaml, make_load_fleet
from lab.outbox import Outbox
from lab.readings import Frame
from lab.twin import Twin
from lab.twin.network import Network
from lab.wire import Wire, WireAgent

log = logging.getLogger(__name__)

#: The generator waits for the server when so many agents wait for their turn, when so many batches
#: of the agent whose turn it is were not pushed, or so many bytes (of all) are not stored.
MAX_BACKLOG = 64
MAX_UNSENT = 4
MAX_PENDING_BYTES = 256 * 2**20
_WARM_UP_S = 600.0
_IDLE_S = 0.002
_ASK_S = 0.3
#: What stands in a template where a batch has its own value. Each is eight bytes on the wire, and
#: nothing else is the same.
_SEQ, _OLDEST_SEQ = 2**61 + 3, 2**61 + 5
_SENT_AT, _TS, _ENERGY_J = 1.234567890123e9, 1.234567890125e9, 1.234567890127e9


@dataclass(frozen=True)
class Settings:
    """The options of the load generator. ``rate`` is in rows/s; 0 is as fast as possible."""

    gpus: int
    batch_gpus: int
    rate: float
    duration_s: float
    threads: int = 2
    drain_timeout_s: float = 120.0
    seed: int = 7
    #: so many batches at most; 0: no end but the duration's
    max_batches: int = 0


class Template:
    """The batch of one agent, encoded once, with the places of the fields that change."""

    def __init__(
        self,
        agent: str,
        boot_id: str,
        reports: Sequence[NodeReport],
        compressor: zstandard.ZstdCompressor | None = None,
        agree: Callable[[Layout], str | None] | None = None,
    ) -> None:
        """``agree``: agrees on a layout with the server; without it batches are typed."""
        for report in reports:
            if report.gpus is not None:
                report.gpus.ts = [_TS] * len(report.gpus)
                report.gpus.energy_j = [_ENERGY_J] * len(report.gpus)
        self.rows = sum(len(report.gpus or ()) for report in reports)
        batch = TelemetryBatch(
            agent=agent,
            boot_id=boot_id,
            seq=_SEQ,
            oldest_seq=_OLDEST_SEQ,
            sent_at=_SENT_AT,
            nodes=list(reports),
        )
        #: the layout of its batches and the id of that, where they are rows of fixed width
        self.agreed = _agreed(batch, agree) if agree else None
        rows = Encoder(*self.agreed).encode(batch) if self.agreed else None
        self._plain = encode_batch(batch) if rows is None else rows
        self._order = ">" if rows is None else "<"
        self._seq, self._oldest_seq = self._places("Q", _SEQ), self._places("Q", _OLDEST_SEQ)
        self._sent_at = self._places("d", _SENT_AT)
        self._ts, self._energy_j = self._places("d", _TS), self._places("d", _ENERGY_J)
        self._compressor = compressor or zstandard.ZstdCompressor()

    def _places(self, form: str, mark: float) -> NDArray[np.intp]:
        """Return where the eight bytes of each ``mark`` are."""
        wanted, firsts = struct.pack(self._order + form, mark), []
        at = self._plain.find(wanted)
        while at >= 0:
            firsts.append(at)
            at = self._plain.find(wanted, at + len(wanted))
        return np.array(firsts)[:, None] + np.arange(len(wanted))

    def body(self, seq: int, oldest_seq: int, now: float) -> bytes:
        """Return batch ``seq``, read at ``now``, as it is pushed."""
        plain = np.frombuffer(bytearray(self._plain), np.uint8)
        order = self._order
        plain[self._seq] = _bytes(order + "Q", seq)
        plain[self._oldest_seq] = _bytes(order + "Q", oldest_seq)
        plain[self._sent_at] = plain[self._ts] = _bytes(order + "d", now)
        plain[self._energy_j] = _bytes(order + "d", float(seq))
        return plain.tobytes() if self.agreed else self._compressor.compress(plain.data)


def _agreed(
    batch: TelemetryBatch, agree: Callable[[Layout], str | None]
) -> tuple[Layout, str] | None:
    """Return the layout of ``batch`` and its id; None where the server takes no rows."""
    layout = layout_of(batch)
    layout_id = None if layout is None else agree(layout)
    return (layout, layout_id) if layout and layout_id else None


def _bytes(form: str, value: float) -> NDArray[np.uint8]:
    return np.frombuffer(struct.pack(form, value), np.uint8)


@dataclass(frozen=True)
class Stream:
    """One agent and its batches."""

    sender: Sender
    template: Template

    def add(self) -> None:
        """Make the agent's next batch."""
        now = time.time()
        self.sender.outbox.add_encoded(
            self.template.rows,
            lambda seq, oldest_seq: self.template.body(seq, oldest_seq, now),
            layout=self.template.agreed[0] if self.template.agreed else None,
        )


@dataclass(frozen=True)
class Enrolled:
    """An agent of the load fleet, and the reports of its nodes."""

    name: str
    token: str
    reports: list[NodeReport]


def enrolled(server: Server, settings: Settings, *, stop: threading.Event) -> list[Enrolled]:
    """Put the load fleet into the server and enroll its agents."""
    fleet = make_load_fleet(gpus=settings.gpus)
    enroll.apply_inventory(server.setup, inventory_yaml(fleet, networked=False), stop=stop)
    per_agent = max(1, settings.batch_gpus // GPUS_PER_NODE)
    groups = [
        range(i, min(i + per_agent, len(fleet.nodes)))
        for i in range(0, len(fleet.nodes), per_agent)
    ]
    specs = [
        enroll.AgentSpec(f"load-{i + 1:05d}", nodes=tuple(fleet.nodes[n] for n in group))
        for i, group in enumerate(groups)
    ]
    tokens = enroll.enroll(server.setup, specs, stop=stop)
    twin = Twin(fleet, seed=settings.seed)
    twin.advance(_WARM_UP_S)
    frame = Frame(twin, Network(twin, seed=settings.seed))
    return [
        Enrolled(spec.name, tokens[spec.name], [_without_host(frame.node(n, 0.0)) for n in group])
        for spec, group in zip(specs, groups, strict=True)
    ]


def _without_host(report: NodeReport) -> NodeReport:
    report.host = None
    return report


class Load:
    """Owns the agents of the load fleet and the threads that push for them."""

    def __init__(self, server: Server, settings: Settings, *, stop: threading.Event) -> None:
        self._server = server
        self._wire = Wire(server.url, timeout_s=PUSH_TIMEOUT_S)
        self._settings = settings
        self._stop = stop
        self.streams: list[Stream] = []

    def run(self) -> dict[str, Any]:
        """Push for the set time, wait until all is stored, and return the figures of the run.

        ``stop`` ends the pushing early; what was pushed is still waited for.
        """
        self._enroll()
        halt = threading.Event()
        delivery = Delivery(threads=self._settings.threads, stop=halt)
        started_at, begun, used_s = time.time(), time.monotonic(), time.process_time()
        self._generate(delivery)
        pushed_s = time.monotonic() - begun
        self._drain(delivery)
        halt.set()
        delivery.join(timeout_s=2.0)
        self._wire.close()
        took_s, cpu_s = time.monotonic() - begun, time.process_time() - used_s
        return self._result(delivery, started_at, pushed_s, took_s) | {"cpu_s": round(cpu_s, 2)}

    def _enroll(self) -> None:
        agents = enrolled(self._server, self._settings, stop=self._stop)
        # Each of them agrees on a layout, which is for the server to do.
        with ThreadPoolExecutor(self._settings.threads) as threads:
            self.streams = list(threads.map(self._stream_of, agents))

    def _stream_of(self, each: Enrolled) -> Stream:
        client = WireAgent(self._wire, each.token)
        # Nothing is ever given up: a batch too many to hold is a batch not made.
        outbox = Outbox(each.name, max_bytes=2 * MAX_PENDING_BYTES)

        def agree(layout: Layout) -> str | None:
            return enroll.persist(partial(client.agree, layout), stop=self._stop)

        template = Template(each.name, outbox.boot_id, each.reports, agree=agree)
        if template.agreed:
            outbox.agreed(*template.agreed)
        return Stream(Sender(outbox, client), template)

    def _generate(self, delivery: Delivery) -> None:
        deadline = time.monotonic() + self._settings.duration_s
        limit = self._settings.max_batches
        for number, (stream, due) in enumerate(self._schedule()):
            if limit and number >= limit:
                return
            while time.monotonic() < due or not self._has_room(delivery, stream):
                if self._stop.wait(_IDLE_S) or time.monotonic() >= deadline:
                    return
            if self._stop.is_set() or time.monotonic() >= deadline:
                return
            stream.add()
            delivery.submit(stream.sender)

    def _schedule(self) -> Iterator[tuple[Stream, float]]:
        """Yield the streams in turn, each with the moment at which its next batch is due."""
        due = time.monotonic()
        while True:
            for stream in self.streams:
                yield stream, due
                if self._settings.rate > 0.0:
                    due += stream.template.rows / self._settings.rate

    def _has_room(self, delivery: Delivery, stream: Stream) -> bool:
        outbox = stream.sender.outbox
        return (
            delivery.backlog < MAX_BACKLOG
            and outbox.unsent_batches < MAX_UNSENT
            and outbox.pending_bytes <= MAX_PENDING_BYTES / len(self.streams)
        )

    def _drain(self, delivery: Delivery) -> None:
        """Wait until the server has stored every batch, or the time for that is over."""
        deadline = time.monotonic() + self._settings.drain_timeout_s
        while time.monotonic() < deadline:
            waiting = [each.sender for each in self.streams if len(each.sender.outbox)]
            if not waiting:
                return
            for sender in waiting:
                delivery.submit(sender)  # what is unsent, or was lost on the way, goes out again
                try:
                    sender.ask()
                except Unavailable:
                    break
                except Refused as exc:
                    log.error("position refused", extra={"agent": sender.outbox.agent, "why": exc})
            time.sleep(_ASK_S)

    def _result(
        self, delivery: Delivery, started_at: float, pushed_s: float, total_s: float
    ) -> dict[str, Any]:
        outboxes = [stream.sender.outbox for stream in self.streams]
        details = [
            {
                "agent": box.agent,
                "boot_id": box.boot_id,
                "batches": box.counts.stored_batches,
                "rows": box.counts.stored_rows,
                "energy_j": box.counts.stored_seq_rows,
            }
            for box in outboxes
        ]
        rows = sum(box.counts.rows for box in outboxes)
        return {
            "agents": len(outboxes),
            "agents_in_rows": sum(stream.template.agreed is not None for stream in self.streams),
            "gpus": sum(stream.template.rows for stream in self.streams),
            "batches_made": sum(box.counts.batches for box in outboxes),
            "rows_made": rows,
            "batches_stored": sum(box.counts.stored_batches for box in outboxes),
            "rows_stored": sum(box.counts.stored_rows for box in outboxes),
            "energy_j_stored": sum(box.counts.stored_seq_rows for box in outboxes),
            "batches_refused": sum(box.counts.refused_batches for box in outboxes),
            "batches_waiting": sum(len(box) for box in outboxes),
            "pushes_failed": delivery.pushes_failed,
            "reconnects": self._wire.reconnects,
            "started_at": started_at,
            "pushed_s": round(pushed_s, 3),
            "stored_s": round(total_s, 3),
            "rows_per_s": round(rows / pushed_s, 1),
            "by_agent": details,
        }
