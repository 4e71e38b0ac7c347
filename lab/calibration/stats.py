"""Distances between two samples, and the period of a series."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LEVELS = np.linspace(0.0005, 0.9995, 1000)


def wasserstein_share(real: Array, twin: Array) -> float:
    """Return the Wasserstein distance of two samples, in percent of the range of ``real``.

    The range is that between its 0.5 % and 99.5 % quantiles: single readings do not widen it.
    """
    apart = np.abs(np.quantile(real, _LEVELS) - np.quantile(twin, _LEVELS)).mean()
    low, high = np.quantile(real, [0.005, 0.995])
    return float(100.0 * apart / (high - low))


def wasserstein_to_cdf(x: Array, cdf: Array, twin: Array) -> float:
    """Return the Wasserstein distance of ``twin`` from a distribution, in percent of its range.

    ``cdf`` is the share of samples at or below ``x``, 0 to 1, both rising.
    """
    real = np.interp(_LEVELS, cdf, x)
    apart = np.abs(real - np.quantile(twin, _LEVELS)).mean()
    return float(100.0 * apart / (np.interp(0.995, cdf, x) - np.interp(0.005, cdf, x)))


def ks_to_cdf(x: Array, cdf: Array, twin: Array) -> float:
    """Return the greatest difference of two distributions (Kolmogorov and Smirnov), in percent."""
    below = np.searchsorted(np.sort(twin), x, side="right") / len(twin)
    return float(100.0 * np.abs(below - cdf).max())


def autocorrelation(values: Array) -> Array:
    """Return the autocorrelation of an even series at lags 0, 1, 2, …, up to half of its length."""
    off = values - values.mean()
    size = 1 << (2 * len(off) - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(off, size)) ** 2
    lags = len(off) // 2
    summed = np.fft.irfft(spectrum, size)[:lags]
    found: Array = summed / (summed[0] * (1.0 - np.arange(lags) / len(off)))
    return found


def period_s(values: Array, step_s: float, *, between_s: tuple[float, float]) -> float:
    """Return the period of a series with a reading every ``step_s``, sought in ``between_s``.

    It is the lag of the highest autocorrelation there; a parabola through that lag and its
    neighbors gives fractions of a step.
    """
    low, high = (round(each / step_s) for each in between_s)
    if high >= len(values) // 2 - 1:
        raise ValueError(
            f"a series of {len(values)} readings is too short for periods up to {between_s[1]:g} s:"
            " take a longer one"
        )
    found = autocorrelation(values)
    peak = low + int(np.argmax(found[low : high + 1]))
    before, at, after = found[peak - 1 : peak + 2]
    bend = before - 2.0 * at + after
    off = 0.5 * (before - after) / bend if bend < 0.0 else 0.0
    return float((peak + off) * step_s)
