"""Electric power of GPUs and nodes.

Every function is pure, takes keywords only, and broadcasts like NumPy: floats in, float out; an
array among the arguments, an array out.
"""

from __future__ import annotations

from typing import overload

import numpy as np

from physics.arguments import Array, Values, finite, positive, share

__all__ = ["clock_under_cap", "gpu_power_w", "node_power_w"]

#: Exponent of power over relative throughput. Fits of single GPUs under caps (Zeus, NSDI '23) lie
#: between 4.5 and 6: frequency, voltage squared, and throughput that grows slower than the clock.
POWER_EXPONENT = 5.0


@overload
def gpu_power_w(  # type: ignore[overload-overlap]  # floats are Values too; they match here first
    *, static_w: float, dynamic_w: float, relative_clock: float, exponent: float = ...
) -> float: ...
@overload
def gpu_power_w(
    *, static_w: Values, dynamic_w: Values, relative_clock: Values, exponent: Values = ...
) -> Array: ...
def gpu_power_w(
    *,
    static_w: Values,
    dynamic_w: Values,
    relative_clock: Values,
    exponent: Values = POWER_EXPONENT,
) -> Values:
    """Return the power of a GPU, W: ``P = P_static + P_dynamic · r^n``.

    ``static_w`` is drawn at any clock, ``dynamic_w`` on top of it at full clock by the present
    load, and ``relative_clock`` is r, the clock (or throughput) over its maximum, from 0 to 1.
    Valid for one load whose mix of work does not change with r. Source: fits on the Zeus traces.
    """
    finite("static_w", static_w, at_least=0.0)
    finite("dynamic_w", dynamic_w, at_least=0.0)
    share("relative_clock", relative_clock)
    positive("exponent", exponent)
    return static_w + dynamic_w * np.power(relative_clock, exponent)


@overload
def clock_under_cap(  # type: ignore[overload-overlap]
    *, cap_w: float, static_w: float, dynamic_w: float, exponent: float = ...
) -> float: ...
@overload
def clock_under_cap(
    *, cap_w: Values, static_w: Values, dynamic_w: Values, exponent: Values = ...
) -> Array: ...
def clock_under_cap(
    *,
    cap_w: Values,
    static_w: Values,
    dynamic_w: Values,
    exponent: Values = POWER_EXPONENT,
) -> Values:
    """Return the highest relative clock, 0 to 1, at which a GPU draws at most ``cap_w``.

    The inverse of :func:`gpu_power_w`: ``r = min(1, ((P_cap - P_static) / P_dynamic)^(1/n))``.
    A cap under the static power cannot be kept by the clock: the answer is then 0. A GPU without
    dynamic power is at full clock under any cap that its static power keeps.
    """
    finite("cap_w", cap_w, at_least=0.0)
    finite("static_w", static_w, at_least=0.0)
    finite("dynamic_w", dynamic_w, at_least=0.0)
    positive("exponent", exponent)
    room_w = np.subtract(cap_w, static_w)
    # Where the room covers the dynamic power the ratio is 1 by definition: never a division by 0.
    capped = room_w < dynamic_w
    ratio = np.where(capped, room_w, 1.0) / np.where(capped, np.maximum(dynamic_w, 1e-300), 1.0)
    clock: Values = np.power(np.clip(ratio, 0.0, 1.0), np.divide(1.0, exponent))
    return clock if np.ndim(clock) else float(clock)


@overload
def node_power_w(  # type: ignore[overload-overlap]
    *, gpus_w: float, host_idle_w: float, host_rated_w: float, host_load: float
) -> float: ...
@overload
def node_power_w(
    *, gpus_w: Values, host_idle_w: Values, host_rated_w: Values, host_load: Values
) -> Array: ...
def node_power_w(
    *, gpus_w: Values, host_idle_w: Values, host_rated_w: Values, host_load: Values
) -> Values:
    """Return the power of a node, W: its GPUs and its host.

    ``gpus_w`` is the sum over its GPUs; the host (CPUs, memory, NICs, fans, conversion losses)
    goes linearly from ``host_idle_w`` to ``host_rated_w`` with ``host_load`` from 0 to 1.
    """
    finite("gpus_w", gpus_w, at_least=0.0)
    finite("host_idle_w", host_idle_w, at_least=0.0)
    finite("host_rated_w", host_rated_w, at_least=0.0)
    finite("host_rated_w - host_idle_w", np.subtract(host_rated_w, host_idle_w), at_least=0.0)
    share("host_load", host_load)
    return gpus_w + host_idle_w + (host_rated_w - host_idle_w) * host_load
