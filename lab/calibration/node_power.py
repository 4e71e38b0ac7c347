"""Power of nodes at the wall while they train, by kind of run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.calibration import needs, rig
from lab.calibration.result import Comparison, Role, by_share
from lab.calibration.sources import NodeReadings, node_power
from lab.calibration.stats import wasserstein_share
from lab.fleet import RowKind
from lab.hardware import H100, IMMERSED_H100
from lab.training.measured import MEASURED_KINDS, SHAPES, Shape, measured_kind

Array = NDArray[np.float64]

NAME = "node-power"
#: The run of 512 GPUs.
LARGEST = "64node_gpt3"
#: The twin does so much of each run, which is a dozen evaluations of the largest and all of most
#: others; of these on so many nodes.
LARGEST_S = 1800.0
SOME_NODES = 4
SEED = 11
#: Evaluations take a twentieth of some runs, so the 5 % quantile would be that of either side.
QUANTILES = (0.1, 0.5, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class Were:
    """The errors that were, and a little, %.

    Of the mean; of the median and the upper quantiles, over the 99 % quantile; of the 10 %
    quantile, likewise; of the Wasserstein distance, over the range.
    """

    mean: float
    upper: float
    lowest: float
    distance: float


#: The machines of dlrm_dcnv2 and of resnet on one node differ by more than their readings spread,
#: and the fit saw one of them.
WERE: dict[str, Were] = {
    "64node_gpt3": Were(mean=0.3, upper=1.9, lowest=1.5, distance=5.1),
    "64node_llama2_70b_lora": Were(mean=0.4, upper=3.0, lowest=0.5, distance=2.3),
    "9node_unet3d": Were(mean=0.6, upper=1.7, lowest=20.5, distance=7.1),
    "8node_llama2_70b_lora": Were(mean=0.4, upper=1.3, lowest=8.1, distance=2.7),
    "8node_resnet": Were(mean=0.4, upper=0.7, lowest=0.4, distance=1.5),
    "8node_ssd": Were(mean=1.8, upper=1.4, lowest=0.4, distance=2.3),
    "1node_bert": Were(mean=0.3, upper=1.9, lowest=0.9, distance=1.7),
    "1node_dlrm_dcnv2": Were(mean=1.2, upper=1.1, lowest=0.6, distance=26.2),
    "1node_llama2_70b_lora": Were(mean=0.6, upper=0.8, lowest=3.4, distance=1.4),
    "1node_resnet": Were(mean=2.3, upper=2.8, lowest=1.5, distance=24.7),
    "1node_ssd": Were(mean=0.3, upper=0.9, lowest=1.1, distance=2.0),
    "1node_unet3d": Were(mean=0.6, upper=0.5, lowest=0.3, distance=1.4),
}


def row_kind() -> RowKind:
    """Return the rows that the runs were measured on: H100s in tanks."""
    return rig.row_kind(H100, IMMERSED_H100)


def simulate(
    name: str, shape: Shape, duration_s: float, *, seed: int, most: int = SOME_NODES
) -> rig.Metered:
    """Return the meters' readings while the twin does a run of ``shape``, on ``most`` nodes."""
    nodes = shape.nodes if name == LARGEST else min(shape.nodes, most)
    made = rig.rig_of(row_kind(), nodes, seed=seed)
    rig.begin(made.twin, measured_kind(name, shape), made.gpus)
    return rig.metered(made, duration_s, seed=seed)


@lru_cache(maxsize=len(MEASURED_KINDS))
def measured_run(name: str, duration_s: float) -> rig.Metered:
    """Return the meters' readings while the twin does a run of a measured kind."""
    return simulate(name, SHAPES[name], duration_s, seed=SEED)


def whole_run(name: str, duration_s: float) -> rig.Metered:
    """Return the readings of all nodes of a measured kind, also where some would tell its power."""
    return simulate(name, SHAPES[name], duration_s, seed=SEED, most=SHAPES[name].nodes)


def length_s(runs: Sequence[NodeReadings]) -> float:
    """Return how long the twin simulates of each of these runs, s."""
    whole_s = float(np.median([run.t_s.max() for run in runs]))
    return min(whole_s, LARGEST_S)


def compare(data: Path) -> Iterator[Comparison]:
    """Compare each kind with its runs, but for the first one, to which it was fitted.

    The naive prediction is the mean of the first runs of all other kinds.
    """
    first_w = {name: float(node_power(data, name)[0].power_w.mean()) for name in SHAPES}
    for name in SHAPES:
        runs = node_power(data, name)
        others_w = [watts for other, watts in first_w.items() if other != name]
        real_w = np.concatenate([run.power_w for run in runs[1:]])
        twin_w = measured_run(name, length_s(runs)).power_w.ravel()
        naive_w = float(np.mean(others_w))
        yield from compare_sample(name, real_w, twin_w, naive_w=naive_w)


def compare_sample(
    name: str, real_w: Array, twin_w: Array, *, naive_w: float | None = None
) -> Iterator[Comparison]:
    """Compare the readings of one kind of run. ``naive_w``: what one would say of its mean."""
    were = WERE[name]
    top_w = float(np.quantile(real_w, 0.99))
    calibration = f"{NAME}/{name}"
    yield by_share(
        calibration,
        "mean",
        "W",
        real=float(real_w.mean()),
        twin=float(twin_w.mean()),
        was=were.mean,
        bar=needs.NODE_POWER,
        naive=naive_w,
        role=Role.REPEAT,
    )
    for quantile in QUANTILES:
        yield by_share(
            calibration,
            f"{100 * quantile:g} % quantile",
            "W",
            real=float(np.quantile(real_w, quantile)),
            twin=float(np.quantile(twin_w, quantile)),
            of=top_w,
            was=were.lowest if quantile < 0.5 else were.upper,
            bar=None if quantile < 0.5 else needs.NODE_POWER,
            role=Role.REPEAT,
        )
    yield Comparison(
        calibration=calibration,
        quantity="Wasserstein distance",
        unit="W",
        error=wasserstein_share(real_w, twin_w),
        error_unit="% of range",
        was=were.distance,
        role=Role.REPEAT,
    )
