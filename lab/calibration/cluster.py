"""Power and temperature over a whole cluster of A100s that many teams share.

There is no series of single GPUs, only how often each value was read, so what ran is fitted: how
many GPUs idle, wait, work a little and train. The mix is fitted to the powers, and resistance and
supply temperature to the temperatures. What is left is whether one twin can have both at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.calibration import needs, rig
from lab.calibration.result import Comparison, by_difference, by_share
from lab.calibration.sources import fleet_distribution
from lab.calibration.stats import ks_to_cdf, wasserstein_to_cdf
from lab.hardware import A100, HGX_A100
from lab.training import NEVER_S, JobKind
from lab.twin import Twin

Array = NDArray[np.float64]

NAME = "cluster"
NODES = 64
SEED = 8
#: Gangs of so many GPUs, evenly drawn.
GANGS = (1, 2, 4, 8, 8, 8, 16)
STEP_S = 2.0
#: Temperatures settle before GPUs are read, every so many steps.
SETTLES_S = 200.0
DURATION_S = 600.0
READ_EVERY = 7
QUANTILES = (0.1, 0.5, 0.9, 0.99)

#: Errors: Wasserstein distances in percent of the range, Kolmogorov and Smirnov's in percent, and
#: quantiles of power (in percent of the highest limit) and of temperature (°C). The highest are
#: apart: real sensors read up to 558 W of GPUs that are held to 400 W.
WERE = {
    "gpu_power": {"distance": 5.8, "ks": 17.0, "quantile": 3.5, "highest": 11.5},
    "gpu_temp": {"distance": 7.1, "ks": 16.5, "quantile": 3.4, "highest": 6.2},
}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The mix of work on the cluster, and its cooling.

    Shares of GPUs: free; held, but waiting, at activities up to ``waiting_activity``; working a
    little. The rest trains, and draws little for ``exchange_share`` of each step of about
    ``step_s``.
    """

    resistance_c_per_w: float
    supply_c: float
    free: float
    waiting: float
    light: float
    waiting_activity: float
    exchange_share: float
    step_s: float


SEREN = Cluster(
    resistance_c_per_w=0.1116,
    supply_c=21.1,
    free=0.292,
    waiting=0.16,
    light=0.083,
    waiting_activity=0.14,
    exchange_share=0.383,
    step_s=19.2,
)


def with_idle(cluster: Cluster, times: float) -> Cluster:
    """Return a cluster of which so many times as much idles; the rest of the work is as it was."""
    idle = cluster.free + cluster.waiting
    rest = (1.0 - min(times * idle, 1.0)) / (1.0 - idle)
    return replace(
        cluster,
        free=times * cluster.free,
        waiting=times * cluster.waiting,
        light=rest * cluster.light,
    )


def compare(data: Path) -> Iterator[Comparison]:
    power_w, temp_c = sampled(SEREN, seed=SEED)
    for metric, unit, twin in (("gpu_power", "W", power_w), ("gpu_temp", "°C", temp_c)):
        x, cdf = fleet_distribution(data, metric)
        were = WERE[metric]
        calibration = f"{NAME}/{metric}"
        yield Comparison(
            calibration=calibration,
            quantity="Wasserstein distance",
            unit=unit,
            error=wasserstein_to_cdf(x, cdf, twin),
            error_unit="% of range",
            was=were["distance"],
        )
        yield Comparison(
            calibration=calibration,
            quantity="greatest difference of the distributions",
            unit="% of GPUs",
            error=ks_to_cdf(x, cdf, twin),
            error_unit="% of GPUs",
            was=were["ks"],
        )
        for quantile in QUANTILES:
            real, ours = float(np.interp(quantile, cdf, x)), float(np.quantile(twin, quantile))
            name = f"{100 * quantile:g} % quantile"
            was = were["highest" if quantile > 0.95 else "quantile"]
            if metric == "gpu_power":
                yield by_share(
                    calibration,
                    name,
                    unit,
                    real=real,
                    twin=ours,
                    of=A100.rated_w,
                    was=was,
                    bar=needs.NODE_POWER,
                )
            else:
                yield by_difference(
                    calibration,
                    name,
                    unit,
                    real=real,
                    twin=ours,
                    was=was,
                    bar=needs.TEMPERATURE_C,
                )


def sampled(cluster: Cluster, *, seed: int) -> tuple[Array, Array]:
    """Return powers and temperatures that are read over such a cluster in the twin."""
    gpu = replace(A100, resistance_c_per_w=cluster.resistance_c_per_w)
    kind = rig.row_kind(gpu, HGX_A100, supply_c=cluster.supply_c, cooling="air")
    twin = rig.idle_twin(rig.fleet_of(kind, NODES), seed=seed)
    _fill(twin, cluster, np.random.default_rng(seed))
    twin.advance(SETTLES_S)
    powers, temps = [], []
    for step in range(round((DURATION_S - SETTLES_S) / STEP_S)):
        twin.advance(STEP_S)
        if step % READ_EVERY == 0:
            powers.append(twin.power_w.copy())
            temps.append(twin.temp_c.copy())
    return np.concatenate(powers), np.concatenate(temps)


def _fill(twin: Twin, cluster: Cluster, rng: np.random.Generator) -> None:
    """Assign gangs of GPUs, side by side, to the kinds of work on the cluster, in its shares."""
    kinds = (
        None,
        _kind("waiting", (0.02, cluster.waiting_activity)),
        _kind("light", (0.1, 0.75)),
        _kind("train", (0.75, 1.25), exchange=cluster.exchange_share, step_s=cluster.step_s),
    )
    shares = [cluster.free, cluster.waiting, cluster.light]
    shares.append(1.0 - sum(shares))
    count, first = twin.fleet.gpu_count, 0
    while first < count:
        gang = min(int(rng.choice(GANGS)), count - first)
        kind = kinds[int(rng.choice(len(kinds), p=shares))]
        if kind is not None:
            rig.begin(twin, kind, np.arange(first, first + gang))
        first += gang


def _kind(
    name: str, activity: tuple[float, float], *, exchange: float = 0.0, step_s: float = 10.0
) -> JobKind:
    return JobKind(
        name=name,
        stems=(name,),
        nodes=(1,),
        activity=activity,
        comm_activity=0.05,
        period_s=(0.5 * step_s, 2.0 * step_s),
        comm_share=(0.5 * exchange, 1.5 * exchange),
        checkpoint_every_s=(NEVER_S, NEVER_S),
        checkpoint_s=(1.0, 1.0),
        warmup_s=(0.0, 0.0),
        mean_life_s=NEVER_S,
        mem_share=(0.5, 0.9),
    )
