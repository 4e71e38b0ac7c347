"""The Universal Scalability Law: contention, coherency, and a fit of both."""

from __future__ import annotations

# SciPy is imported in functions: it takes longer to load than all laws that do without it.
import dataclasses

import numpy as np

from physics.errors import UnfittableError
from physics.law import Array, Count, NonNegative, PositiveSeries, Values, law, require

__all__ = ["UslFit", "fit_usl", "usl_peak_gpus", "usl_speedup"]


@law
def usl_speedup(*, gpus: Count, contention: NonNegative, coherency: NonNegative) -> Values:
    """Return the speedup by the Universal Scalability Law: ``N / (1 + a (N-1) + b N (N-1))``.

    ``contention`` (a) is what waits in line for something shared, ``coherency`` (b) what each pair
    of GPUs has to agree on; often written as sigma and kappa. With b = 0 it is Amdahl's law with
    s = a; with b > 0 it has a peak and then falls (:func:`usl_peak_gpus`). Source: Gunther 2007.
    """
    return gpus / (1.0 + (gpus - 1.0) * (contention + coherency * gpus))


@law
def usl_peak_gpus(*, contention: NonNegative, coherency: NonNegative) -> Values:
    """Return where the Universal Scalability Law peaks: ``sqrt((1 - a) / b)``, not rounded.

    a is ``contention`` and b ``coherency``. 1 where more than one GPU is never faster (a ≥ 1, or
    b ≥ 1 - a); infinite where b = 0 and a < 1: the speedup then grows towards 1/a without a peak.
    """
    room = np.maximum(1.0 - contention, 0.0)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        squared = np.where(room > 0.0, np.divide(room, coherency), 1.0)
    return np.sqrt(np.maximum(squared, 1.0))


@dataclasses.dataclass(frozen=True)
class UslFit:
    """A Universal Scalability Law through measured throughputs.

    ``residuals`` are measured / fitted - 1, in the order of the measurements.
    """

    single_throughput: Values
    contention: Values
    coherency: Values
    peak_gpus: Values
    residuals: Array
    rmse_share: Values


@law
def fit_usl(*, gpus: PositiveSeries, throughput: PositiveSeries) -> UslFit:
    """Return the Universal Scalability Law that fits measured throughputs best.

    ``X(N) = X₁ N / (1 + a (N-1) + b N (N-1))`` with a, b ≥ 0: least squares of the relative
    deviation, sum of ``(measured / fitted - 1)²``. That is linear in (1, a, b) / X₁, so the answer
    is exact and needs no start value. Throughput is in any unit, the same for all runs; a run on
    one GPU is not needed. Needs three sizes or more (raises :class:`UnfittableError`); with just
    three the residuals say nothing. Look at them: a law that does not hold is fitted all the same.
    """
    from scipy.optimize import nnls

    require(gpus >= 1.0, "gpus", "at least 1")
    if np.unique(gpus).size < 3:
        raise UnfittableError("contention and coherency need runs of three sizes, or more")
    scale = throughput.max()
    terms = np.stack([np.ones_like(gpus), gpus - 1.0, gpus * (gpus - 1.0)], axis=1)
    columns = terms * (throughput / scale / gpus)[:, np.newaxis]
    # The terms grow as N²: scaled alike, none of them is lost beside the others.
    norms = np.linalg.norm(columns, axis=0)
    solution, _ = nnls(columns / norms, np.ones_like(gpus))
    cost, contention, coherency = solution / norms
    if not cost > 0.0:
        raise UnfittableError("throughput falls faster with the GPUs than the law can")
    residuals = columns @ np.array([cost, contention, coherency]) - 1.0
    return UslFit(
        single_throughput=scale / cost,
        contention=contention / cost,
        coherency=coherency / cost,
        peak_gpus=usl_peak_gpus(contention=contention / cost, coherency=coherency / cost),
        residuals=residuals,
        rmse_share=np.sqrt(np.mean(residuals**2)),
    )
