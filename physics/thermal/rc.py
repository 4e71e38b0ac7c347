"""Temperature of a part: a heat source behind one thermal resistance and one capacitance."""

from __future__ import annotations

import numpy as np

from physics.law import Array, Celsius, NonNegative, Positive, Values, law


@law
def time_constant_s(*, resistance_c_per_w: Positive, capacitance_j_per_c: Positive) -> Values:
    """Return the time after which 63 % of a change is done, s: ``τ = R · C``. Both broadcast."""
    return resistance_c_per_w * capacitance_j_per_c


@law
def steady_state_c(
    *, power_w: NonNegative, ambient_c: Celsius, resistance_c_per_w: Positive
) -> Values:
    """Return the temperature that a part settles at, °C: ``T = T_ambient + P · R``. All broadcast.

    ``ambient_c`` is that of the air or coolant which takes the heat, before it is warmed.
    """
    return ambient_c + power_w * resistance_c_per_w


@law
def power_at_temperature_w(
    *, temp_c: Celsius, ambient_c: Celsius, resistance_c_per_w: Positive
) -> Values:
    """Return the power that settles at ``temp_c``, W: ``P = (T - T_ambient) / R``, at least 0.

    The inverse of steady_state_c, and so the power that keeps a part under a limit for good. A part
    whose ambient is as hot as ``temp_c`` may draw nothing: the answer is 0. All broadcast.
    """
    return np.maximum(np.subtract(temp_c, ambient_c) / resistance_c_per_w, 0.0)


@law
def rc_step_c(
    *,
    temp_c: Celsius,
    power_w: NonNegative,
    ambient_c: Celsius,
    resistance_c_per_w: Positive,
    capacitance_j_per_c: Positive,
    dt_s: NonNegative,
) -> Values:
    """Return the temperature ``dt_s`` later, °C, with power and ambient held.

    ``T' = T_ss + (T - T_ss) · exp(-dt / RC)``, T_ss being that of steady_state_c: the exact
    solution of ``C · dT/dt = P - (T - T_ambient) / R``, so steps of any length are stable and two
    steps of dt/2 make one of dt. All broadcast. One RC is the slow part of a GPU (its heat sink);
    within the first second the die itself is faster.
    """
    settled_c = ambient_c + power_w * resistance_c_per_w
    decay = np.exp(-np.divide(dt_s, resistance_c_per_w * capacitance_j_per_c))
    return settled_c + (temp_c - settled_c) * decay


@law
def time_to_throttle_s(
    *,
    temp_c: Celsius,
    limit_c: Celsius,
    power_w: NonNegative,
    ambient_c: Celsius,
    resistance_c_per_w: Positive,
    capacitance_j_per_c: Positive,
) -> Values:
    """Return the time until a part is as hot as a limit, s.

    ``RC · ln((T_ss - T) / (T_ss - limit))``, T_ss being that of steady_state_c; 0 where it is
    already; inf where it settles at the limit or below. Power and ambient are held. All broadcast.
    """
    settled_c = ambient_c + power_w * resistance_c_per_w
    wait = _log_way(np.subtract(settled_c, temp_c), np.subtract(settled_c, limit_c))
    wait_s = resistance_c_per_w * capacitance_j_per_c * wait
    return np.where(np.greater_equal(temp_c, limit_c), 0.0, wait_s)


@law
def time_to_cool_s(
    *,
    temp_c: Celsius,
    limit_c: Celsius,
    power_w: NonNegative,
    ambient_c: Celsius,
    resistance_c_per_w: Positive,
    capacitance_j_per_c: Positive,
) -> Values:
    """Return the time until a part has cooled to a limit, s.

    ``RC · ln((T - T_ss) / (limit - T_ss))``, T_ss being that of steady_state_c; 0 where it has
    already; inf where it settles at the limit or above. Power and ambient are held. All broadcast.
    """
    settled_c = ambient_c + power_w * resistance_c_per_w
    wait = _log_way(np.subtract(temp_c, settled_c), np.subtract(limit_c, settled_c))
    wait_s = resistance_c_per_w * capacitance_j_per_c * wait
    return np.where(np.less_equal(temp_c, limit_c), 0.0, wait_s)


@law
def burst_power_w(
    *,
    temp_c: Celsius,
    limit_c: Celsius,
    ambient_c: Celsius,
    resistance_c_per_w: Positive,
    capacitance_j_per_c: Positive,
    dt_s: Positive,
) -> Values:
    """Return the power that brings a part just to a limit within ``dt_s``, W, at least 0.

    ``P = (limit - T_ambient - (T - T_ambient) · e) / (R · (1 - e))``, ``e = exp(-dt / RC)``: what
    may be drawn for so long. For long times that of power_at_temperature_w; 0 where the part would
    be over the limit even without power. All broadcast.
    """
    share = np.divide(dt_s, resistance_c_per_w * capacitance_j_per_c)
    rise_c = np.subtract(limit_c, ambient_c) - np.subtract(temp_c, ambient_c) * np.exp(-share)
    return np.asarray(np.maximum(rise_c / (-np.expm1(-share) * resistance_c_per_w), 0.0))


def _log_way(begin_c: Array, end_c: Array) -> Array:
    """Return ``ln(begin / end)`` of ways to where a part settles; inf where the end is past it."""
    reached = (end_c > 0.0) & (begin_c > end_c)
    logs = [np.log(np.where(reached, way, 1.0)) for way in (begin_c, end_c)]
    return np.asarray(np.where(reached, logs[0] - logs[1], np.inf))
