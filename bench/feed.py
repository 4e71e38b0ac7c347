"""The same readings for every store: as batches for Headroom, as remote writes for its peers.

All is encoded before a clock starts, so that what is measured is who stores, not who sends.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.readings import Readings, Step
from bench.remote_write import Body
from headroom.client import Client, Unavailable
from headroom.contracts import GpuColumns, NodeReport, TelemetryBatch
from headroom.layouts import Encoder, layout_of
from lab import enroll
from lab.enroll import Server
from lab.fleet import GPUS_PER_NODE, inventory_yaml

Array = NDArray[Any]

RACK_GPUS, NODE_GPUS = 64, GPUS_PER_NODE
#: Agents push each for itself: what one waits for is not to hold up the next. So many at a time,
#: which is a tenth of them, and all that threads of one client are good for.
SENDERS = 128
_SETUP_TIMEOUT_S = 300.0
#: What the contract has as integers.
_WHOLE = frozenset({"mem_used", "throttle", "ecc"})
_INDEXES = list(range(GPUS_PER_NODE))


# --- Headroom ------------------------------------------------------------------------------------


@dataclass
class Agents:
    """Agents of ``batch_gpus`` GPUs each, with the batches that they are to push."""

    batch_gpus: int
    clients: list[Client]
    nodes: list[range]
    names: list[str]
    node_names: Sequence[str]
    boot_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    batches: list[list[bytes]] = field(default_factory=list)
    encoders: dict[str, Encoder] = field(default_factory=dict)

    def encode(self, steps: Iterable[Step]) -> None:
        """Make one batch of each agent for each step, under the layouts that they agree on."""
        with ThreadPoolExecutor(SENDERS) as senders:
            for seq, step in enumerate(steps, start=len(self.batches) + 1):
                reports = list(_reports(step, self.node_names))
                parts = [reports[nodes.start : nodes.stop] for nodes in self.nodes]
                # What is agreed on at the same moment is cheaper for the server.
                made = senders.map(self._batch, self.clients, self.names, repeat(seq), parts)
                self.batches.append(list(made))

    def push(self, first: int, last: int) -> None:
        """Push the batches of steps ``first`` up to ``last``, those of each agent in order."""
        with ThreadPoolExecutor(SENDERS) as senders:
            for _ in senders.map(self._push_of_some, range(SENDERS), repeat(range(first, last))):
                pass

    def _push_of_some(self, sender: int, steps: Iterable[int]) -> None:
        for step in steps:
            for agent in range(sender, len(self.clients), SENDERS):
                _persist(self.clients[agent], self.batches[step][agent])

    def _batch(self, client: Client, agent: str, seq: int, reports: list[NodeReport]) -> bytes:
        batch = TelemetryBatch(
            agent=agent,
            boot_id=self.boot_id,
            seq=seq,
            oldest_seq=1,
            sent_at=time.time(),
            nodes=reports,
        )
        if agent not in self.encoders:
            self.encoders[agent] = _agreed(client, batch)
        body = self.encoders[agent].encode(batch)
        if body is None:
            raise ValueError(f"a batch of {agent} does not fit its layout")
        return body


def enroll_agents(url: str, operator_token: str, readings: Readings, batch_gpus: int) -> Agents:
    """Put the fleet into the server's inventory and enroll an agent for each ``batch_gpus``."""
    server = Server(url, operator_token, connections=SENDERS)
    stop = threading.Event()
    fleet = readings.fleet
    enroll.apply_inventory(server.setup, inventory_yaml(fleet, networked=False), stop=stop)
    per_agent = batch_gpus // GPUS_PER_NODE
    nodes = [
        range(first, min(first + per_agent, len(fleet.nodes)))
        for first in range(0, len(fleet.nodes), per_agent)
    ]
    names = [f"feed-{batch_gpus}-{i + 1:05d}" for i in range(len(nodes))]
    specs = [
        enroll.AgentSpec(name, nodes=tuple(fleet.nodes[n] for n in part))
        for name, part in zip(names, nodes, strict=True)
    ]
    tokens = enroll.enroll(server.setup, specs, stop=stop)
    clients = [server.client(tokens[name]) for name in names]
    return Agents(batch_gpus, clients, nodes, names, fleet.nodes)


def _agreed(client: Client, batch: TelemetryBatch) -> Encoder:
    layout = layout_of(batch)
    layout_id = None if layout is None else client.agree(layout)
    if layout is None or layout_id is None:
        raise ValueError("there is no agreeing on a layout")
    return Encoder(layout, layout_id)


def _persist(client: Client, body: bytes) -> None:
    while True:
        try:
            client.push_rows(body)
        except Unavailable as exc:
            time.sleep(exc.retry_after_s or 0.1)
        else:
            return


def _reports(step: Step, nodes: Sequence[str]) -> Iterator[NodeReport]:
    """Yield the report of each node at ``step``; fields that its GPUs lack are left out."""
    columns = {name: _as_the_contract_has_it(name, each) for name, each in step.values.items()}
    lacking = {name: np.isnan(values) for name, values in step.values.items()}
    ts = step.ts.tolist()
    for place, node in enumerate(nodes):
        part = slice(place * GPUS_PER_NODE, (place + 1) * GPUS_PER_NODE)
        # GPUs of one node are of one model: what the first lacks, all lack.
        known = {
            name: values[part] for name, values in columns.items() if not lacking[name][part.start]
        }
        yield NodeReport(node=node, gpus=GpuColumns(ts=ts[part], gpu=_INDEXES, **known))


def _as_the_contract_has_it(name: str, values: Array) -> list[Any]:
    is_whole = name in _WHOLE or name.endswith("_ns")
    found: list[Any] = (values.astype(np.int64) if is_whole else values).tolist()
    return found


# --- Its peers -----------------------------------------------------------------------------------


class RemoteWrites:
    """The same readings as remote writes of 64 GPUs each.

    A series has the fewest labels that tell it from the others: those of dcgm-exporter are four
    times as many bytes, and cost the peers more.
    """

    def __init__(self, readings: Readings, first: Step) -> None:
        self._fields = list(first.values)
        known = ~np.isnan(self._stacked(first))
        self._places: list[tuple[Array, Array]] = []
        self._bodies: list[Body] = []
        for start in range(0, known.shape[1], RACK_GPUS):
            # GPU by GPU, as an exporter lists them.
            gpus, fields = np.nonzero(known[:, start : start + RACK_GPUS].T)
            self._places.append((fields, gpus + start))
            self._bodies.append(
                Body(
                    [
                        self._labels(readings.fleet.nodes, self._fields[name], gpu)
                        for name, gpu in zip(*self._places[-1], strict=True)
                    ]
                )
            )

    @property
    def series(self) -> int:
        """How many series there are."""
        return sum(len(fields) for fields, _ in self._places)

    def encoded(self, step: Step) -> list[bytes]:
        """Return the requests that carry ``step``."""
        values, ts_ms = self._stacked(step), np.round(step.ts * 1000)
        return [
            body.filled(ts_ms[gpus], values[fields, gpus])
            for body, (fields, gpus) in zip(self._bodies, self._places, strict=True)
        ]

    def _stacked(self, step: Step) -> Array:
        return np.stack([step.values[name] for name in self._fields])

    @staticmethod
    def _labels(nodes: Sequence[str], name: str, gpu: int) -> Mapping[str, str]:
        return {
            "__name__": f"gpu_{name}",
            "instance": nodes[gpu // GPUS_PER_NODE],
            "gpu": str(gpu % GPUS_PER_NODE),
        }
