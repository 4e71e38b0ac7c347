"""The twin's pace: 10,240 GPUs for 24 h at steps of 1 s, and 102,400 GPUs at steps of 10 s.

All of the twin is in a step: its workload, power, heat, clocks, failures, the power tree and the
network. The day is run from its begin to its end, on one core, and the ceiling is in the same run:
the least passes over arrays of the same length that such a state could be stepped with. The same
seed, twice, has to give the same bytes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import report
from lab.fleet import make_fleet
from lab.twin import Twin
from lab.twin.network import Network
from lab.world import bench_case

DAY_S = 86_400
SEED = 7
CEILING_BLOCKS = 12
#: So often sensors of links are read, and have to be moved on.
READ_EVERY_S = 5.0
LARGE_STEP_S = 10.0
LARGE_STEPS = 60
WARM_UP_STEPS = 60
#: What a step cannot do without, by GPU: the job's work looked up and strayed from, static and
#: dynamic power, their sum, the limit held against it, heat of sink and die, energy.
CEILING_PASSES = 16

_NOTES = {
    "sim_10k_24h_s": "a whole day of 86,400 steps, one core, network included; bar: 45",
    "sim_10k_24h_wall_s": "by the wall, beside whatever else runs on this machine",
    "sim_100k_realtime_factor": "steps of 10 s, cut into five of 2 s; bar: 100",
    "sim_100k_coarse_factor": "the same in one step of 10 s",
    "share_of_ceiling": f"{CEILING_PASSES} bare passes over arrays of that length, over a step",
    "sim_same_seed": "sha256 of the state after the same steps of two twins is the same",
    "sim_world_realtime_factor": "with policies and admission in the loop; bar: 1,000",
}


def run() -> None:
    small = _Stepper(10_240, 1.0)
    seconds, wall_s = small.measure(DAY_S)
    ceiling_s = _ceiling_s(small.twin.fleet.gpu_count)
    figures: dict[str, Any] = {
        "sim_10k_24h_s": seconds * DAY_S,
        "sim_10k_24h_wall_s": wall_s * DAY_S,
        "sim_10k_step_ms": seconds * 1e3,
        "ceiling_step_ms": ceiling_s * 1e3,
        "share_of_ceiling": ceiling_s / seconds,
    }
    for key, substep_s in (("realtime_factor", 2.0), ("coarse_factor", LARGE_STEP_S)):
        seconds, _ = _Stepper(102_400, LARGE_STEP_S, substep_s).measure(LARGE_STEPS)
        figures[f"sim_100k_{key}"] = LARGE_STEP_S / seconds
    digests = [_digest(_Stepper(1024, 1.0).go(600)) for _ in range(2)]
    figures["sim_same_seed"] = digests[0] == digests[1]
    figures["sim_digest"] = digests[0][:16]
    figures |= _world_figures()
    report.show("twin", figures, _NOTES)


class _Stepper:
    """A twin with its network, both stepped together."""

    def __init__(self, gpus: int, step_s: float, substep_s: float = 2.0) -> None:
        self.twin = Twin(make_fleet(gpus=gpus), seed=SEED, substep_s=substep_s)
        self._network = Network(self.twin, seed=SEED)
        self._step_s = step_s

    def go(self, steps: int) -> Twin:
        read_every = max(1, round(READ_EVERY_S / self._step_s))
        for step in range(steps):
            self.twin.advance(self._step_s)
            if step % read_every == 0:
                self._network.advance(read_every * self._step_s)
        return self.twin

    def measure(self, steps: int) -> tuple[float, float]:
        """Return the processor's and the wall's time of a step: each of all blocks together."""
        self.go(WARM_UP_STEPS)
        began_cpu_s, began_s = time.process_time(), time.perf_counter()
        self.go(steps)
        return (
            (time.process_time() - began_cpu_s) / steps,
            (time.perf_counter() - began_s) / steps,
        )


def _ceiling_s(gpus: int) -> float:
    """Return the time of the bare passes, the fastest of some blocks."""
    values, other = np.random.default_rng(SEED).random((2, gpus)), np.empty(gpus)

    def passes() -> None:
        for _ in range(CEILING_PASSES // 2):
            np.multiply(values[0], values[1], out=other)
            np.add(values[0], other, out=other)

    return min(_seconds(passes, 500) for _ in range(CEILING_BLOCKS))


def _seconds(work: Callable[[], None], times: int) -> float:
    began_s = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began_s) / times


def _digest(twin: Twin) -> str:
    told = hashlib.sha256()
    for name in ("power_w", "temp_c", "temp_mem_c", "clock", "energy_j", "rack_w", "domain_w"):
        told.update(getattr(twin, name).tobytes())
    for ns in twin.throttle_ns.values():
        told.update(ns.tobytes())
    told.update(repr(twin.xid_log).encode())
    return told.hexdigest()


def _world_figures() -> dict[str, Any]:
    """Return the pace of the closed loop: some hundred GPUs, tight in power, under all policies."""
    world, until_s = bench_case()
    began_s = time.process_time()
    world.run(until_s)
    return {
        "world_gpus": world.twin.fleet.gpu_count,
        "sim_world_realtime_factor": until_s / (time.process_time() - began_s),
    }
