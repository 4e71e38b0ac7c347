"""Fit of the power curve of GPUs to runs under caps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

from physics._bounds import NonNegativeSeries
from physics._search import least
from physics.errors import UnfittableError
from physics.law import Array, Bound, PositiveSeries, Values, law, require

Ints: TypeAlias = NDArray[np.intp]
RelativeSeries: TypeAlias = Annotated[
    Array, Bound("above 0 and at most 1", low=0.0, above_low=True, high=1.0, series=True)
]
#: Names of things as whole numbers: 0, 0, 0, 1, 1, 1 are three rows of one and three of another.
Labels: TypeAlias = Annotated[
    Array, Bound("a whole number, at least 0", 0.0, False, whole=True, series=True)
]

LOWEST_EXPONENT, HIGHEST_EXPONENT = 1.0, 8.0


@dataclass(frozen=True)
class PowerCurve:
    """``P = static_w + dynamic_w · r^exponent``, and how far the measurements lie from it.

    ``exponent_error`` is one standard error, inf where the runs do not determine the exponent;
    ``rmse_share_of_max`` is the RMSE over the highest power measured.
    """

    static_w: Values
    dynamic_w: Values
    exponent: Values
    exponent_error: Values
    rmse_w: Values
    rmse_share_of_max: Values


@dataclass(frozen=True)
class PowerCurves:
    """One :class:`PowerCurve` for each workload: arrays of one length.

    The exponent, its error and the RMSE are those of the workload's GPU, over all its workloads.
    """

    workload: Ints
    gpu: Ints
    static_w: Array
    dynamic_w: Array
    exponent: Array
    exponent_error: Array
    rmse_w: Array
    rmse_share_of_max: Array


@law
def normalized_throughput(*, time_s: PositiveSeries, workload: Labels) -> Array:
    """Return the relative throughput of runs, 0 to 1: least time of the workload / time.

    Series of runs: ``time_s`` for the same piece of work (an epoch, 1,000 steps), ``workload`` a
    whole number that tells which workload a run is of. The scale of r cannot change the quality of
    a fit, because P_dynamic · (s · r)^n is (P_dynamic · s^n) · r^n.
    """
    _, group = np.unique(workload, return_inverse=True)
    fastest_s = np.full(group.max() + 1, np.inf)
    np.minimum.at(fastest_s, group, time_s)
    return np.asarray(fastest_s[group] / time_s)


@law
def fit_power_curve(
    *, relative_throughput: RelativeSeries, power_w: NonNegativeSeries
) -> PowerCurve:
    """Fit ``P = P_static + P_dynamic · r^n`` to runs of one workload, W, by least squares.

    Two series of one length: throughput over the highest (0 to 1) and mean power. n is sought
    between 1 and 8; P_static and P_dynamic are at least 0. An n at either end says that the runs do
    not determine it, and so does a large ``exponent_error``. Runs whose cap does not bind all lie
    near r = 1 and fix the power there. Raises UnfittableError with fewer than three different
    throughputs. Source: least squares by variable projection (Golub and Pereyra 1973).
    """
    one = np.zeros(len(relative_throughput))
    curves = _fit(relative_throughput, power_w, one, one)
    return PowerCurve(
        curves.static_w[0],
        curves.dynamic_w[0],
        curves.exponent[0],
        curves.exponent_error[0],
        curves.rmse_w[0],
        curves.rmse_share_of_max[0],
    )


@law
def fit_power_curves(
    *,
    relative_throughput: RelativeSeries,
    power_w: NonNegativeSeries,
    workload: Labels,
    gpu: Labels | None = None,
) -> PowerCurves:
    """Fit ``P = P_static(w) + P_dynamic(w) · r^n(gpu)`` to runs of many workloads and GPUs, W.

    Series of runs as in fit_power_curve, with two whole numbers each: which ``workload`` it is of,
    and which ``gpu`` that ran on (left out: one). The runs of a workload share its static and its
    dynamic power; the workloads of a GPU share the exponent. Give every workload a GPU of its own
    to get an exponent each. Raises UnfittableError where no workload of a GPU has three different
    throughputs. Cost: 42 passes over the runs, about 0.3 s for 100,000.
    """
    which = np.zeros(len(workload)) if gpu is None else gpu
    return _fit(relative_throughput, power_w, workload, which)


@dataclass(frozen=True)
class _Runs:
    """Runs with their workload and GPU as positions."""

    throughput: Array
    power_w: Array
    workload: Ints
    gpu: Ints
    gpu_of_workload: Ints

    def by_workload(self, values: Array) -> Array:
        return np.asarray(np.bincount(self.workload, values), dtype=np.float64)

    def by_gpu(self, values: Array) -> Array:
        return np.asarray(np.bincount(self.gpu, values), dtype=np.float64)

    def raised(self, exponent: Array) -> Array:
        """Return r^n, n being that of each run's GPU."""
        return np.asarray(np.power(self.throughput, exponent[self.gpu]))


def _fit(throughput: Array, power_w: Array, workload: Array, gpu: Array) -> PowerCurves:
    workloads, first, position = np.unique(workload, return_index=True, return_inverse=True)
    gpus, gpu_position = np.unique(gpu, return_inverse=True)
    runs = _Runs(throughput, power_w, position, gpu_position, gpu_position[first])
    require(runs.gpu_of_workload[position] == gpu_position, "gpu", "the same for a whole workload")
    _check_throughputs(runs, gpus)

    def squares(exponent: Array) -> Array:
        x = runs.raised(exponent)
        static_w, dynamic_w = _terms(runs, x)
        return runs.by_gpu((static_w[position] + dynamic_w[position] * x - power_w) ** 2)

    ends = np.ones(len(gpus))
    exponent = least(squares, LOWEST_EXPONENT * ends, HIGHEST_EXPONENT * ends, points=15, rounds=23)
    static_w, dynamic_w = _terms(runs, runs.raised(exponent))
    rmse_w = np.sqrt(squares(exponent) / runs.by_gpu(np.ones(len(power_w))))
    highest_w = np.zeros(len(gpus))
    np.maximum.at(highest_w, gpu_position, power_w)
    share = rmse_w / np.where(highest_w > 0.0, highest_w, 1.0)
    error = _exponent_error(runs, exponent, dynamic_w, squares(exponent))
    of = runs.gpu_of_workload
    return PowerCurves(
        workloads.astype(np.intp),
        gpus[of].astype(np.intp),
        static_w,
        dynamic_w,
        exponent[of],
        error[of],
        rmse_w[of],
        share[of],
    )


def _check_throughputs(runs: _Runs, gpus: Array) -> None:
    """Refuse a GPU without a workload that ran at three speeds: three terms need as many."""
    pairs = np.unique(np.stack([runs.workload, runs.throughput]), axis=1)
    speeds = np.bincount(pairs[0].astype(np.intp))
    most = np.zeros(len(gpus))
    np.maximum.at(most, runs.gpu_of_workload, speeds)
    if most.min() < 3:
        which = "" if len(gpus) == 1 else f" of GPU {gpus[most.argmin()]:.0f}"
        raise UnfittableError(f"no workload{which} ran at three different throughputs")


def _terms(runs: _Runs, x: Array) -> tuple[Array, Array]:
    """Return each workload's static and dynamic power, at least 0, for given r^n."""
    count = runs.by_workload(np.ones(len(x)))
    mean_x, mean_y = runs.by_workload(x) / count, runs.by_workload(runs.power_w) / count
    off = x - mean_x[runs.workload]
    dynamic_w = _ratio(runs.by_workload(off * runs.power_w), runs.by_workload(off * off))
    dynamic_w = np.maximum(dynamic_w, 0.0)
    static_w = mean_y - dynamic_w * mean_x
    through_zero = runs.by_workload(x * runs.power_w) / runs.by_workload(x * x)
    below = static_w < 0.0
    return np.where(below, 0.0, static_w), np.where(below, through_zero, dynamic_w)


def _exponent_error(runs: _Runs, exponent: Array, dynamic_w: Array, squares: Array) -> Array:
    """Return the standard error of each GPU's exponent, the other terms being free."""
    x = runs.raised(exponent)
    slope = dynamic_w[runs.workload] * np.log(runs.throughput) * x
    count = runs.by_workload(np.ones(len(x)))
    x = x - (runs.by_workload(x) / count)[runs.workload]
    slope = slope - (runs.by_workload(slope) / count)[runs.workload]
    shared = _ratio(runs.by_workload(x * slope), runs.by_workload(x * x))
    information = runs.by_gpu((slope - shared[runs.workload] * x) ** 2)
    terms = 2.0 * np.bincount(runs.gpu_of_workload) + 1.0
    freedom = runs.by_gpu(np.ones(len(x))) - terms
    known = (freedom > 0.0) & (information > 0.0)
    variance = squares / np.where(known, freedom * information, 1.0)
    return np.asarray(np.where(known, np.sqrt(variance), np.inf))


def _ratio(amount: Array, divisor: Array) -> Array:
    """Return ``amount / divisor``, 0 where a workload ran at one speed only."""
    spread = divisor > 1e-24
    return np.asarray(np.where(spread, amount, 0.0) / np.where(spread, divisor, 1.0))
