"""A real Prometheus scrapes a dcgm-exporter and writes to us by remote write.

The exporter serves expositions of real machines (data set ``dcgm-exporter-text``), with values that
change from scrape to scrape. What Prometheus itself has stored is compared with our rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, connections
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from bench.stack import Stack
from fleet import snapshot
from fleet.models import Gpu, HardwareModel, Node, Rack, Site
from headroom.client import Client
from telemetry import stream
from telemetry.ingest import inbox
from telemetry.writer import Writer
from tests.builders.agents import make_agent
from tests.data_sets import data_set
from tests.integration.telemetry.prometheus import (
    HOSTS,
    Exporter,
    Sample,
    compare,
    scraping,
    stored_query,
    wait_for,
)

INVENTORY = """
hardware_models:
  - {{name: GPU, kind: gpu, rated_w: 700}}
sites:
  - name: lab
    racks:
      - name: A01
        budget_w: 40000
        nodes:
{nodes}
"""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    serving = Exporter(data_set("dcgm-exporter-text"))
    yield serving
    serving.stop()


# --- In this process -----------------------------------------------------------------------------


@pytest.fixture
def agent_token(db: None) -> str:
    rack = Rack.objects.create(site=Site.objects.create(name="lab"), name="A01", budget_w=40_000)
    model = HardwareModel.objects.create(name="GPU", kind="gpu", rated_w=700)
    for host, count in HOSTS.items():
        node = Node.objects.create(name=host, rack=rack)
        Gpu.objects.bulk_create(Gpu(node=node, index=i, model=model) for i in range(count))
    _, token = make_agent("prometheus", sites=[rack.site])
    snapshot.invalidate()
    return token


@pytest.mark.django_db(transaction=True)
def test_what_prometheus_has_stored_is_here_once(
    live_server: LiveServer,
    exporter: Exporter,
    agent_token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
) -> None:
    # A server thread that kept its connection would keep the tests' database from being dropped.
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    settings.TELEMETRY_ASSEMBLY_S = 1.0
    work = Writer(stream.shard_of("prometheus"))

    def stored(column: str) -> list[Sample]:
        """Do what a worker would, and look."""
        inbox.forward(time.time())
        work.step()
        with connection.cursor() as cursor:
            cursor.execute(stored_query(column))
            return list(cursor.fetchall())

    with scraping(exporter, live_server.url, agent_token, tmp_path) as prometheus:
        wait_for(lambda: min(exporter.scrapes.values()) >= 5)
        exporter.stop()
        compare(prometheus, stored)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM gpu_sample")
        # However the scrapes were cut into requests, their halves have found each other.
        assert cursor.fetchone() == (len(stored("temp_c")),)


# --- As processes --------------------------------------------------------------------------------


def _enroll(stack: Stack) -> str:
    nodes = "\n".join(
        f"          - {{name: {host}, gpus: {{model: GPU, count: {count}}}}}"
        for host, count in HOSTS.items()
    )
    with Client(stack.url, stack.credential("operator_token")) as client:
        client.post_yaml("/api/v1/fleet/apply", INVENTORY.format(nodes=nodes))
        made: dict[str, Any] = client.post(
            "/api/v1/agents", {"name": "prometheus", "sites": ["lab"]}
        )
    return str(made["token"])


@pytest.mark.slow
def test_what_prometheus_has_stored_is_here_once_also_when_servers_were_killed(
    stack: Stack, exporter: Exporter, tmp_path: Path
) -> None:
    def stored(column: str) -> list[Sample]:
        with psycopg.connect(stack.environment["DATABASE_URL"]) as session:
            return list(session.execute(stored_query(column)).fetchall())

    with scraping(exporter, stack.url, _enroll(stack), tmp_path) as prometheus:
        for name in ("web", "worker", "valkey"):
            before = exporter.scrapes["/h100"]
            wait_for(lambda: exporter.scrapes["/h100"] >= before + 4)  # noqa: B023
            stack.kill(name)
            stack.wait_ready()
        wait_for(lambda: len(stored("temp_c")) >= 9 * 4)
        exporter.stop()
        compare(prometheus, stored)
