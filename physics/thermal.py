"""Temperature of parts: a heat source behind one thermal resistance and one capacitance.

Every function is pure, takes keywords only, and broadcasts like NumPy: floats in, float out; an
array among the arguments, an array out.
"""

from __future__ import annotations

from typing import overload

import numpy as np

from physics.arguments import Array, Values, celsius, finite, positive

__all__ = ["power_at_temperature_w", "rc_step_c", "steady_state_c"]


@overload
def steady_state_c(  # type: ignore[overload-overlap]  # floats are Values too; they match here first
    *, power_w: float, ambient_c: float, resistance_c_per_w: float
) -> float: ...
@overload
def steady_state_c(*, power_w: Values, ambient_c: Values, resistance_c_per_w: Values) -> Array: ...
def steady_state_c(*, power_w: Values, ambient_c: Values, resistance_c_per_w: Values) -> Values:
    """Return the temperature that a part settles at, °C: ``T = T_ambient + P · R``."""
    finite("power_w", power_w, at_least=0.0)
    celsius("ambient_c", ambient_c)
    positive("resistance_c_per_w", resistance_c_per_w)
    return ambient_c + power_w * resistance_c_per_w


@overload
def rc_step_c(  # type: ignore[overload-overlap]
    *,
    temp_c: float,
    power_w: float,
    ambient_c: float,
    resistance_c_per_w: float,
    capacitance_j_per_c: float,
    dt_s: float,
) -> float: ...
@overload
def rc_step_c(
    *,
    temp_c: Values,
    power_w: Values,
    ambient_c: Values,
    resistance_c_per_w: Values,
    capacitance_j_per_c: Values,
    dt_s: Values,
) -> Array: ...
def rc_step_c(
    *,
    temp_c: Values,
    power_w: Values,
    ambient_c: Values,
    resistance_c_per_w: Values,
    capacitance_j_per_c: Values,
    dt_s: Values,
) -> Values:
    """Return the temperature ``dt_s`` later, °C, with power and ambient held.

    The exact solution of ``C · dT/dt = P - (T - T_ambient) / R``, so steps of any length are
    stable and two steps of dt/2 make one of dt: ``T' = T_ss + (T - T_ss) · exp(-dt / RC)``.
    """
    celsius("temp_c", temp_c)
    positive("capacitance_j_per_c", capacitance_j_per_c)
    finite("dt_s", dt_s, at_least=0.0)
    settled_c = steady_state_c(
        power_w=power_w, ambient_c=ambient_c, resistance_c_per_w=resistance_c_per_w
    )
    decay = np.exp(-np.divide(dt_s, np.multiply(resistance_c_per_w, capacitance_j_per_c)))
    moved: Values = settled_c + (temp_c - settled_c) * decay
    return moved


@overload
def power_at_temperature_w(  # type: ignore[overload-overlap]
    *, temp_c: float, ambient_c: float, resistance_c_per_w: float
) -> float: ...
@overload
def power_at_temperature_w(
    *, temp_c: Values, ambient_c: Values, resistance_c_per_w: Values
) -> Array: ...
def power_at_temperature_w(
    *, temp_c: Values, ambient_c: Values, resistance_c_per_w: Values
) -> Values:
    """Return the power that settles at ``temp_c``, W: ``P = (T - T_ambient) / R``, at least 0.

    A part whose ambient is as hot as ``temp_c`` may draw nothing: the answer is 0.
    """
    celsius("temp_c", temp_c)
    celsius("ambient_c", ambient_c)
    positive("resistance_c_per_w", resistance_c_per_w)
    power: Values = np.maximum(np.subtract(temp_c, ambient_c) / resistance_c_per_w, 0.0)
    return power if np.ndim(power) else float(power)
