"""The agent as a real process with a configuration: links, storage, Xids, exporters, meters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headroom.contracts import Columns, TelemetryBatch, blocks
from tests.data_sets import data_set
from tests.integration.agent.processes import AgentProcess, LimitServer, wait_for
from tests.standin.nvml import StandIn
from tests.unit.headroom.sources.servers import RedfishServer, TextServer

CONFIG = """
[kernel_log]
path = "{folder}/dmesg"

[ethernet]
interval_s = 1
links = {{lo = "n1/lo"}}

[storage]
interval_s = 5
mounts = [{{path = "{folder}/scratch", name = "scratch", mounted = false}}]

[[dcgm]]
url = "{dcgm}/metrics"
interval_s = 1
nodes = {{gpu-node-1 = "n2"}}

[[redfish]]
url = "{redfish}"
secrets_file = "{folder}/bmc.toml"
interval_s = 5
meters = [{{meter = "n1/input", chassis = "/redfish/v1/Chassis/1U"}}]
"""


@pytest.fixture
def server() -> Iterator[LimitServer]:
    made = LimitServer()
    yield made
    made.close()


@pytest.fixture
def neighbors() -> Iterator[tuple[TextServer, RedfishServer]]:
    """An exporter of another node's GPUs, and this node's baseboard."""
    text = (data_set("dcgm-exporter-text") / "h100x8_four_metrics.prom").read_text()
    archive = data_set("redfish-dmtf-mockup") / "public-rackmount1.tar.gz"
    with ExitStack() as stack:
        exporter = stack.enter_context(TextServer(text))
        yield exporter, stack.enter_context(RedfishServer(archive, password="geheim"))


@pytest.fixture
def config(tmp_path: Path, neighbors: tuple[TextServer, RedfishServer]) -> Path:
    exporter, baseboard = neighbors
    (tmp_path / "scratch").mkdir()
    os.mkfifo(tmp_path / "dmesg")
    secrets = tmp_path / "bmc.toml"
    secrets.touch(mode=0o600)
    secrets.write_text('username = "reader"\npassword = "geheim"\n')
    file = tmp_path / "agent.toml"
    file.write_text(CONFIG.format(folder=tmp_path, dcgm=exporter.url, redfish=baseboard.url))
    return file


def found(batches: list[TelemetryBatch]) -> dict[tuple[str, str], Columns]:
    """Return the last block of each kind of each node; links and meters have no node."""
    last = {}
    for batch in batches:
        for path, block in blocks(batch):
            place, _, kind = path.rpartition(".")
            node = batch.nodes[int(place[6:-1])].node if place else ""
            last[node, kind] = block
    return last


def test_all_that_is_configured_arrives(
    machine: StandIn,
    server: LimitServer,
    config: Path,
    tmp_path: Path,
    neighbors: tuple[TextServer, RedfishServer],
) -> None:
    machine.gpu(1, pci="00000000:9B:00.0")
    agent = AgentProcess(machine, server, "--config", str(config))
    with agent.ended_in_the_end():
        log = os.open(tmp_path / "dmesg", os.O_WRONLY)  # opens once the agent reads
        wait_for(lambda: ("n1", "gpus") in found(server.all_stored()))
        xid = (data_set("kernel-xid-logs") / "dmesg-xid-119.log").read_text().splitlines()[2]
        os.write(log, f"{xid}\n".encode())
        wanted = {
            *(("n1", kind) for kind in ("gpus", "host", "storage", "xids")),
            *(("n2", "gpus"), ("", "links"), ("", "meters")),
        }
        wait_for(lambda: found(server.all_stored()).keys() >= wanted)
        agent.terminate()
        os.close(log)

    blocks_ = found(server.all_stored())
    told = {
        place: {name: getattr(block, name) for name in block.__struct_fields__}
        for place, block in blocks_.items()
    }
    assert (told["n1", "xids"]["xid"], told["n1", "xids"]["gpu"]) == ([119], [1])
    assert set(told["n1", "storage"]["mount"]) == {"scratch"}
    assert told["n1", "storage"]["fsync_s"][0] > 0
    assert set(told["n2", "gpus"]["gpu"]) == set(range(8))
    assert told["n2", "gpus"]["power_w"][0] == 113.611
    assert set(told["", "links"]["link"]) == {"n1/lo"}
    assert told["", "meters"]["meter"][0] == "n1/input"
    assert (told["", "meters"]["power_w"][0], told["", "meters"]["temp_c"][0]) == (374, 24.8)
    # It logged in once, and logged out in the end.
    assert not neighbors[1].sessions
    assert [method for method, _ in neighbors[1].requests].count("POST") == 1
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_look_shows_what_is_slow_to_answer_too(
    machine: StandIn, config: Path, neighbors: tuple[TextServer, RedfishServer]
) -> None:
    def look(*options: str) -> str:
        command = [sys.executable, "-m", "headroom", "agent", "--node", "n1", "--sample-s", "0.2"]
        return subprocess.run(
            [*command, "--config", str(config), "--once", *options],
            env={**os.environ, **machine.environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout

    batch = json.loads(look("--print"))
    assert not neighbors[1].sessions
    assert batch["meters"]["power_w"] == [374]
    assert {report["node"] for report in batch["nodes"]} == {"n1", "n2"}
    assert batch["links"]["tx_bytes_per_s"][-1] is not None  # rates need two looks
    table = look("--table")
    for title in ("gpus of n1", "gpus of n2", "storage of n1", "host of n1", "links", "meters"):
        assert f"{title}\n" in table


def test_a_wrong_configuration_ends_the_agent_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("[storage]\nmount = []\n")
    done = subprocess.run(
        [sys.executable, "-m", "headroom", "agent", "--config", str(file), "--once", "--print"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: {file}: storage.mount: there is no such key; did you mean mounts?\n"
    )
