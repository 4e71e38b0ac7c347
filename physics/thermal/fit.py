"""Fit of thermal resistance and capacitance to a series of temperature and power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from physics._bounds import NonNegativeSeries
from physics._search import least
from physics.errors import UnfittableError
from physics.law import (
    Array,
    Bound,
    Celsius,
    Flags,
    NonNegative,
    Real,
    Series,
    Values,
    law,
    require,
)

CelsiusSeries: TypeAlias = Annotated[
    Array, Bound("finite and at least -273.15", low=-273.15, series=True)
]

#: R, C, the first temperature and the ambient, and two readings more.
FEWEST_READINGS = 6
#: The time constant is sought from this share of the typical interval …
_SHORTEST_INTERVALS = 0.2
#: … to so many times the whole series.
_LONGEST_SPANS = 2.0
#: A standard error over this share of R or of C says that the series does not determine it.
_WORST_ERROR = 0.5
#: Step of ln τ for the derivative of the model.
_STEP = 1e-3


@dataclass(frozen=True)
class RcFit:
    """Thermal resistance and capacitance of parts, and how well a series determines them.

    Errors are one standard error. ``ambient_c`` is the fitted one, or the mean of the given one
    with an error of 0. ``rmse_c`` is how far the readings lie from the model.
    """

    resistance_c_per_w: Values
    capacitance_j_per_c: Values
    time_constant_s: Values
    ambient_c: Values
    rmse_c: Values
    resistance_error_c_per_w: Values
    capacitance_error_j_per_c: Values
    time_constant_error_s: Values
    ambient_error_c: Values


@law
def fit_rc(
    *,
    time_s: Series,
    temp_c: CelsiusSeries,
    power_w: NonNegativeSeries,
    ambient_c: Celsius | None = None,
) -> RcFit:
    """Fit R (°C/W), C (J/°C) and, where it is not given, the ambient (°C) to a series.

    Series of one length, at least 6: times in rising order at any distance, temperatures, and the
    power held from each time to the next. ``ambient_c`` is one number, or a series as long; left
    out, it is fitted as one number. The least squares are those of a simulation of the whole series
    by rc_step_c from a fitted first temperature, so noise on the readings does not bias R and C.

    The series needs steps of power (as jobs begin and end), each held for a time constant or
    more, and samples a time constant or less apart. Under 1 °C of noise, an hour of a GPU with a
    step a minute gives R to 0.3 % and C to 0.7 % sampled every second, to 0.7 % and 1.8 % every
    10 s (one standard error). Raises UnfittableError where the power never moves, or an error is
    over half of the value. Source: output-error identification (Ljung 1999), the linear terms
    eliminated by variable projection.
    """
    _check(time_s)
    times, temps, powers = (each[:, None] for each in (time_s, temp_c, power_w))
    ambient = None if ambient_c is None else _as_long(ambient_c, len(time_s))[:, None]
    found = _fit(times, temps, powers, ambient, np.ones_like(times))
    if np.isnan(found.resistance_c_per_w).any():
        still = _still(powers).any()
        reason = "the power never moves" if still else "the series does not determine R and C"
        raise UnfittableError(reason)
    return _shaped(found, ())


@law
def fit_rc_many(
    *,
    time_s: Real,
    temp_c: Celsius,
    power_w: NonNegative,
    ambient_c: Celsius | None = None,
    weight: NonNegative | None = None,
) -> RcFit:
    """Fit R (°C/W), C (J/°C) and the ambient (°C) of many parts at once, as fit_rc does of one.

    Arrays of (parts, samples) that broadcast: ``time_s`` may be one series for all of them,
    ``ambient_c`` a column. ``weight`` is what a temperature counts for: 0 for one that is missing
    (put any number in its place, and the last known one in place of a missing power). Each field of
    the answer has one value a part, NaN where its series does not determine R and C. Cost: about
    1.5 s for 1,000 parts of 1,000 samples on one core.
    """
    optional = [np.zeros(()) if ambient_c is None else ambient_c, 1.0 if weight is None else weight]
    arrays = np.broadcast_arrays(time_s, temp_c, power_w, *optional)
    if arrays[0].ndim == 0:
        raise UnfittableError("one reading is not a series")
    parts = arrays[0].shape[:-1]
    # Samples first: the simulation steps through them, all parts side by side.
    times, temps, powers, ambients, weights = (
        np.ascontiguousarray(each.reshape(-1, each.shape[-1]).T) for each in arrays
    )
    _check(times)
    found = _fit(times, temps, powers, None if ambient_c is None else ambients, weights)
    return _shaped(found, parts)


def _as_long(ambient_c: Values, samples: int) -> Array:
    require(np.shape(ambient_c) in ((), (samples,)), "ambient_c", "one number, or one a sample")
    return np.broadcast_to(ambient_c, (samples,))


def _shaped(found: RcFit, parts: tuple[int, ...]) -> RcFit:
    return RcFit(**{name: each.reshape(parts) for name, each in vars(found).items()})


def _check(time_s: Array) -> None:
    require(np.diff(time_s, axis=0) >= 0.0, "time_s", "in rising order")
    if len(time_s) < FEWEST_READINGS:
        raise UnfittableError(f"a fit of R and C needs at least {FEWEST_READINGS} readings")


def _still(power_w: Array) -> Flags:
    """Whether the power never moves. The last reading is held for no time."""
    held = power_w[:-1]
    return np.asarray(np.ptp(held, axis=0) <= 1e-9 * held.max(axis=0))


class _Model:
    """The temperatures of parts as sums of what they began with, power, and ambient.

    For a given time constant they are linear in the first temperature, in R and in the ambient, so
    that only the time constant is searched for.
    """

    def __init__(
        self, time_s: Array, temp_c: Array, power_w: Array, ambient_c: Array | None, weight: Array
    ) -> None:
        self.interval_s = np.diff(time_s, axis=0)
        self.since_s = time_s - time_s[0]
        self.temp_c, self.power_w, self.ambient_c, self.weight = temp_c, power_w, ambient_c, weight
        self.total = weight.sum(axis=0)

    def responses(self, time_constant: Array) -> tuple[Array, Array, Array]:
        """Return the responses to the beginning and to power, and the temperatures to explain."""
        fed = -np.expm1(-self.interval_s / time_constant)
        begin = np.exp(-self.since_s / time_constant)
        power = _response(1.0 - fed, fed * self.power_w[:-1])
        if self.ambient_c is None:
            return begin, power, self.temp_c
        return begin, power, self.temp_c - _response(1.0 - fed, fed * self.ambient_c[:-1])

    def solve(self, time_constant: Array) -> tuple[Array, Array, Array, Array]:
        """Return the sum of squares, the factor of the beginning, R, and the ambient."""
        begin, power, temp = self.responses(time_constant)
        means = [np.zeros_like(self.total)] * 3
        if self.ambient_c is None:
            means = [self._mean(each) for each in (begin, power, temp)]
            begin, power, temp = (
                each - mean for each, mean in zip((begin, power, temp), means, strict=True)
            )
        bb, bp, pp = self._sum(begin, begin), self._sum(begin, power), self._sum(power, power)
        bt, pt = self._sum(begin, temp), self._sum(power, temp)
        determinant = bb * pp - bp * bp
        solvable = determinant > 1e-12 * bb * pp
        scale = np.where(solvable, determinant, 1.0)
        resistance = (bb * pt - bp * bt) / scale
        # Power that cools is no explanation: then the beginning alone has to do.
        solvable &= resistance > 0.0
        resistance = np.where(solvable, resistance, 0.0)
        first = (bt - bp * resistance) / np.where(bb > 0.0, bb, 1.0)
        off = temp - first * begin - resistance * power
        ambient = means[2] - first * means[0] - resistance * means[1]
        return self._sum(off, off), first, resistance, ambient

    def slope(self, time_constant: Array, first: Array, resistance: Array) -> Array:
        """Return the derivative of the model by ln τ."""
        ends = []
        for step in (_STEP, -_STEP):
            begin, power, temp = self.responses(time_constant * np.exp(step))
            ends.append(first * begin + resistance * power - temp)
        return np.asarray((ends[0] - ends[1]) / (2.0 * _STEP))

    def _mean(self, values: Array) -> Array:
        return np.asarray(np.einsum("sp,sp->p", self.weight, values) / self.total)

    def _sum(self, one: Array, other: Array) -> Array:
        return np.asarray(np.einsum("sp,sp,sp->p", self.weight, one, other))


def _fit(
    time_s: Array, temp_c: Array, power_w: Array, ambient_c: Array | None, weight: Array
) -> RcFit:
    """Fit each column; NaN where it does not determine R and C."""
    usable = ~_still(power_w) & (np.count_nonzero(weight, axis=0) >= FEWEST_READINGS)
    usable &= time_s[-1] > time_s[0]
    answer = np.full((9, time_s.shape[1]), np.nan)
    if usable.any():
        columns = [
            None if each is None else each[:, usable]
            for each in (time_s, temp_c, power_w, ambient_c, weight)
        ]
        answer[:, usable] = _fit_usable(_Model(*columns))  # type: ignore[arg-type]
    return RcFit(*answer)


def _fit_usable(model: _Model) -> Array:
    low = np.log(_SHORTEST_INTERVALS * _typical_interval_s(model))
    high = np.log(_LONGEST_SPANS * model.since_s[-1])
    best = least(lambda x: model.solve(np.exp(x))[0], low, high, points=20, rounds=22)
    time_constant = np.exp(best)
    squares, first, resistance, ambient = model.solve(time_constant)
    known = resistance > 0.0
    resistance = np.where(known, resistance, 1.0)
    errors = _errors(model, time_constant, first, resistance, squares)
    capacitance = time_constant / resistance
    capacitance_error = capacitance * errors[0]
    known &= (errors[1] <= _WORST_ERROR * resistance) & (errors[0] <= _WORST_ERROR)
    known &= (best > low) & (best < high)
    if model.ambient_c is not None:
        ambient = np.average(model.ambient_c, axis=0, weights=model.weight)
    found = np.stack(
        [
            resistance,
            capacitance,
            time_constant,
            ambient,
            np.sqrt(squares / model.total),
            errors[1],
            capacitance_error,
            time_constant * errors[2],
            errors[3],
        ]
    )
    return np.where(known, found, np.nan)


def _typical_interval_s(model: _Model) -> Array:
    """Return the median of the intervals that take any time."""
    taken = np.where(model.interval_s > 0.0, model.interval_s, np.nan)
    return np.asarray(np.nanmedian(taken, axis=0))


def _errors(
    model: _Model, time_constant: Array, first: Array, resistance: Array, squares: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the standard errors of ln C, R, ln τ and the ambient, from the curvature."""
    begin, power, _ = model.responses(time_constant)
    columns = [model.slope(time_constant, first, resistance), power, begin]
    if model.ambient_c is None:
        columns.append(np.ones_like(power))
    jacobian = np.sqrt(model.weight) * np.stack(columns)
    scale = np.sqrt((jacobian**2).sum(axis=1))
    scale = np.where(scale > 0.0, scale, 1.0)
    jacobian /= scale[:, None]
    information = np.einsum("isp,jsp->pij", jacobian, jacobian)
    freedom = np.count_nonzero(model.weight, axis=0) - len(columns)
    variance = squares / freedom
    covariance = np.linalg.pinv(information, hermitian=True) * variance[:, None, None]
    covariance /= scale.T[:, :, None] * scale.T[:, None, :]
    log_tau, of_r = covariance[:, 0, 0], covariance[:, 1, 1]
    log_c = log_tau + of_r / resistance**2 - 2.0 * covariance[:, 0, 1] / resistance
    # With the ambient as the constant: begin counts for the first temperature above it.
    of_ambient = covariance[:, 3, 3] if model.ambient_c is None else np.zeros_like(log_tau)
    variances = (log_c, of_r, log_tau, of_ambient)
    spread, resistance_error, log_tau_error, ambient_error = (
        np.sqrt(np.maximum(each, 0.0)) for each in variances
    )
    return spread, resistance_error, log_tau_error, ambient_error


def _response(kept: Array, fed: Array) -> Array:
    """Return ``x`` with ``x[0] = 0`` and ``x[k + 1] = kept[k] · x[k] + fed[k]``, down each column.

    In blocks of √n samples, each first from 0 and all side by side, then from block to block: 2 √n
    steps in Python for n samples at any distance.
    """
    samples, parts = kept.shape
    length = int(np.ceil(np.sqrt(samples)))
    blocks = -(-samples // length)
    decay, answer = np.ones((blocks * length, parts)), np.zeros((blocks * length, parts))
    decay[:samples], answer[:samples] = kept, fed
    decay, answer = (each.reshape(blocks, length, parts) for each in (decay, answer))
    for i in range(1, length):
        answer[:, i] += decay[:, i] * answer[:, i - 1]
        decay[:, i] *= decay[:, i - 1]
    for i in range(1, blocks):
        answer[i] += decay[i] * answer[i - 1, -1]
    return np.concatenate([np.zeros((1, parts)), answer.reshape(-1, parts)[:samples]])
