"""The agent's process on a machine with GPUs, against the real server, with a writer beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections
from pytest_django.live_server_helper import LiveServer

from telemetry import stream
from telemetry.writer import Writer
from tests import owner
from tests.builders.fleet import SmallFleet, small_fleet
from tests.standin.nvml import StandIn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def clean_stores(clean_stores: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing but the test's own database, whose readings are committed."""
    # A server thread that kept its connection would keep the tests' database from being dropped.
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    empty_sample_tables()
    yield
    empty_sample_tables()


def empty_sample_tables() -> None:
    """Remove what was committed: no models of Django's, they are not flushed after a test."""
    with owner.session() as session:
        session.execute("TRUNCATE gpu_sample, host_sample")


@pytest.fixture
def fleet() -> SmallFleet:
    return small_fleet(
        sites=["oslo"], rows=["A"], racks_per_row=1, nodes_per_rack=1, gpus_per_node=2
    )


def run_once(machine: StandIn, server: LiveServer, fleet: SmallFleet) -> int:
    """Let the agent push one batch, and do meanwhile what a worker would."""
    (node,) = fleet.nodes
    writer = Writer(stream.shard_of(fleet.agent.name))
    spool = machine.control.with_name("spool.sqlite")
    config = machine.control.with_name("agent.toml")
    config.write_text("energy_s = 0\n")
    command = [
        sys.executable, "-m", "headroom", "agent", "--once", "--server", server.url,
        "--agent", fleet.agent.name, "--node", node, "--spool", str(spool), "--sample-s", "0.6",
        "--config", str(config),
    ]  # fmt: skip
    environment = {**os.environ, **machine.environment, "HEADROOM_TOKEN": fleet.token}
    with subprocess.Popen(command, env=environment) as process:
        while process.poll() is None:
            writer.step()
            time.sleep(0.02)
    while writer.step():
        pass
    return process.returncode


def stored(*columns: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT gpu.index, {', '.join(columns)} FROM gpu_sample AS sample"
            " JOIN fleet_gpu AS gpu ON gpu.id = sample.gpu_id ORDER BY sample.ts, gpu.index"
        )
        rows: list[Any] = cursor.fetchall()
        return rows


def test_what_nvml_says_is_stored(
    machine: StandIn, live_server: LiveServer, fleet: SmallFleet
) -> None:
    machine.gpu(power_mw=512_000, temperature=61, fan=40)
    machine.gpu(1, fan=None, mig=1, instances=f"{2**30} {2**30}")
    assert run_once(machine, live_server, fleet) == 0

    assert (
        stored("temp_c", "fan", "util", "mem_used", "power_limit_w")
        == [
            (0, 61, 40, 90, 2**30, 700),
            (1, 61, None, None, 2**31, 700),
        ]
        * 2
    )
    watts = [row[1] for row in stored("power_w")]
    assert watts == pytest.approx([512] * 4, rel=0.02)
    energy = [row[1] for row in stored("energy_j")]
    assert energy[2] > energy[0]
