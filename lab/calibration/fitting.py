"""The fit of :data:`lab.training.measured.SHAPES` to the first run of each kind.

It minimizes what the calibration compares: Wasserstein distances of readings, of their changes, and
of readings during evaluations, between the run and the twin that does it.
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
from lab.calibration.sources import NodeReadings, evaluations, node_power
from lab.calibration.stats import wasserstein_share
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
}
#: Kinds whose evaluations are at low power from begin to end.
EVALUATES_LOW = {LARGEST}
#: Readings so far apart follow on each other.
NEXT_S = (1.5, 2.6)
TRIES = 120
#: So few readings during evaluations say nothing of them.
ENOUGH = 100
SEED = 5


@dataclass(frozen=True)
class Target:
    """The target of a fit: a run's readings, their changes, and the readings in evaluations."""

    power_w: Array
    change_w: Array
    evaluating_w: Array


def target(run: NodeReadings, starts_s: Array, stops_s: Array) -> Target:
    changes = []
    for node in range(run.nodes):
        t_s, power_w = run.of(node)
        apart_s = np.diff(t_s)
        changes.append(np.diff(power_w)[(apart_s > NEXT_S[0]) & (apart_s < NEXT_S[1])])
    # A meter's mean reaches back: what it says right after the start is of the time before.
    inside = np.zeros(len(run.t_s), dtype=np.bool_)
    for start_s, stop_s in zip(starts_s, stops_s, strict=False):
        inside |= (run.t_s > start_s + METER_S) & (run.t_s < stop_s)
    return Target(run.power_w, np.concatenate(changes), run.power_w[inside])


def fit(data: Path, name: str, first: Shape) -> tuple[Shape, float]:
    """Return the shape that makes the twin most like the first run of a kind, and its cost."""
    runs = node_power(data, name)
    aim = target(runs[0], *evaluations(data, runs[0].run))
    fitted = [each for each in BOUNDS if each != "eval_s" or name not in EVALUATES_LOW]
    start = np.array([getattr(first, each) for each in fitted])
    cost = _cost(name, first, fitted, aim, length_s(name, runs))
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
        read = simulate(name, shape, duration_s, seed=SEED)
        in_span_s = (read.t_s - shape.setup_s) % shape.eval_every_s
        evaluating = in_span_s > shape.eval_every_s - shape.eval_s + METER_S
        apart = wasserstein_share(aim.power_w, read.power_w.ravel())
        apart += wasserstein_share(aim.change_w, np.diff(read.power_w, axis=0).ravel()) / 2.0
        if len(aim.evaluating_w) > ENOUGH and evaluating.any():
            apart += wasserstein_share(aim.evaluating_w, read.power_w[evaluating]) / 10.0
        return apart

    return cost


def _shape(first: Shape, fitted: list[str], values: Array) -> Shape:
    bounded = {}
    for name, value in zip(fitted, values, strict=True):
        least, most = BOUNDS[name]
        if name == "eval_s":
            # An evaluation is shorter than the span that it ends.
            most = 0.9 * first.eval_every_s
        bounded[name] = round(float(np.clip(value, least, most)), 4)
    return Shape(**{**asdict(first), **bounded})
