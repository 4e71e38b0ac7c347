"""How the power of 512 GPUs swings: from one reading to the next, together, and at evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.calibration import needs
from lab.calibration.node_power import LARGEST, LARGEST_S, measured_run, whole_run
from lab.calibration.result import Comparison, Role, by_difference, by_share
from lab.calibration.rig import Metered
from lab.calibration.sources import evaluations, node_power
from lab.calibration.stats import period_s, wasserstein_share
from lab.training.measured import SHAPES

Array = NDArray[np.float64]
#: Times, s, and powers, W, of each node.
Series = list[tuple[Array, Array]]

SWINGS, LOADS, DIPS = "swings", "swings-of-gangs", "evaluation-dips"
#: Both are read off on a grid of time: meters read their nodes at instants of their own.
GRID_S = 2.0
#: A swing that a feed takes note of.
LARGE_W = 500.0
#: Evaluations are sought with periods between these.
PERIODS_S = (100.0, 200.0)
#: Gradient exchanges are smoothed away over one step of the training.
_STEP_S = 10.77

#: As errors are said: of swings in percent of the range or points, a correlation, and percent; of
#: evaluations in s and points.
WERE = {
    "distance": 1.8,
    "large": 2.8,
    "correlation": 0.04,
    "sum_std": 1.5,
    "sum_tail": 8.1,
    "period": 1.1,
    "length": 2.2,
    "depth": 1.9,
}


@dataclass(frozen=True)
class Swings:
    """Changes over :data:`GRID_S`, W: of each node (in columns), and of all together."""

    node_w: Array
    total_w: Array

    @property
    def std_w(self) -> float:
        """Standard deviation of the change of all together."""
        return float(self.total_w.std())

    def quantile_w(self, share: float) -> float:
        """Return a quantile of the change of all together."""
        return float(np.quantile(self.total_w, share))

    @property
    def correlation(self) -> float:
        """Mean correlation of the changes of two nodes; 1: all swing as one."""
        pairs: Array = np.asarray(np.corrcoef(self.node_w.T))
        return float(pairs[np.triu_indices(len(pairs), 1)].mean())


@dataclass(frozen=True)
class Dips:
    """Period and length of the dips of a power, s, and their depth as a share of the power."""

    period_s: float
    length_s: float
    depth: float


def real_grid(data: Path, run: int, name: str = LARGEST) -> Array:
    """Return the power of the nodes of a run every :data:`GRID_S`, nodes in columns."""
    series = _real_series(data, run, name)
    return _on_grid(series, _moments(series))


def real_moments(data: Path, run: int, name: str = LARGEST) -> Array:
    """Return the moments of :func:`real_grid`, s since the run began."""
    return _moments(_real_series(data, run, name))


def at_moments(read: Metered, moments: Array) -> Array:
    """Return the power of the twin's nodes at those of ``moments`` at which all are read.

    So the twin is held against what the meters of a run saw: not all of them read its begin.
    """
    series = _series_of(read)
    first_s, last_s = _span_s(series)
    return _on_grid(series, moments[(moments >= first_s) & (moments <= last_s)])


def _real_series(data: Path, run: int, name: str) -> Series:
    readings = node_power(data, name)[run]
    return [readings.of(node) for node in range(readings.nodes)]


def twin_grid() -> Array:
    """Return the power of the twin's nodes on the same grid, nodes in columns."""
    series = _series_of(measured_run(LARGEST, LARGEST_S))
    return _on_grid(series, _moments(series))


def swings_of(power_w: Array) -> Swings:
    return Swings(np.diff(power_w, axis=0), np.diff(power_w.sum(axis=1)))


def dips_of(total_w: Array) -> Dips:
    """Find the evaluations in a power on the grid: by autocorrelation, then by folding.

    A dip begins and ends where the power is halfway down.
    """
    smooth_w = np.convolve(total_w, _over_a_step(), mode="valid")
    period = period_s(smooth_w, GRID_S, between_s=PERIODS_S)
    bins = round(period / GRID_S)
    phase = (np.arange(len(smooth_w)) * GRID_S % period / period * bins).astype(np.intp)
    folded_w = np.bincount(phase, smooth_w) / np.bincount(phase)
    high_w, low_w = float(np.median(folded_w)), float(folded_w.min())
    below = (folded_w < (high_w + low_w) / 2.0).sum()
    return Dips(period, float(below * period / bins), (high_w - low_w) / high_w)


def compare_swings(data: Path) -> Iterator[Comparison]:
    """Compare the swings with those of the run that was held out of the fit."""
    real, twin = swings_of(real_grid(data, -1)), swings_of(twin_grid())
    yield Comparison(
        calibration=SWINGS,
        quantity="change of a node in 2 s, Wasserstein distance",
        unit="W",
        error=wasserstein_share(real.node_w.ravel(), twin.node_w.ravel()),
        error_unit="% of range",
        was=WERE["distance"],
        role=Role.REPEAT,
    )
    yield by_difference(
        SWINGS,
        f"changes of a node by more than {LARGE_W:g} W",
        "% of all",
        real=_large(real.node_w),
        twin=_large(twin.node_w),
        was=WERE["large"],
        role=Role.REPEAT,
    )
    yield by_difference(
        SWINGS,
        "correlation of the changes of two nodes",
        "",
        real=real.correlation,
        twin=twin.correlation,
        was=WERE["correlation"],
        role=Role.REPEAT,
    )
    for quantity, of_real, of_twin, was in (
        ("standard deviation of the change of all nodes in 2 s", real.std_w, twin.std_w, "sum_std"),
        ("1 % quantile of it", real.quantile_w(0.01), twin.quantile_w(0.01), "sum_tail"),
        ("99 % quantile of it", real.quantile_w(0.99), twin.quantile_w(0.99), "sum_tail"),
    ):
        yield by_share(
            SWINGS, quantity, "W", real=of_real, twin=of_twin, was=WERE[was], role=Role.REPEAT
        )


def compare_loads(data: Path) -> Iterator[Comparison]:
    """Compare the changes of whole gangs within 2 s with repeats of their kinds, by their load.

    The naive prediction: nodes of a gang swing each by itself, as they do in the fitted run.
    """
    for name, shape in SHAPES.items():
        if shape.nodes < 2:
            continue
        real_w, moments = real_grid(data, -1, name), real_moments(data, -1, name)
        read = whole_run(name, min(float(moments[-1]), LARGEST_S))
        ours_w = at_moments(read, moments)
        naive = _apart(real_grid(data, 0, name))
        for quantile in (0.01, 0.99):
            yield by_share(
                f"{LOADS}/{name}",
                f"{100 * quantile:g} % quantile of the change of all nodes in 2 s",
                "W",
                real=swings_of(real_w).quantile_w(quantile),
                twin=swings_of(ours_w).quantile_w(quantile),
                of=float(real_w.sum(axis=1).mean()),
                bar=needs.CHANGE,
                naive=naive.quantile_w(quantile),
                role=Role.REPEAT,
            )


def _apart(power_w: Array) -> Swings:
    """Return the swings of nodes of which each is moved in time by a part of the run."""
    nodes = power_w.shape[1]
    moved = [np.roll(power_w[:, at], at * len(power_w) // nodes) for at in range(nodes)]
    return swings_of(np.stack(moved, axis=1))


def compare_dips(data: Path) -> Iterator[Comparison]:
    """Compare the evaluations, found in both by autocorrelation; and with the run's log."""
    real, twin = dips_of(real_grid(data, -1).sum(axis=1)), dips_of(twin_grid().sum(axis=1))
    starts_s, _ = evaluations(data, node_power(data, LARGEST)[-1].run)
    yield by_difference(
        DIPS,
        "period in the twin beside that of the run's log",
        "s",
        real=float(np.median(np.diff(starts_s))),
        twin=twin.period_s,
        was=WERE["period"],
        role=Role.REPEAT,
    )
    for quantity, unit, of_real, of_twin, was in (
        ("period", "s", real.period_s, twin.period_s, "period"),
        ("length", "s", real.length_s, twin.length_s, "length"),
        ("depth", "% of the power", 100.0 * real.depth, 100.0 * twin.depth, "depth"),
    ):
        yield by_difference(
            DIPS, quantity, unit, real=of_real, twin=of_twin, was=WERE[was], role=Role.REPEAT
        )


def _over_a_step() -> Array:
    """Return the weights of a mean over exactly one step of the training."""
    whole = int(_STEP_S / GRID_S)
    whole -= 1 - whole % 2
    rest = (_STEP_S / GRID_S - whole) / 2.0
    return np.array([rest, *[1.0] * whole, rest]) * GRID_S / _STEP_S


def _series_of(read: Metered) -> Series:
    return list(zip(read.t_s.T, read.power_w.T, strict=True))


def _moments(series: Series) -> Array:
    """Return a moment every :data:`GRID_S` while all of them are read."""
    return np.arange(*_span_s(series), GRID_S)


def _span_s(series: Series) -> tuple[float, float]:
    return max(float(t_s[0]) for t_s, _ in series), min(float(t_s[-1]) for t_s, _ in series)


def _on_grid(series: Series, moments: Array) -> Array:
    return np.stack([np.interp(moments, *each) for each in series], axis=1)


def _large(changes_w: Array) -> float:
    return float(100.0 * (np.abs(changes_w) > LARGE_W).mean())
