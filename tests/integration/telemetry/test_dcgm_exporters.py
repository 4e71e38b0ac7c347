"""What an exporter tells of GPUs that the inventory lacks: from its text to the agents page."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping
from typing import Any

import django.test
import pytest
import urllib3

from headroom.agent.delivery import Delivery
from headroom.agent.loop import AgentSettings, Sampler
from headroom.agent.sources.dcgm import DcgmPoller
from headroom.agent.spool import Spool
from headroom.client import Client
from telemetry import metrics
from telemetry.models import Agent
from tests.integration.telemetry.conftest import Source, drain_everything
from tests.integration.telemetry.test_ingest import stored
from tests.unit.headroom.builders import Clock
from tests.unit.headroom.sources.servers import TextServer

#: As many as an exporter is asked for within two minutes, each second.
POLLS = 120
#: Eight GPUs that the node has, and one that nobody knows of.
EXPOSITION = "".join(
    f'DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}"}} {100 + gpu}.5\n' for gpu in (*range(8), 12)
)


class Unthreaded:
    """An agent's source that is read where it is asked."""

    block = DcgmPoller.block
    errors = 0
    last_error = ""

    def __init__(self, poller: DcgmPoller) -> None:
        self.read = poller.poll
        self.close = poller.close


class ByDjango:
    """urllib3's pool, as far as the client uses it, in front of this process's server."""

    def __init__(self, server: django.test.Client) -> None:
        self._server = server

    def request(
        self, method: str, url: str, *, body: bytes, headers: Mapping[str, str], **_limits: Any
    ) -> urllib3.HTTPResponse:
        path, kind = urllib3.util.parse_url(url).request_uri, headers.get("Content-Type", "")
        told = self._server.generic(method, path, body, kind, headers=dict(headers))
        return urllib3.HTTPResponse(io.BytesIO(told.content), dict(told.items()), told.status_code)


@pytest.fixture
def exporter() -> Iterator[TextServer]:
    with TextServer(EXPOSITION) as made:
        yield made


def test_a_gpu_that_no_inventory_has_is_told_once_and_not_counted_at_each_poll(
    source: Source,
    exporter: TextServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client("http://testserver", source.token)
    monkeypatch.setattr(client, "_pool", ByDjango(source.client))
    spool, clock = Spool(":memory:"), Clock(time.time() - POLLS)
    delivery = Delivery(client, spool, monotonic=clock, clock=clock)
    poller = DcgmPoller(f"{exporter.url}/metrics", node="n1", nodes={})
    sampler = Sampler(AgentSettings("agent-1", "n1"), [Unthreaded(poller)], clock=clock)
    counted = metrics.REFUSED_ROWS.labels("unknown_gpu")._value.get()
    for poll in range(POLLS):
        sampler.sample()
        spool.put(sampler.seal())
        while delivery.round():
            pass
        clock.now += 1
        if poll % 8 == 0:
            drain_everything()
    poller.close()

    told = [each for each in caplog.records if each.msg == "not in the inventory and left out"]
    assert [(each.node, each.thing) for each in told] == [("n1", 12)]  # type: ignore[attr-defined]
    assert (delivery.refused_rows, delivery.errors, spool.dropped) == (1, 1, 0)
    agent = Agent.objects.get(name="agent-1")
    # Its first layout was refused for the same, once.
    assert (agent.refused_batches, agent.refused_rows) == (1, 1)
    assert "12" in agent.last_refusal
    assert metrics.REFUSED_ROWS.labels("unknown_gpu")._value.get() == counted + 1
    drain_everything()
    assert len(stored()) == 8 * POLLS
