"""The load generator: pushes batches at a set rate, or as fast as the server takes them.

Each batch differs from the one before it in its times and its energy, and all else is encoded
beforehand. ``energy_j`` of every row is the seq of its batch, so what a database holds of one agent
can be compared with what was sent, row by row: the sum is the same if each row is there once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from headroom.client import Refused, Unavailable
from headroom.contracts import GpuColumns, NodeReport
from sim import enroll
from sim.delivery import Delivery, Sender
from sim.enroll import Server
from sim.fleet import GPUS_PER_NODE, inventory_yaml, make_load_fleet
from sim.network import Network
from sim.outbox import Outbox
from sim.readings import Frame
from sim.state import Twin

log = logging.getLogger(__name__)

#: The generator waits for the server when so many agents wait for their turn, when so many batches
#: of the agent whose turn it is were not pushed, or so many bytes (of all) are not stored.
MAX_BACKLOG = 64
MAX_UNSENT = 4
MAX_PENDING_BYTES = 256 * 2**20
_WARM_UP_S = 600.0
_IDLE_S = 0.002
_ASK_S = 0.3
_CHANGING = ("ts", "energy_j")


@dataclass(frozen=True)
class Settings:
    """What the command line sets. ``rate`` is in rows/s; 0 is as fast as possible."""

    gpus: int
    batch_gpus: int
    rate: float
    duration_s: float
    threads: int = 2
    drain_timeout_s: float = 120.0
    seed: int = 7


@dataclass(frozen=True)
class Template:
    """One node of an agent with its columns encoded, all but those that change."""

    node: str
    columns: dict[str, Any]

    def report(self, ts: float, energy_j: float) -> NodeReport:
        """Return the node's readings at ``ts``."""
        gpus = GpuColumns(
            ts=[ts] * GPUS_PER_NODE, energy_j=[energy_j] * GPUS_PER_NODE, **self.columns
        )
        return NodeReport(node=self.node, gpus=gpus)


@dataclass(frozen=True)
class Stream:
    """One agent and the nodes that its batches carry."""

    sender: Sender
    templates: list[Template]

    def add(self) -> None:
        """Make the agent's next batch."""
        outbox, now = self.sender.outbox, time.time()
        energy_j = float(outbox.last_seq + 1)
        outbox.add(nodes=[each.report(now, energy_j) for each in self.templates], sent_at=now)


class Load:
    """Owns the agents of the load fleet and the threads that push for them."""

    def __init__(self, server: Server, settings: Settings, *, stop: threading.Event) -> None:
        self._server = server
        self._settings = settings
        self._stop = stop
        self.streams: list[Stream] = []

    def run(self) -> dict[str, Any]:
        """Push for the set time, wait until all is stored, and return what was done.

        ``stop`` ends the pushing early; what was pushed is still waited for.
        """
        self._enroll()
        halt = threading.Event()
        delivery = Delivery(threads=self._settings.threads, stop=halt)
        started_at, begun = time.time(), time.monotonic()
        self._generate(delivery)
        pushed_s = time.monotonic() - begun
        self._drain(delivery)
        halt.set()
        delivery.join(timeout_s=2.0)
        return self._result(delivery, started_at, pushed_s, time.monotonic() - begun)

    def _enroll(self) -> None:
        fleet = make_load_fleet(gpus=self._settings.gpus)
        enroll.apply_inventory(
            self._server.setup, inventory_yaml(fleet, networked=False), stop=self._stop
        )
        per_agent = max(1, self._settings.batch_gpus // GPUS_PER_NODE)
        groups = [
            range(i, min(i + per_agent, len(fleet.nodes)))
            for i in range(0, len(fleet.nodes), per_agent)
        ]
        specs = [
            enroll.AgentSpec(f"load-{i + 1:05d}", nodes=tuple(fleet.nodes[n] for n in group))
            for i, group in enumerate(groups)
        ]
        tokens = enroll.enroll(self._server.setup, specs, stop=self._stop)
        twin = Twin(fleet, seed=self._settings.seed)
        twin.advance(_WARM_UP_S)
        frame = Frame(twin, Network(twin, seed=self._settings.seed))
        # Nothing is ever given up: a batch too many to hold is a batch not made.
        self.streams = [
            Stream(
                Sender(
                    Outbox(spec.name, max_bytes=2 * MAX_PENDING_BYTES),
                    self._server.client(tokens[spec.name]),
                ),
                [_template(frame.node(n, 0.0)) for n in group],
            )
            for spec, group in zip(specs, groups, strict=True)
        ]

    def _generate(self, delivery: Delivery) -> None:
        deadline = time.monotonic() + self._settings.duration_s
        for stream, due in self._schedule():
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
                    due += len(stream.templates) * GPUS_PER_NODE / self._settings.rate

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
            "gpus": sum(len(stream.templates) for stream in self.streams) * GPUS_PER_NODE,
            "batches_made": sum(box.counts.batches for box in outboxes),
            "rows_made": rows,
            "batches_stored": sum(box.counts.stored_batches for box in outboxes),
            "rows_stored": sum(box.counts.stored_rows for box in outboxes),
            "energy_j_stored": sum(box.counts.stored_seq_rows for box in outboxes),
            "batches_refused": sum(box.counts.refused_batches for box in outboxes),
            "batches_waiting": sum(len(box) for box in outboxes),
            "pushes_failed": delivery.pushes_failed,
            "started_at": started_at,
            "pushed_s": round(pushed_s, 3),
            "stored_s": round(total_s, 3),
            "rows_per_s": round(rows / pushed_s, 1),
            "cpu_s": round(time.process_time(), 2),
            "by_agent": details,
        }


def _template(report: NodeReport) -> Template:
    """Encode the columns of ``report``; Raw passes through the encoder as it is."""
    gpus = cast(GpuColumns, report.gpus)
    columns = {
        name: msgspec.Raw(msgspec.msgpack.encode(getattr(gpus, name)))
        for name in gpus.__struct_fields__
        if name not in _CHANGING and getattr(gpus, name) is not None
    }
    return Template(report.node, columns)
