"""The fit of :data:`lab.training.measured.SHAPES` to the first run of each kind.

It minimizes what the calibration compares: Wasserstein distances of readings, of their changes, and
of readings during evaluations, and the quantiles of the change of all nodes together, between the
run and the twin that does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from lab.calibration.node_power import LARGEST, length_s, simulate
from lab.calibration.rig import METER_S
from lab.calibration.sources import evaluations, node_power
from lab.calibration.stats import wasserstein_share
from lab.calibration.swings import at_moments, real_grid, real_moments
from lab.training.measured import SHAPES, Shape

Array = NDArray[np.float64]

#: What is fitted, with bounds. Those of the log, steps and evaluations, are given; evaluations that
#: are not all at low power are as long as their low part is.
BOUNDS = {
    "activity": (0.02, 1.25),
    "comm_activity": (0.0, 1.0),
    "comm_share": (0.0, 0.9),
    "eval_activity": (0.0, 1.25),
    "setup_s": (0.0, 60.0),
    "eval_s": (0.0, np.inf),
    "pause_s": (0.0, 60.0),
}
#: Kinds whose evaluations are at low power from begin to end.
EVALUATES_LOW = {LARGEST}
#: Kinds whose first run stands still for some seconds before its first evaluation.
PAUSES = {name for name in SHAPES if name.endswith("llama2_70b_lora")}
#: Readings so far apart follow on each other.
NEXT_S = (1.5, 2.6)
TRIES = 120
#: So few readings during evaluations say nothing of them.
ENOUGH = 100
SEED = 5
#: Of the change of all nodes together, as they are compared.
QUANTILES = (0.01, 0.99)


@dataclass(frozen=True)
class Target:
    """The target of a fit: a run's readings, their changes, and the readings in evaluations.

    ``grid_w`` has the power of its nodes, in columns, at ``moments`` of a common grid, s.
    """

    power_w: Array
    change_w: Array
    evaluating_w: Array
    grid_w: Array
    moments: Array


def target(data: Path, name: str) -> Target:
    """Return the first run of a kind as the target of its fit."""
    run = node_power(data, name)[0]
    starts_s, stops_s = evaluations(data, run.run)
    changes = []
    for node in range(run.nodes):
        t_s, power_w = run.of(node)
        apart_s = np.diff(t_s)
        changes.append(np.diff(power_w)[(apart_s > NEXT_S[0]) & (apart_s < NEXT_S[1])])
    # A meter's mean reaches back: what it says right after the start is of the time before.
    inside = np.zeros(len(run.t_s), dtype=np.bool_)
    for start_s, stop_s in zip(starts_s, stops_s, strict=False):
        inside |= (run.t_s > start_s + METER_S) & (run.t_s < stop_s)
    return Target(
        run.power_w,
        np.concatenate(changes),
        run.power_w[inside],
        real_grid(data, 0, name),
        real_moments(data, 0, name),
    )


def fit(data: Path, name: str, first: Shape) -> tuple[Shape, float]:
    """Return the shape that makes the twin most like the first run of a kind, and its cost."""
    aim = target(data, name)
    fits = {"eval_s": name not in EVALUATES_LOW, "pause_s": name in PAUSES}
    fitted = [each for each in BOUNDS if fits.get(each, True)]
    start = np.array([getattr(first, each) for each in fitted])
    cost = _cost(name, first, fitted, aim, length_s(node_power(data, name)))
    found = minimize(
        cost,
        start,
        method="Nelder-Mead",
        options={
            "maxfev": TRIES,
            "initial_simplex": np.vstack([start, start + np.diag(0.15 * start + 0.01)]),
        },
    )
    return _shape(first, fitted, found.x), float(found.fun)


def fit_all(data: Path) -> Iterator[tuple[str, Shape, float]]:
    """Fit every kind, beginning from its present shape."""
    for name, shape in SHAPES.items():
        yield name, *fit(data, name, shape)


def _cost(
    name: str, first: Shape, fitted: list[str], aim: Target, duration_s: float
) -> Callable[[Array], float]:
    def cost(values: Array) -> float:
        shape = _shape(first, fitted, values)
        read = simulate(name, shape, duration_s, seed=SEED, most=shape.nodes)
        since_s = read.t_s - shape.first_eval_s
        evaluating = (since_s > 0.0) & (since_s % shape.eval_every_s < shape.eval_s)
        evaluating &= since_s % shape.eval_every_s > METER_S
        apart = wasserstein_share(aim.power_w, read.power_w.ravel())
        apart += wasserstein_share(aim.change_w, np.diff(read.power_w, axis=0).ravel()) / 2.0
        if len(aim.evaluating_w) > ENOUGH and evaluating.any():
            apart += wasserstein_share(aim.evaluating_w, read.power_w[evaluating]) / 10.0
        if shape.nodes > 1:
            apart += _swings_apart(aim.grid_w, at_moments(read, aim.moments)) / 4.0
        return apart

    return cost


def _swings_apart(real_w: Array, ours_w: Array) -> float:
    """Return how far apart the extreme changes of all nodes together are, in % of the load."""
    load_w = float(real_w.sum(axis=1).mean())
    real, ours = (np.diff(power_w.sum(axis=1)) for power_w in (real_w, ours_w))
    apart_w = np.abs(np.quantile(real, QUANTILES) - np.quantile(ours, QUANTILES))
    return float(100.0 * apart_w.sum() / load_w)


def _shape(first: Shape, fitted: list[str], values: Array) -> Shape:
    bounded = {}
    for name, value in zip(fitted, values, strict=True):
        least, most = BOUNDS[name]
        if name == "eval_s":
            # An evaluation is shorter than the span that it ends.
            most = 0.9 * first.eval_every_s
        bounded[name] = round(float(np.clip(value, least, most)), 4)
    return Shape(**{**asdict(first), **bounded})
