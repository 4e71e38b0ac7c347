"""The cost of the agent to its node: memory and CPU, beside a bare loop of the same NVML reads.

The agent is the real process, at one reading a second and a push each ten, on a stand-in for NVML
with eight GPUs (tests/standin/nvml) and against a server that only stores. What a real driver uses
of the processor for an energy counter is used here too; what it does for other calls is not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import report
from tests.standin.nvml import StandIn
from tests.unit.headroom.fake_server import FakeServer

GPUS = 8
SAMPLE_S = 1
PUSH_S = 10
#: What is measured comes after the start, so that imports do not count.
SETTLE_S = 5.0
MEASURED_S = 60.0
#: What the energy counter of an H200 was seen to cost its driver, ms of CPU.
COUNTER_MS = 4
REPOSITORY = Path(__file__).resolve().parent.parent


def run() -> None:
    server = FakeServer()
    with tempfile.TemporaryDirectory(prefix="headroom-agent-") as folder:
        machine = StandIn(Path(folder), gpus=GPUS)
        machine.gpu(
            fan=40, power_mw=650_000, busy=f"nvmlDeviceGetTotalEnergyConsumption:{COUNTER_MS}"
        )
        agent = ["-m", "headroom", "agent", "--server", server.url, "--node", "n1",
                 "--spool", f"{folder}/spool.sqlite",
                 "--sample-s", str(SAMPLE_S), "--push-s", str(PUSH_S)]  # fmt: skip
        with _running(machine, *agent) as ours, _running(machine, "-m", "bench.nvml_loop") as peer:
            time.sleep(SETTLE_S)
            rows_before, began = _rows(server), time.monotonic()
            used, bare = _measured(ours, peer)
            elapsed_s = time.monotonic() - began
            rows = _rows(server) - rows_before
    server.close()
    report.show(
        "agent",
        {
            "rss_mb": used.rss_mb,
            "agent_core_share": used.cpu_share,
            "peer_rss_mb": bare.rss_mb,
            "peer_core_share": bare.cpu_share,
            "gpu_rows_per_s": rows / elapsed_s,
            "measured_s": elapsed_s,
        },
        {
            "rss_mb": "the highest; bar: under 60",
            "agent_core_share": f"bar: 0.01; an energy counter takes {COUNTER_MS} ms of CPU a call",
            "peer_rss_mb": "a bare loop of the same NVML reads, which keeps and sends nothing",
            "gpu_rows_per_s": f"that arrived; {GPUS} GPUs at {SAMPLE_S} s",
        },
    )


@dataclass(frozen=True)
class _Used:
    rss_mb: float
    cpu_share: float


@contextmanager
def _running(machine: StandIn, *arguments: str) -> Iterator[psutil.Process]:
    environment = {**os.environ, **machine.environment, "HEADROOM_TOKEN": "hra_bench"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(15)


def _measured(*processes: psutil.Process) -> list[_Used]:
    """Return the CPU and memory that each process used over the time measured."""
    began = time.monotonic()
    before = [_cpu_s(process) for process in processes]
    highest = [0.0 for _ in processes]
    pause = threading.Event()
    while time.monotonic() - began < MEASURED_S:
        for i, process in enumerate(processes):
            highest[i] = max(highest[i], process.memory_info().rss / 1e6)
        pause.wait(0.5)
    elapsed_s = time.monotonic() - began
    used = [_cpu_s(process) - cpu_s for process, cpu_s in zip(processes, before, strict=True)]
    return [_Used(mb, cpu_s / elapsed_s) for mb, cpu_s in zip(highest, used, strict=True)]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _rows(server: FakeServer) -> int:
    reports = [report for batch in server.all_stored() for report in batch.nodes]
    return sum(len(report.gpus) for report in reports if report.gpus is not None)


if __name__ == "__main__":
    run()
