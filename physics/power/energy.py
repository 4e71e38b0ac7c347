"""Energy of measured power, and its carbon and cost on a grid that changes with time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from physics._bounds import AtLeastOne, NonNegativeSeries
from physics._choice import chosen
from physics.law import Array, Flags, NonNegative, Positive, Real, Series, Values, law, require
from physics.power.facility import J_PER_KWH

Between: TypeAlias = Literal["step", "linear"]


@dataclass(frozen=True)
class MeasuredEnergy:
    """Energy of a series, and what its mean hides.

    ``mean_w`` is over ``covered_s``. ``missing_s`` is the time in ``gaps`` that are too long, of
    which nothing is in ``energy_j``. Readings of zero and below count as they stand.
    """

    energy_j: Values
    mean_w: Values
    covered_s: Values
    missing_s: Values
    gaps: Values
    zero_readings: Values
    negative_readings: Values


@dataclass(frozen=True)
class GridBill:
    """Energy drawn from the grid, its carbon and cost, and the means that energy was drawn at.

    ``missing_s`` is the time in gaps that are too long, of which nothing is billed.
    """

    energy_j: Values
    carbon_kg: Values
    cost_usd: Values
    mean_intensity_g_per_kwh: Values
    mean_price_usd_per_kwh: Values
    missing_s: Values


@dataclass(frozen=True)
class CheapestWindow:
    """When to run a load, what it costs then, and what that saves against starting at once."""

    start_s: Values
    end_s: Values
    cost_usd: Values
    saved_usd: Values


@dataclass(frozen=True)
class CleanestWindow:
    """When to run a load, what it emits then, and what that saves against starting at once."""

    start_s: Values
    end_s: Values
    carbon_kg: Values
    saved_kg: Values


@law
def cost_usd(*, energy_j: NonNegative, price_usd_per_kwh: Real) -> Values:
    """Return what energy costs at one price, USD: ``E / 3.6e6 · price``. All broadcast."""
    return energy_j / J_PER_KWH * price_usd_per_kwh


@law
def carbon_kg(*, energy_j: NonNegative, intensity_g_per_kwh: NonNegative) -> Values:
    """Return the emissions of energy at one intensity, kg CO2e: ``E / 3.6e6 · intensity / 1000``.

    All broadcast.
    """
    return energy_j / J_PER_KWH * intensity_g_per_kwh / 1000.0


@law
def measured_energy(
    *, time_s: Series, power_w: Series, max_gap_s: Positive | None = None
) -> MeasuredEnergy:
    """Return the energy under a series of power, J: ``Σ (P_i + P_(i+1)) / 2 · (t_(i+1) - t_i)``.

    Two series of one length; times in rising order, at any distance, equal ones allowed. An
    interval over ``max_gap_s`` is a gap: it adds to ``missing_s`` and not to the energy (left out:
    no interval is too long). Exact for power that moves in straight lines. Of readings that are
    means over the even interval before them, it is off by half an interval of the difference
    between the first and the last.
    """
    seconds, gap = _intervals(time_s, max_gap_s)
    energy_j = float((power_w[1:] + power_w[:-1]) @ seconds / 2.0)
    covered_s = seconds.sum()
    return MeasuredEnergy(
        energy_j=energy_j,
        mean_w=energy_j / covered_s if covered_s else power_w.mean(),
        covered_s=covered_s,
        missing_s=np.diff(time_s)[gap].sum(),
        gaps=int(np.count_nonzero(gap)),
        zero_readings=int(np.count_nonzero(power_w == 0.0)),
        negative_readings=int(np.count_nonzero(power_w < 0.0)),
    )


@law
def grid_bill(
    *,
    time_s: Series,
    power_w: Series,
    intensity_g_per_kwh: NonNegativeSeries,
    price_usd_per_kwh: Series,
    pue: AtLeastOne = 1.0,
    max_gap_s: Positive | None = None,
    between: Between = "step",
) -> GridBill:
    """Return energy (J), carbon (kg CO2e) and cost (USD) of a load: ``∫ P · PUE · rate dt``.

    Four series of one length. Power goes in straight lines from reading to reading. ``between``
    says what intensity and price do: ``step`` (each holds until the next, as grids publish them by
    the hour) or ``linear``; both are integrated exactly. Prices may be negative. Gaps as in
    measured_energy. Series on other clocks are to be brought onto ``time_s`` first.
    """
    require(np.ndim(pue) == 0, "pue", "one number")
    seconds, gap = _intervals(time_s, max_gap_s)
    weights = pue * chosen("between", between, _WEIGHTS)(power_w, seconds)
    energy_j = weights.sum()
    grams = weights @ intensity_g_per_kwh / J_PER_KWH
    usd = weights @ price_usd_per_kwh / J_PER_KWH
    kwh = energy_j / J_PER_KWH
    return GridBill(
        energy_j=energy_j,
        carbon_kg=grams / 1000.0,
        cost_usd=usd,
        mean_intensity_g_per_kwh=grams / kwh if kwh else intensity_g_per_kwh.mean(),
        mean_price_usd_per_kwh=usd / kwh if kwh else price_usd_per_kwh.mean(),
        missing_s=np.diff(time_s)[gap].sum(),
    )


@law
def cheapest_window(
    *,
    time_s: Series,
    price_usd_per_kwh: Series,
    power_w: NonNegative,
    duration_s: Positive,
    earliest_s: Real | None = None,
    latest_end_s: Real | None = None,
) -> CheapestWindow:
    """Return when a flexible load of constant power runs at least cost (USD): ``min ∫ P · price``.

    Two series of one length, at least two: prices that hold from their time until the next, the
    last as long as the one before it. The load runs once, ``duration_s`` without a pause, not
    before ``earliest_s`` and not beyond ``latest_end_s`` (left out: all of the series). The start
    is exact, not one of the times: with a price in steps, the best start or end lies on a step. Of
    equally cheap starts it is the earliest. Power, duration and limits broadcast.
    """
    rate = _Rate(time_s, price_usd_per_kwh)
    start_s, least, at_once = _best_window(rate, duration_s, earliest_s, latest_end_s)
    scale = np.divide(power_w, J_PER_KWH)
    return CheapestWindow(start_s, start_s + duration_s, scale * least, scale * (at_once - least))


@law
def cleanest_window(
    *,
    time_s: Series,
    intensity_g_per_kwh: NonNegativeSeries,
    power_w: NonNegative,
    duration_s: Positive,
    earliest_s: Real | None = None,
    latest_end_s: Real | None = None,
) -> CleanestWindow:
    """Return when a flexible load of constant power emits least (kg CO2e): ``min ∫ P · intensity``.

    As cheapest_window, with the grid's carbon intensity, g CO2e/kWh, in place of the price.
    """
    rate = _Rate(time_s, intensity_g_per_kwh)
    start_s, least, at_once = _best_window(rate, duration_s, earliest_s, latest_end_s)
    scale = np.divide(power_w, J_PER_KWH * 1000.0)
    return CleanestWindow(start_s, start_s + duration_s, scale * least, scale * (at_once - least))


class _Rate:
    """A rate in steps, and its integral from the first step."""

    def __init__(self, time_s: Array, value: Array) -> None:
        length_s = np.diff(time_s)
        require(len(time_s) >= 2, "time_s", "a series of at least two")
        require(length_s > 0.0, "time_s", "in rising order, without equal ones")
        lengths = np.append(length_s, length_s[-1])
        self.edges_s = np.append(time_s, time_s[-1] + lengths[-1])
        self._total = np.append(0.0, np.cumsum(value * lengths))

    def over(self, start_s: Array, duration_s: Array) -> Array:
        """Return the integral of the rate over each window."""
        ends = np.interp(start_s + duration_s, self.edges_s, self._total)
        return np.asarray(ends - np.interp(start_s, self.edges_s, self._total))


def _best_window(
    rate: _Rate, duration_s: Values, earliest_s: Values | None, latest_end_s: Values | None
) -> tuple[Array, Array, Array]:
    """Return the best start, and the integral of the rate from there and from the earliest."""
    edges_s = rate.edges_s
    first = edges_s[0] if earliest_s is None else earliest_s
    last = edges_s[-1] if latest_end_s is None else latest_end_s
    require(np.greater_equal(first, edges_s[0]), "earliest_s", "within the series")
    require(np.less_equal(last, edges_s[-1]), "latest_end_s", "within the series")
    latest = np.subtract(last, duration_s)
    # A load that fits exactly must not be refused for the rounding of its times.
    rounding_s = 1e-12 * np.abs(edges_s).max()
    require(np.less_equal(first, latest + rounding_s), "duration_s", "short enough to fit")
    latest = np.maximum(latest, first)
    duration, first, latest = (
        each[..., None] for each in np.broadcast_arrays(duration_s, first, latest)
    )
    # Over the start, the cost goes in straight lines that bend where an end of the window meets an
    # edge: it is least at such a start, or at the first or the last one.
    begins, ends = np.broadcast_arrays(edges_s, edges_s - duration)
    starts = np.concatenate([first, begins, ends, latest], axis=-1)
    starts = np.sort(np.clip(starts, first, latest), axis=-1)
    costs = rate.over(starts, duration)
    # Rounding must not prefer a later one of equal starts.
    slack = 1e-12 * np.abs(costs).max(axis=-1, keepdims=True)
    best = np.argmax(costs <= costs.min(axis=-1, keepdims=True) + slack, axis=-1)[..., None]
    found = np.take_along_axis(starts, best, axis=-1)[..., 0]
    return found, np.take_along_axis(costs, best, axis=-1)[..., 0], costs[..., 0]


def _intervals(time_s: Array, max_gap_s: Values | None) -> tuple[Array, Flags]:
    """Return the seconds that each interval counts for, and which intervals are gaps."""
    length_s = np.diff(time_s)
    require(length_s >= 0.0, "time_s", "in rising order")
    limit_s = np.inf if max_gap_s is None else max_gap_s
    require(np.ndim(limit_s) == 0, "max_gap_s", "one number")
    gap = np.greater(length_s, limit_s)
    return np.where(gap, 0.0, length_s), gap


def _step_weights(power_w: Array, seconds: Array) -> Array:
    """Return the energy, J, that each reading's intensity and price count for: until the next."""
    return np.append((power_w[:-1] + power_w[1:]) * seconds / 2.0, 0.0)


def _linear_weights(power_w: Array, seconds: Array) -> Array:
    """Return the same where two straight lines are multiplied with each other."""
    before, after = power_w[:-1] * seconds, power_w[1:] * seconds
    weights = np.zeros(len(power_w))
    weights[:-1] += (2.0 * before + after) / 6.0
    weights[1:] += (before + 2.0 * after) / 6.0
    return weights


_WEIGHTS = {"step": _step_weights, "linear": _linear_weights}
