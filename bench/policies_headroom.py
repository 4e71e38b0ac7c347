"""The time to evaluate the headroom of a whole fleet: every scope of every kind, all columns.

Inventory, live frame and past are in memory, as they are in a worker from one evaluation to the
next; each round finds a frame that has changed in every reading.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fleet.snapshot import FleetArrays
from policies.headroom.budgets import keys
from policies.headroom.columns import FIELDS
from policies.headroom.conditions import conditions
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.inputs import Mounts, Outlook, Past, Reservations, ThermalFits
from policies.headroom.trend import percentile, slope_per_s, still_for_s
from policies.scopes import ScopeKind
from telemetry.frame import LiveFrame
from tests.builders.arrays import make_arrays, make_frame

#: 20 sites of 157 racks of 4 nodes of 8 GPUs: 100,480.
SITES, RACKS, NODES, GPUS = 20, 157, 4, 8
ROUNDS = 25
NOW = 1_000_000.0


def measure() -> dict[str, float | int]:
    """Return the figures. Django must be set up, though no server need run."""
    fleet = make_arrays(sites=SITES, racks=RACKS, nodes=NODES, gpus=GPUS)
    rng = np.random.default_rng(3)
    past, reserved = _past(fleet, rng), _reservations(fleet, rng)
    frames = [_frame(fleet, rng) for _ in range(4)]
    _all_tables(fleet, frames[0], past, reserved)  # names are made once for an inventory
    begun_s = time.process_time()
    times = [
        _timed(partial(_all_tables, fleet, frames[each % len(frames)], past, reserved))
        for each in range(ROUNDS)
    ]
    cpu_s = (time.process_time() - begun_s) / ROUNDS
    found = evaluate(fleet, frames[0], now=NOW, past=past, reservations=reserved)
    found.table(ScopeKind.GPU)
    return {
        "headroom_100k_gpus": len(fleet.gpus),
        "headroom_100k_ms": statistics.median(times),
        "headroom_100k_p95_ms": sorted(times)[int(0.95 * len(times))],
        "headroom_100k_cpu_ms": 1000.0 * cpu_s,
        "headroom_100k_slopes_ms": statistics.median(_trend_times(fleet, rng)),
        "headroom_100k_conditions_ms": statistics.median(
            _timed(lambda: conditions(found, "s1")) for _ in range(3)
        ),
    }


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return 1000.0 * (time.perf_counter() - begun)


def _all_tables(
    fleet: FleetArrays, frame: LiveFrame, past: Past, reserved: Reservations
) -> Headroom:
    found = evaluate(fleet, frame, now=NOW, past=past, reservations=reserved)
    for kind in FIELDS:
        dict(found.table(kind).columns)
    return found


def _frame(fleet: FleetArrays, rng: np.random.Generator) -> LiveFrame:
    """Return a frame of a fleet at work, of which a hundredth is silent."""
    gpus, nodes = len(fleet.gpus), len(fleet.nodes)
    silent = rng.random(gpus) < 0.01
    return make_frame(
        fleet,
        now=NOW,
        gpu={
            "ts": np.where(silent, NOW - 300.0, NOW - rng.uniform(0, 10, gpus)),
            "power_w": rng.uniform(80, 700, gpus),
            "temp_c": rng.uniform(30, 85, gpus),
            "temp_mem_c": rng.uniform(30, 90, gpus),
            "temp_limit_c": 87.0,
            "throttle": rng.choice([0, 0, 0, 0x20], gpus),
        },
        host={"power_w": rng.uniform(1400, 4600, nodes)},
        meter={"power_w": rng.uniform(15_000, 40_000, len(fleet.meters))},
        link={
            "tx_bytes_per_s": rng.uniform(0, 8e10, len(fleet.links)),
            "rx_bytes_per_s": rng.uniform(0, 8e10, len(fleet.links)),
        },
        storage={"fsync_s": rng.uniform(0.001, 0.1, nodes), "read_s": rng.uniform(0, 0.01, nodes)},
    )


def _past(fleet: FleetArrays, rng: np.random.Generator) -> Past:
    sizes = {
        ScopeKind.SITE: len(fleet.sites),
        ScopeKind.ZONE: len(fleet.zones),
        ScopeKind.POWER_DOMAIN: len(fleet.domains),
        ScopeKind.RACK: len(fleet.racks),
        ScopeKind.NODE: len(fleet.nodes),
        ScopeKind.GPU: len(fleet.gpus),
        ScopeKind.LINK: len(fleet.links),
    }
    gpus = len(fleet.gpus)
    return replace(
        Past.none(fleet),
        slopes={kind: rng.normal(0, 10, size) for kind, size in sizes.items()},
        gpu_still_s=rng.choice([0.0, 160.0], gpus),
        link_bits_per_s=rng.uniform(0, 6e11, len(fleet.links)),
        thermal=ThermalFits(
            rng.uniform(0.04, 0.09, gpus), rng.uniform(300, 900, gpus),
            rng.uniform(20, 30, gpus), rng.uniform(0.5, 1.0, gpus),
        ),
        mounts=Mounts(fleet.nodes.ids, fleet.nodes.storage),
        outlook=replace(Outlook.none(len(keys(fleet))), at=NOW),
    )  # fmt: skip


def _reservations(fleet: FleetArrays, rng: np.random.Generator) -> Reservations:
    return replace(Reservations.none(fleet), node_w=rng.uniform(0, 10_000, len(fleet.nodes)))


def _trend_times(fleet: FleetArrays, rng: np.random.Generator) -> list[float]:
    """Return the times of slopes and percentiles after a new slot, which comes every 10 to 20 s."""
    series = sum(
        len(table) for table in (fleet.sites, fleet.zones, fleet.domains, fleet.racks, fleet.nodes)
    )
    times = 20.0 * np.arange(12, dtype=np.float64)
    loads = rng.normal(500, 50, (12, series + len(fleet.gpus))).astype(np.float32)
    links = rng.normal(1e9, 1e8, (60, len(fleet.links))).astype(np.float32)
    band = np.full(len(fleet.gpus), 35.0)

    def work() -> None:
        slope_per_s(times, loads)
        still_for_s(times, loads[:, series:], band, 230.0)
        slope_per_s(times, links[-12:])
        percentile(links, 0.95)

    return [_timed(work) for _ in range(5)]
