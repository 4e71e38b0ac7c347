"""How often a system fails."""

from __future__ import annotations

# SciPy is imported in functions: it takes longer to load than all laws that do without it.
from dataclasses import dataclass
from typing import Any

import numpy as np

from physics._bounds import Probability
from physics.law import Amount, Array, Count, NonNegative, Positive, Values, law, require

__all__ = [
    "FailureForecast",
    "SpareWorth",
    "components_for_probability",
    "expected_failures",
    "failure_forecast",
    "failure_probability",
    "failures_at_percentile",
    "mtbf_years",
    "series_system_mtbf_s",
    "spare_worth",
    "system_mtbf_s",
    "window_for_probability_s",
]

_HOURS_PER_YEAR = 8760.0


@dataclass(frozen=True)
class FailureForecast:
    """What to expect of a system over a window."""

    system_mtbf_s: Values
    expected_failures: Values
    #: Of at least one failure.
    probability: Values
    failures_at_percentile: Values


@dataclass(frozen=True)
class SpareWorth:
    """What spares do for a system that stops while a component is missing. Shares are of time."""

    #: How many components are being repaired, on average.
    in_repair: Values
    #: In which more are missing than there are spares.
    short_share: Values
    #: What one spare more takes off that.
    gained_share: Values


@law
def system_mtbf_s(*, component_mtbf_s: Positive, components: Count) -> Values:
    """Return the MTBF of a system of like components, s: ``M = M_component / N``.

    Valid where any one failure stops the system, failures are independent and their rate is
    constant; then exact. Shapes broadcast. Source: the minimum of N exponential lifetimes.
    """
    return component_mtbf_s / components


@law
def series_system_mtbf_s(*, component_mtbf_s: Positive, components: Amount) -> Values:
    """Return the MTBF of a system of unlike components, s: ``M = 1 / Σ (N_i / M_i)``.

    Kinds of components (GPUs, NICs, power supplies, …) are on the last axis, which the answer
    lacks; the other axes broadcast. Count only components whose loss stops the system: a redundant
    power supply counts 0. Valid like :func:`system_mtbf_s`. Source: rates of independent Poisson
    processes add.
    """
    rate = np.atleast_1d(components / component_mtbf_s).sum(axis=-1)
    require(rate > 0.0, "components", "at least 1 of some kind")
    return np.asarray(1.0 / rate)


@law
def mtbf_years(*, mtbf_h: NonNegative) -> Values:
    """Return an MTBF in years of 8,760 h: ``h / 8760``. Shapes broadcast."""
    return np.divide(mtbf_h, _HOURS_PER_YEAR)


@law
def failure_probability(*, window_s: NonNegative, system_mtbf_s: Positive) -> Values:
    """Return the probability of at least one failure in a window: ``1 - exp(-T / M)``.

    Shapes broadcast. Exact for a constant rate, also where T is a tiny part of M.
    """
    return -np.expm1(-window_s / system_mtbf_s)


@law
def expected_failures(*, window_s: NonNegative, system_mtbf_s: Positive) -> Values:
    """Return the mean number of failures in a window: ``T / M``. Shapes broadcast.

    Valid where failed components are replaced, so that the rate stays as it is.
    """
    return window_s / system_mtbf_s


@law
def failures_at_percentile(
    *, window_s: NonNegative, system_mtbf_s: Positive, percentile: Probability
) -> Values:
    """Return the least k for which at most k failures happen with probability ``percentile``.

    The quantile of a Poisson number of mean ``T / M``: how many spares last the window in
    ``percentile`` of cases. Shapes broadcast; the answer is a whole number.
    """
    return _poisson_quantile(window_s / system_mtbf_s, percentile)


@law
def failure_forecast(
    *,
    window_s: NonNegative,
    component_mtbf_s: Positive,
    components: Count,
    percentile: Probability = 0.95,
) -> FailureForecast:
    """Return what to expect of N like components over a window: ``M = M_component / N``, ``T / M``.

    :func:`system_mtbf_s`, :func:`expected_failures`, :func:`failure_probability`
    (``1 - exp(-T / M)``) and :func:`failures_at_percentile` in one. Shapes broadcast.
    """
    mtbf_s = component_mtbf_s / components
    mean = window_s / mtbf_s
    return FailureForecast(mtbf_s, mean, -np.expm1(-mean), _poisson_quantile(mean, percentile))


@law
def spare_worth(*, system_mtbf_s: Positive, repair_s: Positive, spares: Amount) -> SpareWorth:
    """Return for which share of time s spares are not enough, and what one more brings.

    ``in repair = R / M``; ``short = P(X > s)`` and ``gained = P(X = s + 1)``, X being Poisson with
    that mean: how many components are in repair at once. What needs all components stands still
    while it is short, so a spare more is worth ``gained`` of the time of all of them. Shapes
    broadcast.

    Valid for a constant failure rate, spares that are put in at once, and repairs that do not wait
    for each other, however their times are distributed around the mean ``repair_s``. Source: Palm's
    theorem (Palm 1938), as used for spare parts by Feeney and Sherbrooke 1966.
    """
    from scipy.special import pdtrc

    mean = repair_s / system_mtbf_s
    short, after = pdtrc(spares, mean), pdtrc(spares + 1.0, mean)
    return SpareWorth(in_repair=mean, short_share=short, gained_share=short - after)


@law
def components_for_probability(
    *, probability: Probability, window_s: Positive, component_mtbf_s: Positive
) -> Values:
    """Return the most components that fail within a window with at most a given probability.

    ``N = floor(-ln(1 - P) · M_component / T)``; 0 where even one is too many. The inverse of
    :func:`failure_probability`. Shapes broadcast.
    """
    most = -np.log1p(-probability) * component_mtbf_s / window_s
    # Without the nudge, the N that gave a probability would come back as N - 1.
    return np.floor(most * (1.0 + 1e-12))


@law
def window_for_probability_s(*, probability: Probability, system_mtbf_s: Positive) -> Values:
    """Return the window with a given probability of a failure, s: ``T = -M · ln(1 - P)``.

    The inverse of :func:`failure_probability`. Shapes broadcast.
    """
    return -system_mtbf_s * np.log1p(-probability)


def _poisson_quantile(mean: Any, share: Any) -> Array:
    from scipy.special import pdtr, pdtrik

    near = np.ceil(pdtrik(share, mean))
    # The continuous inverse is good to a few digits only: the whole number below may do too.
    below = np.maximum(near - 1.0, 0.0)
    return np.asarray(np.where(pdtr(below, mean) >= share, below, near))
