"""A whole installation beside a real Slurm: processes on this machine, and a plant that answers.

Servers, bridge and Slurm are as an operator has them. What stands in for machines is the plant: it
reports each node as drawing what the jobs draw that slurmd has on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.stack import REPOSITORY, Stack
from headroom.client import Client
from headroom.contracts import GpuColumns, NodeReport, TelemetryBatch
from headroom.errors import HeadroomError
from tests.slurm.cluster import SlurmCluster

__all__ = ["Machines", "Plant", "Whole", "whole"]

GPU_IDLE_W, GPU_PEAK_W = 70.0, 700.0
HOST_IDLE_W, HOST_PEAK_W = 600.0, 2_000.0
_REPORTS_EVERY_S = 2.0
_HARDWARE = f"""\
hardware_models:
  - {{name: H100, kind: gpu, rated_w: {GPU_PEAK_W}, idle_w: {GPU_IDLE_W}, slowdown_c: 87,
     sm_max_mhz: 1980}}
  - {{name: host, kind: node, rated_w: {HOST_PEAK_W}, idle_w: {HOST_IDLE_W}}}
sites:
"""
_SITE = """\
  - name: {site}
    budget_w: {site_w}
    power_domains:
      - {{name: utility, kind: utility, capacity_w: {site_w}, derating: 1.0}}
      - {{name: feed-a, kind: feed, parent: utility, capacity_w: {site_w}, derating: 1.0,
         pair: feed, side: A}}
      - {{name: feed-b, kind: feed, parent: utility, capacity_w: {site_w}, derating: 1.0,
         pair: feed, side: B}}
    cooling_zones:
      - {{name: hall, kind: rear-door, capacity_w: {site_w}, supply_c: 22}}
    racks:
"""
_RACK = """\
      - name: {rack}
        row: A
        position: {position}
        height_u: 48
        budget_w: {rack_w}
        feed_a: feed-a
        feed_b: feed-b
        cooling_zone: hall
        nodes:
"""
_NODE = """\
          - {{name: {node}, model: host, position_u: {unit}, height_u: 8,
             gpus: {{model: H100, count: {gpus}}}}}
"""


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines of one site. ``carried``: the share of their peak that its budgets have."""

    site: str
    nodes: int
    gpus: int
    carried: float = 1.1
    nodes_per_rack: int = 4

    @property
    def racks(self) -> dict[str, list[str]]:
        """The names of the nodes in each rack."""
        count, per_rack = self.nodes, self.nodes_per_rack
        return {
            f"R{rack + 1:02}": [
                f"{self.site}-r{rack + 1:02}-n{slot + 1}"
                for slot in range(min(per_rack, count - rack * per_rack))
            ]
            for rack in range(-(-count // per_rack))
        }

    @property
    def names(self) -> list[str]:
        return [node for nodes in self.racks.values() for node in nodes]

    @property
    def node_peak_w(self) -> float:
        return HOST_PEAK_W + self.gpus * GPU_PEAK_W

    @property
    def rack_w(self) -> float:
        """What the budget of a rack is."""
        return self.carried * self.nodes_per_rack * self.node_peak_w

    @property
    def site_w(self) -> float:
        """What the budget of the site is, and of all that feeds it."""
        return self.carried * self.nodes * self.node_peak_w

    def draws_w(self, busy: int) -> float:
        """Return what a node draws of which so many GPUs are at work."""
        host_w = HOST_IDLE_W + (HOST_PEAK_W - HOST_IDLE_W) * busy / self.gpus
        return host_w + busy * GPU_PEAK_W + (self.gpus - busy) * GPU_IDLE_W

    def inventory(self) -> str:
        """Return the site as YAML, without the models of its hardware."""
        lines = [_SITE.format(site=self.site, site_w=self.site_w)]
        for position, (rack, nodes) in enumerate(self.racks.items()):
            lines.append(_RACK.format(rack=rack, position=position, rack_w=self.rack_w))
            lines += [
                _NODE.format(node=node, unit=1 + 8 * place, gpus=self.gpus)
                for place, node in enumerate(nodes)
            ]
        return "".join(lines)


@dataclass
class Plant:
    """Reports what all machines of a site draw, from a thread, until it is stopped."""

    machines: Machines
    cluster: SlurmCluster
    agent: str
    server: str
    token: str
    _stop: threading.Event = field(default_factory=threading.Event)
    _boot: str = field(default_factory=lambda: uuid.uuid4().hex)
    _seq: int = 0
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with Client(self.server, self.token) as client:
            while not self._stop.is_set():
                # A server may be killed: the next batch has what counts.
                with suppress(HeadroomError):
                    client.push(self._batch())
                self._stop.wait(_REPORTS_EVERY_S)

    def _batch(self) -> TelemetryBatch:
        now = time.time()
        self._seq += 1
        return TelemetryBatch(
            agent=self.agent,
            boot_id=self._boot,
            seq=self._seq,
            oldest_seq=self._seq,
            sent_at=now,
            nodes=[
                NodeReport(node=node, gpus=self._gpus(node, now)) for node in self.machines.names
            ],
        )

    def _gpus(self, node: str, now: float) -> GpuColumns:
        count, busy = self.machines.gpus, self.cluster.busy_gpus(node)
        works = [gpu in busy for gpu in range(count)]
        return GpuColumns(
            ts=[now] * count,
            gpu=list(range(count)),
            power_w=[GPU_PEAK_W if each else GPU_IDLE_W for each in works],
            power_limit_w=[GPU_PEAK_W] * count,
            temp_c=[60.0 if each else 32.0 for each in works],
            sm_mhz=[1800.0 if each else 345.0 for each in works],
            util=[95.0 if each else 0.0 for each in works],
            throttle=[0] * count,
        )


@dataclass
class Whole:
    """What stands beside one Slurm: its bridge, and the machines that report."""

    stack: Stack
    cluster: SlurmCluster
    machines: Machines
    plant: Plant
    token_file: Path
    bridge: subprocess.Popen[bytes] | None = None

    def start_bridge(self) -> None:
        command = [
            sys.executable, "-m", "headroom", "slurm", "run", "--server", self.stack.url,
            "--token-file", str(self.token_file), "--name", self.machines.site,
            "--run-dir", str(self.cluster.run_dir), "--shared-dir",
            str(self.cluster.folder / "shared"), "--when-away", self.cluster.when_away,
        ]  # fmt: skip
        with (self.cluster.folder / "bridge.log").open("ab") as log:
            self.bridge = subprocess.Popen(
                command, cwd=REPOSITORY, env={**os.environ, **self.cluster.env}, stdout=log,
                stderr=log,
            )  # fmt: skip

    def kill_bridge(self) -> None:
        """End the bridge by SIGKILL."""
        if self.bridge is not None:
            self.bridge.kill()
            self.bridge.wait()


@contextmanager
def whole(
    stack: Stack, operator_token: str, sites: Sequence[tuple[Machines, SlurmCluster]]
) -> Iterator[list[Whole]]:
    """Have the sites in the inventory, and the machines and bridges of all report."""
    with Client(stack.url, operator_token, timeout_s=60) as operator:
        text = _HARDWARE + "".join(machines.inventory() for machines, _ in sites)
        operator.post_yaml("/api/v1/fleet/apply", text)
        asked = [{"name": f"of-{each.site}", "sites": [each.site]} for each, _ in sites]
        tokens = {each["name"]: each["token"] for each in operator.post("/api/v1/agents", asked)}
    made = []
    try:
        for machines, cluster in sites:
            agent = f"of-{machines.site}"
            token_file = cluster.folder / "token"
            token_file.write_text(tokens[agent])
            plant = Plant(machines, cluster, agent, stack.url, tokens[agent])
            made.append(Whole(stack, cluster, machines, plant, token_file))
            plant.start()
            made[-1].start_bridge()
        yield made
    finally:
        for each in made:
            each.plant.stop()
            if each.bridge is not None:
                each.bridge.terminate()
                each.bridge.wait()
