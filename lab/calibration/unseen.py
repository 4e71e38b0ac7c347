"""Predictions of kinds of job, GPUs and clusters that nothing was fitted to.

What is fitted and what is kept unseen is told by rules, not by results. Kinds of job are sorted by
the names of their benchmarks: the 1st, 3rd, 5th and 7th are fitted, and the others are unseen,
whatever number of nodes they ran on. Of two GPUs under limits each is predicted by the
curve of the other. Of clusters Seren is fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.calibration import caps, cluster, needs, node_power, rig
from lab.calibration.result import Comparison, Role, by_difference, by_share
from lab.calibration.sources import (
    capped_runs,
    fleet_distribution,
    kalos_distribution,
)
from lab.calibration.sources import node_power as node_readings
from lab.fleet import GPUS_PER_NODE
from lab.hardware import A100, H100, IMMERSED_H100
from lab.training import JOB_KINDS
from lab.training.measured import SHAPES
from physics.hardware import CURRENT

Array = NDArray[np.float64]

KINDS, GPUS, CLUSTER = "unseen-kinds", "unseen-gpus", "unseen-cluster"
#: Kinds of the twin's own that stand for training that nothing is known of.
GENERIC = ("train", "finetune")
#: So many jobs of each are drawn, on a node each, and read after they have warmed up.
JOBS = 120
WARM_S, READ_S, STEP_S = 200.0, 400.0, 1.0
SEED = 21


def benchmark_of(name: str) -> str:
    """Return the benchmark of a kind of run: ``8node_ssd`` is ``ssd``."""
    return name.partition("_")[2]


def unseen_kinds() -> set[str]:
    """Return the names of the measured kinds that nothing generic is fitted to."""
    benchmarks = sorted({benchmark_of(name) for name in SHAPES})
    return {name for name in SHAPES if benchmark_of(name) in benchmarks[1::2]}


def node_means_w(data: Path, names: set[str]) -> Array:
    """Return the mean power of a node in the runs of each of these kinds, W."""
    return np.array(
        [
            np.concatenate([run.power_w for run in node_readings(data, name)]).mean()
            for name in sorted(names)
        ]
    )


def generic_means_w(*, seed: int = SEED) -> Array:
    """Return the mean power of a node of each of many generic training jobs of the twin, W."""
    jobs = JOBS * len(GENERIC)
    made = rig.rig_of(node_power.row_kind(), jobs, seed=seed)
    for job, node in enumerate(made.nodes):
        gpus = GPUS_PER_NODE * node + np.arange(GPUS_PER_NODE)
        rig.begin(made.twin, JOB_KINDS[GENERIC[job % len(GENERIC)]], gpus)
    made.twin.advance(WARM_S)
    summed_w = np.zeros(jobs)
    for _ in range(round(READ_S / STEP_S)):
        made.twin.advance(STEP_S)
        summed_w += made.twin.node_w[made.nodes]
    return np.asarray(summed_w / round(READ_S / STEP_S))


def compare_kinds(data: Path) -> Iterator[Comparison]:
    """Compare generic training with kinds that it was not fitted to: level and variety.

    The naive predictions: each GPU and host draws its rating; all nodes draw the same.
    """
    unseen = unseen_kinds()
    rated_w = GPUS_PER_NODE * H100.rated_w + IMMERSED_H100.rated_w
    ours_w = generic_means_w()
    for names, role in ((SHAPES.keys() - unseen, Role.FITTED), (unseen, Role.UNSEEN)):
        real_w = node_means_w(data, set(names))
        yield by_share(
            KINDS,
            f"power of a node, mean of {len(names)} kinds",
            "W",
            real=float(real_w.mean()),
            twin=float(ours_w.mean()),
            bar=needs.FLEET_POWER,
            naive=rated_w,
            role=role,
        )
        yield by_difference(
            KINDS,
            f"… standard deviation over {len(names)} kinds",
            "W",
            real=float(real_w.std(ddof=1)),
            twin=float(ours_w.std(ddof=1)),
            bar=needs.VARIETY_W,
            naive=0.0,
            role=role,
        )
        low_w, high_w = np.quantile(ours_w, [0.05, 0.95])
        yield by_difference(
            KINDS,
            f"… kinds between the 5 % and 95 % quantiles of the twin's, of {len(names)}",
            "%",
            real=100.0 * float(((real_w >= low_w) & (real_w <= high_w)).mean()),
            twin=90.0,
            role=role,
        )


def compare_gpus(data: Path) -> Iterator[Comparison]:
    """Compare GPUs of two generations under limits, each by the catalogue's curve of the other.

    The curve of GPUs that nobody has measured is fitted to both, so it is no prediction of them.
    Naive: speed is power over what is drawn without a limit, and power is the limit.
    """
    for gpu, other in zip(caps.GPUS, reversed(caps.GPUS), strict=True):
        runs = capped_runs(data, gpu)
        curve = CURRENT.power_curve(other)
        rated_w = float(runs.limits_w[-1])
        law = caps.Law(curve.static_share * rated_w, curve.exponent, curve.linear_share)
        yield from caps.compare_twin(
            gpu, runs, law, name=f"{GPUS}/{gpu}", role=Role.UNSEEN, were={}
        )


def compare_cluster(data: Path) -> Iterator[Comparison]:
    """Compare Kalos, of which the twin is told how much of it idles, by the mix of work on Seren.

    The naive prediction is what was measured on Seren.
    """
    kalos = cluster.with_idle(cluster.SEREN, _idle_share(data))
    power_w, temp_c = cluster.sampled(kalos, seed=SEED)
    for metric, unit, twin in (("gpu_power", "W", power_w), ("gpu_temp", "°C", temp_c)):
        real, other = kalos_distribution(metric), fleet_distribution(data, metric)
        is_power = metric == "gpu_power"
        for quantile in (None, *cluster.QUANTILES):
            values = [_level(*each, quantile) for each in (real, other)]
            ours = float(twin.mean() if quantile is None else np.quantile(twin, quantile))
            name = "mean" if quantile is None else f"{100 * quantile:g} % quantile"
            if is_power:
                yield by_share(
                    f"{CLUSTER}/{metric}", name, unit, real=values[0], twin=ours,
                    of=None if quantile is None else A100.rated_w,
                    bar=needs.FLEET_POWER if quantile is None else needs.NODE_POWER,
                    naive=values[1], role=Role.UNSEEN,
                )  # fmt: skip
            else:
                yield by_difference(
                    f"{CLUSTER}/{metric}", name, unit, real=values[0], twin=ours,
                    bar=needs.TEMPERATURE_C, naive=values[1], role=Role.UNSEEN,
                )  # fmt: skip


def _idle_share(data: Path) -> float:
    """Return how much of Kalos idles, beside what idles of Seren: readings of no utilization."""
    shares = []
    for x, cdf in (kalos_distribution("gpu_util"), fleet_distribution(data, "gpu_util")):
        shares.append(float(cdf[x <= 0.0].max(initial=0.0)))
    return shares[0] / shares[1]


def _level(x: Array, cdf: Array, quantile: float | None) -> float:
    if quantile is not None:
        return float(np.interp(quantile, cdf, x))
    levels = np.linspace(0.0005, 0.9995, 1000)
    return float(np.interp(levels, cdf, x).mean())
