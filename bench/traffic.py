"""A burst of checkpoints fills a line: what heartbeats and orders of jobs wait, with and without.

The line is real: three network namespaces and the kernel's own queues (see
:mod:`bench.traffic_line`). A real agent shares it by class when the server says so; what is timed
goes through the client of agent and runner. Without shares and with them come in one run, after the
line alone. In the end the agent is killed, and a lease ends with the server gone.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import report
from bench.traffic_line import (
    STORE_PORT,
    AgentProcess,
    FarEnd,
    Line,
    enter,
    limit_of,
    wait_until,
    why_not,
)
from headroom.client import Client
from headroom.contracts import TelemetryBatch
from headroom.work.contract import WorkReports

__all__ = ["run", "timed"]

#: Slow enough that the line is what is waited for, and not two cores that others use, too.
BITS_PER_S = 20e6
#: How many streams a shipper sends by side by side, as its threads do.
STREAMS = 8
SECONDS = 20.0
_EVERY_S = 0.02
_SETTLES_S = 2.0
#: How often each is killed, and each lease left to end.
_ENDS = 5
_LEASE_S = 6.0

_spawn = multiprocessing.get_context("spawn")


def run() -> None:
    if why := why_not():
        sys.exit(f"no line can be laid here: {why}")
    with tempfile.TemporaryDirectory(prefix="headroom-traffic-") as name, Line(BITS_PER_S) as line:
        folder = Path(name)
        far = FarEnd(line, folder)
        try:
            figures = {**_compared(line, far, folder), **_ended(line, far, folder)}
        finally:
            far.close()
    report.show("traffic", figures, _NOTES)
    report.keep("traffic", figures)


_NOTES = {
    "heartbeat_p99_ms": "a push of the agent, from sending to the answer; the line alone",
    "orders_p99_ms": "what the runner asks for jobs, whose loops hear it from the machine",
    "heartbeat_p99_without_ms": "the same while checkpoints fill the line",
    "heartbeat_p99_with_ms": "and with the line shared by class",
    "burst_without_share": "of the line, what checkpoints took",
    "burst_with_share": "the same with the line shared",
    "gone_after_kill_s": "after kill -9 of the agent, the longest",
    "gone_after_lease_s": "after the end of a lease with no server, the longest",
}


def _compared(line: Line, far: FarEnd, folder: Path) -> dict[str, Any]:
    alone = timed(line, far, SECONDS)
    without = timed(line, far, SECONDS, burst=True)
    far.answer([limit_of(line)])
    agent = AgentProcess(line, far, folder)
    try:
        wait_until(line, shared=True)
        shared = timed(line, far, SECONDS, burst=True)
    finally:
        agent.terminate()
    found: dict[str, Any] = {"line_mbit_per_s": BITS_PER_S / 1e6}
    for name in ("heartbeat", "orders"):
        found[f"{name}_p99_ms"] = alone[name]
        found[f"{name}_p99_without_ms"] = without[name]
        found[f"{name}_p99_with_ms"] = shared[name]
        found[f"{name}_p50_without_ms"] = without[f"{name}_p50"]
        found[f"{name}_p50_with_ms"] = shared[f"{name}_p50"]
    found["burst_without_share"] = without["burst_share"]
    found["burst_with_share"] = shared["burst_share"]
    return found


def _ended(line: Line, far: FarEnd, folder: Path) -> dict[str, Any]:
    killed, lapsed = [], []
    for _ in range(_ENDS):
        far.answer([limit_of(line)])
        agent = AgentProcess(line, far, folder)
        wait_until(line, shared=True)
        agent.kill()
        killed.append(wait_until(line, shared=False))
        limit = limit_of(line, for_s=_LEASE_S)
        far.answer([limit])
        agent = AgentProcess(line, far, folder)
        wait_until(line, shared=True)
        far.answer(None)
        wait_until(line, shared=False)
        lapsed.append(time.time() - limit.expires_at)
        agent.terminate()
    return {"gone_after_kill_s": max(killed), "gone_after_lease_s": max(lapsed), "ends": _ENDS}


def timed(line: Line, far: FarEnd, seconds: float, *, burst: bool = False) -> dict[str, float]:
    """Return 99th percentiles and medians (`_p50`) of round trips, ms, and what a burst took."""
    with _burst(line) if burst else _nothing():
        time.sleep(_SETTLES_S)
        taken, began = far.taken_bytes(), time.monotonic()
        queue: Any = _spawn.Queue()
        process = _spawn.Process(target=_asked, args=(line.node, far.url, seconds, queue))
        process.start()
        times = queue.get(timeout=10 * seconds + 120)
        process.join()
        bits = 8 * (far.taken_bytes() - taken)
        share = bits / (time.monotonic() - began) / line.bits_per_s
    return {
        "burst_share": share,
        **{name: 1e3 * report.percentile(each, 0.99) for name, each in times.items()},
        **{f"{name}_p50": 1e3 * report.percentile(each, 0.5) for name, each in times.items()},
    }


def _asked(namespace: str, url: str, seconds: float, queue: Any) -> None:
    """Push and ask in turn, and tell how long each answer took, s."""
    enter(namespace)
    times: dict[str, list[float]] = {"heartbeat": [], "orders": []}
    with Client(url, "hra_x", timeout_s=60) as client:
        end = time.monotonic() + seconds
        seq = 0
        while time.monotonic() < end:
            seq += 1
            batch = TelemetryBatch(
                agent="n2", boot_id="b", seq=seq, oldest_seq=seq, sent_at=time.time()
            )
            began = time.perf_counter()
            client.push(batch)
            times["heartbeat"].append(time.perf_counter() - began)
            began = time.perf_counter()
            client.report_work(WorkReports(store="s", nodes=["n2"]))
            times["orders"].append(time.perf_counter() - began)
            time.sleep(_EVERY_S)
    queue.put(times)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _burst(line: Line) -> Iterator[None]:
    """Fill the line with checkpoints, for as long as the context lasts."""
    process = _spawn.Process(target=_send, args=(line.node, line.address), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _send(namespace: str, address: str) -> None:
    enter(namespace)
    streams = [socket.create_connection((address, STORE_PORT)) for _ in range(STREAMS)]
    for each in streams:
        each.setblocking(False)
    piece = bytes(1 << 16)
    while True:
        for each in streams:
            try:
                each.send(piece)
            except BlockingIOError:
                continue
        time.sleep(0.001)
