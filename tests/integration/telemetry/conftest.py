from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from fleet.models import Gpu, HardwareModel, Node, Rack, Site
from headroom.contracts import TelemetryBatch, encode_batch
from telemetry.ingest import inbox
from telemetry.models import Agent
from telemetry.writer import Writer
from tests.builders.agents import make_agent


@pytest.fixture(autouse=True)
def clean_stores(db: None, clean_stores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with nothing but its own database, and forwards by hand."""
    monkeypatch.setattr("telemetry.tasks.forward_pushed.apply_async", lambda **options: None)


@dataclass
class Source:
    """An agent of one node with eight GPUs, and the way to push as it does."""

    agent: Agent
    token: str
    node: Node
    client: Client

    def push(
        self,
        batch: TelemetryBatch | bytes,
        *,
        content_type: str = "application/msgpack",
        **headers: str,
    ) -> Any:
        return self.client.post(
            "/api/v1/telemetry",
            data=batch if isinstance(batch, bytes) else encode_batch(batch),
            content_type=content_type,
            headers={"Authorization": f"Bearer {self.token}", **headers},
        )


def make_node(name: str, rack: Rack, model: HardwareModel) -> Node:
    node = Node.objects.create(name=name, rack=rack)
    Gpu.objects.bulk_create(Gpu(node=node, index=i, model=model) for i in range(8))
    return node


@pytest.fixture
def rack(db: None) -> Rack:
    site = Site.objects.create(name="oslo")
    return Rack.objects.create(site=site, name="A01", row="A", budget_w=40_000)


@pytest.fixture
def h100(db: None) -> HardwareModel:
    return HardwareModel.objects.create(
        name="H100", kind="gpu", rated_w=700, slowdown_c=87, sm_max_mhz=1980
    )


@pytest.fixture
def source(rack: Rack, h100: HardwareModel, client: Client) -> Source:
    node = make_node("n1", rack, h100)
    agent, token = make_agent("agent-1", nodes=[node])
    return Source(agent, token, node, client)


@pytest.fixture
def stranger(rack: Rack, h100: HardwareModel, client: Client) -> Source:
    """Another agent, of another node."""
    node = make_node("n2", rack, h100)
    agent, token = make_agent("agent-2", nodes=[node])
    return Source(agent, token, node, client)


def drain_everything() -> int:
    """Run the writer until the stream is empty; return the messages it took."""
    work = Writer(0)
    total = 0
    while count := work.step():
        total += count
    return total


def forward_everything() -> int:
    """Take what remote write and OTLP have brought to the samples; return the batches it made."""
    total = 0
    while batches := inbox.forward(time.time() + 3600).batches:
        total += batches
    drain_everything()
    return total
