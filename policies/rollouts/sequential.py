"""Bounds that hold at every look: confidence sequences, and a test of counts. Pure, over arrays.

A guard may be looked at after each block of readings and stopped at any: the chance that the bound
of a mean is *ever* on the wrong side of the truth is at most the level that was asked for. For
means that is the mixture of t statistics over the standardized effect (Lai 1976; Wang and Ramdas
2023, "anytime-valid t-tests"), exact for independent normal blocks of unknown variance. For counts
it is the mixture of binomial likelihood ratios, given how many events there were in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["bounds", "log_evidence_of_counts", "rate_bounds"]

Array = NDArray[np.float64]

#: Variance of the standardized effects that the mixture is over: those of about one standard
#: deviation of a block are told the soonest. Any value is valid; it moves only how soon.
MIXTURE_VARIANCE = 1.0
#: Rates of events under the change, over those without: the mixture is over these, evenly in logs.
_RATIOS: Array = np.geomspace(1.05, 64.0, 48)


def bounds(blocks: Array, *, level: Array, floor: Array) -> tuple[Array, Array]:
    """Return the lower and upper bounds of the means of ``blocks`` after each of them.

    ``blocks`` is (blocks, guards), NaN where a guard has nothing in a block, which then leaves its
    bounds as they are. ``level`` (guards, above 0 and below 1): the chance that the lower bound is
    ever above the mean is at most so much, and that of the upper one ever below it, too. ``floor``
    (guards): standard deviations are taken to be no smaller, so that what hardly moves, such as a
    share that is mostly zero, is not certain after two blocks. Bounds are (blocks, guards), in the
    unit of ``blocks``, and never widen.
    """
    known = np.isfinite(blocks)
    values = np.where(known, blocks, 0.0)
    count = known.cumsum(axis=0).astype(np.float64)
    n = np.maximum(count, 1.0)
    mean = values.cumsum(axis=0) / n
    # Around the first block of each, or squares of large values would drown their differences.
    first = values[known.argmax(axis=0), np.arange(values.shape[1])] if len(values) else 0.0
    around = np.where(known, blocks - first, 0.0)
    spread = (around**2).cumsum(axis=0) - n * (around.cumsum(axis=0) / n) ** 2
    deviation = np.maximum(np.sqrt(np.maximum(spread, 0.0) / np.maximum(n - 1.0, 1.0)), floor)
    standard, told = _standard_width(count, level)
    width = np.where(told, deviation * standard, np.inf)
    lower = np.maximum.accumulate(np.where(known, mean - width, -np.inf), axis=0)
    upper = np.minimum.accumulate(np.where(known, mean + width, np.inf), axis=0)
    return lower, upper


def _standard_width(count: Array, level: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return the half width of bounds in standard deviations, and whether there is any yet.

    The mixture's evidence against a mean m is, with t = √n (mean - m) / s and f = n - 1,
    (1 + n g)^(-1/2) ((1 + t²/f) / (1 + t²/(f (1 + n g))))^(n/2). It is below 1/level for
    t² < f (A - 1) / (1 - A / (1 + n g)), A = (√(1 + n g) / level)^(2/n).
    """
    n = np.maximum(count, 2.0)
    mixed = 1.0 + n * MIXTURE_VARIANCE
    most = (np.sqrt(mixed) / level) ** (2.0 / n)
    told = (count >= 2.0) & (most < mixed)
    left = np.where(told, 1.0 - most / mixed, 1.0)
    squared = np.where(told, (n - 1.0) * (most - 1.0) / left, 0.0)
    return np.sqrt(squared / n), told


def log_evidence_of_counts(
    changed: Array, unchanged: Array, *, changed_exposure: Array, unchanged_exposure: Array
) -> Array:
    """Return the log of the evidence, after each block, that the change brings more events.

    All are (blocks, guards): events among what was changed and what was not, and how long each was
    watched, in one unit. While the rates are the same, the chance that the evidence ever exceeds
    1/level is at most ``level``, however the exposures change. Blocks in which either side was not
    watched, or with NaN, tell nothing.
    """
    watched = (changed_exposure > 0.0) & (unchanged_exposure > 0.0)
    watched &= np.isfinite(changed) & np.isfinite(unchanged)
    share = np.where(watched, changed_exposure, 1.0) / np.where(
        watched, changed_exposure + unchanged_exposure, 2.0
    )
    here, there = (np.where(watched, each, 0.0) for each in (changed, unchanged))
    # Of an event, the log likelihood ratio of being here is log(r / m), of being there log(1 / m).
    mixed = 1.0 + share[..., None] * (_RATIOS - 1.0)
    gained = here[..., None] * np.log(_RATIOS) - (here + there)[..., None] * np.log(mixed)
    logs = gained.cumsum(axis=0)
    top = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]).mean(axis=-1)))


def rate_bounds(
    events: float, exposure: float, *, level: float, expected: float
) -> tuple[float, float]:
    """Return the lower and the upper bound of a rate, of events in an ``exposure`` above 0.

    The chance that either is ever on the wrong side of the rate is at most ``level``: they are
    those of the mixture of Poisson likelihoods over a gamma distribution of shape 1/2 around
    ``expected``, which moves only how soon they are narrow.
    """
    shape, inverse_scale = 0.5, 0.5 / expected
    fixed = shape * math.log(inverse_scale) - math.lgamma(shape) + math.lgamma(shape + events)
    fixed -= (shape + events) * math.log(inverse_scale + exposure)

    def allows(rate: float) -> bool:
        return fixed - events * math.log(rate) + rate * exposure < -math.log(level)

    mean = events / exposure
    far = (events + 30.0 * math.sqrt(events + 1.0) - 30.0 * math.log(level)) / exposure
    return (_edge(allows, mean, 0.0) if events else 0.0), _edge(allows, mean, far)


def _edge(allows: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return where ``allows`` ends between a rate that it allows and one that it does not."""
    for _ in range(60):
        middle = 0.5 * (inside + outside)
        if allows(middle):
            inside = middle
        else:
            outside = middle
    return outside
