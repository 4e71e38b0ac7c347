"""The time of a cycle on a whole fleet, and of an explanation of one job in its queue.

The fleet is full and short of power: what is queued finds little room, so that most of it is looked
at in vain, by the solver and by what is kept for those ahead. All is in memory, as in a worker.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from admission.core.cycle.calibration import Calibration
from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.estimates import estimates
from admission.core.cycle.whatif import explain
from admission.core.placement.cluster import Cluster
from admission.core.placement.place import place
from admission.core.request import Locality, Refusal, Request
from admission.core.snapshot import ClassRules, Pending, ProjectShare, Running, Snapshot
from bench import report
from config.garbage import look_seldom
from fleet.snapshot import FleetArrays
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, idle_cluster, make_request

#: 20 sites of 157 racks of 4 nodes of 8 GPUs: 100,480. Its racks feed three of their four nodes.
SITES, RACKS, NODES, GPUS = 20, 157, 4, 8
RACK_W = 33_000.0
#: The fleet is filled until so many jobs in a row find no room.
REFUSED = 60
PROJECTS = 30
ROUNDS = 5
EXPLAINED = 200
CLASSES = {
    "training": ClassRules("training", priority=10, max_gpus=80_000, kind_of_work="training"),
    "experiment": ClassRules("experiment", kind_of_work="training"),
    "inference": ClassRules("inference", priority=40, preempts=True, max_running=2_000),
}


def measure() -> dict[str, float | int]:
    """Return the figures. Django must be set up, though no server need run."""
    look_seldom()  # as in a worker
    rng = np.random.default_rng(6)
    fleet = make_arrays(
        sites=SITES, racks=RACKS, nodes=NODES, gpus=GPUS, budget_w=RACK_W,
        pdu_w=4 * RACK_W, zone_w=4 * RACK_W,
    )  # fmt: skip
    cluster, running = _full(fleet, rng)
    figures: dict[str, float | int] = {
        "cycle_gpus": len(fleet.gpus),
        "cycle_running": len(running),
        "cycle_free_gpus": int(cluster.gpu_free.sum()),
    }
    for count in (1_000, 5_000, 50_000):
        snapshot = _snapshot(cluster, running, rng, count)
        begun_s = time.process_time()
        times, decisions = _timed(snapshot)
        figures[f"cycle_{count}_100k_cpu_s"] = (time.process_time() - begun_s) / ROUNDS
        figures[f"cycle_{count}_100k_s"] = statistics.median(times)
        figures[f"cycle_{count}_100k_worst_s"] = max(times)
        figures[f"cycle_{count}_admitted"] = len(decisions.admitted)
        figures[f"cycle_{count}_reasons"] = len(
            {each.dominant.token for each in decisions.waiting.values()}
        )
        if count != 5_000:
            name = "explain" if count == 1_000 else f"explain_{count}"
            figures |= {f"{name}_{key}": value for key, value in _explained(decisions).items()}
    for count in (1_000, 10_000):
        decisions = decide(_snapshot(cluster, running, rng, count))
        begun_s = time.process_time()
        found = estimates(decisions, (), Calibration())
        figures[f"estimates_{count}_100k_cpu_s"] = time.process_time() - begun_s
        figures[f"estimates_{count}_made"] = len(found)
    return figures


def _full(fleet: FleetArrays, rng: np.random.Generator) -> tuple[Cluster, tuple[Running, ...]]:
    cluster, running = idle_cluster(fleet), list[Running]()
    refused = 0
    while refused < REFUSED:
        request = _request(rng, f"r{len(running)}")
        found = place(cluster, request)
        if isinstance(found, Refusal):
            refused += 1
            continue
        cluster.allocate(found, request)
        refused = 0
        begun = NOW - float(rng.uniform(0.0, 0.9)) * request.walltime_s
        running.append(Running(request, found, begun, begun + request.walltime_s))
    return cluster, tuple(running)


def _request(rng: np.random.Generator, name: str) -> Request:
    gpus = int(rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 256], p=_SIZES))
    job_class = str(rng.choice(list(CLASSES), p=[0.5, 0.4, 0.1]))
    peak_w = float(rng.integers(16, 29) * 25)
    is_capped = bool(rng.random() < 0.3)
    sites = [f"s{n + 1}" for n in rng.choice(SITES, 3, replace=False)]
    return make_request(
        f"{name}/train",
        project=f"p{rng.integers(PROJECTS)}",
        job_class=job_class,
        priority=CLASSES[job_class].priority + int(rng.integers(-2, 3)),
        submitted_at=NOW - float(rng.exponential(3600.0)),
        gpus=gpus,
        min_gpus=gpus // 2 if gpus > 8 and rng.random() < 0.3 else gpus,
        gpu_peak_w=peak_w,
        lowest_cap_w=0.7 * peak_w if is_capped else None,
        max_slowdown=0.15 if is_capped else 0.0,
        sites=tuple(sites) if rng.random() < 0.3 else (),
        required=Locality(int(rng.choice([1, 2, 3, 4, 5]))) if gpus <= 16 else Locality.SITE,
        preferred=Locality.RACK,
        walltime_s=float(rng.choice([1800.0, 7200.0, 28800.0, 86400.0, 604800.0])),
        preemptible=job_class == "experiment",
        checkpoint_interval_s=1800.0,
    )


_SIZES = [0.2, 0.1, 0.15, 0.25, 0.12, 0.08, 0.05, 0.03, 0.02]


def _snapshot(
    cluster: Cluster, running: tuple[Running, ...], rng: np.random.Generator, count: int
) -> Snapshot:
    projects = {
        f"p{n}": ProjectShare(
            f"p{n}",
            weight=float(1 + n % 4),
            gpu_quota=5_000 if n % 5 == 0 else None,
            used_gpu_s=float(rng.exponential(1e8)),
        )
        for n in range(PROJECTS)
    }
    return Snapshot(
        now=NOW,
        cluster=cluster,
        pending=tuple(Pending(_request(rng, f"q{n}")) for n in range(count)),
        running=running,
        projects=projects,
        classes=CLASSES,
    )


def _timed(snapshot: Snapshot) -> tuple[list[float], Decisions]:
    times = []
    for _ in range(ROUNDS):
        # What the solver found out in one round must not help it in the next.
        snapshot.cluster.refused.clear()
        snapshot.cluster.scratch.clear()
        begun = time.perf_counter()
        decisions = decide(snapshot)
        times.append(time.perf_counter() - begun)
    return times, decisions


def _explained(decisions: Decisions) -> dict[str, float | int]:
    keys = list(decisions.waiting)[:: max(len(decisions.waiting) // EXPLAINED, 1)]
    times, changes = [], 0
    for key in keys:
        begun = time.perf_counter()
        changes += len(explain(decisions, key).counterfactuals)
        times.append(1000.0 * (time.perf_counter() - begun))
    return {
        # Of this one all is made that later ones find made: the places of all in the order.
        "first_ms": times[0],
        "ms": statistics.median(times),
        "p95_ms": report.percentile(times, 0.95),
        "worst_ms": max(times),
        "jobs": len(keys),
        "changes": changes,
    }
