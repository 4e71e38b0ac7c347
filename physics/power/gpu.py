"""Power of one GPU against its throughput, and what a cap does to both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from physics._bounds import AtLeastOne
from physics.law import Array, NonNegative, Positive, Share, Values, law

#: Exponent of power over relative throughput. Measured workloads that a cap slows down need 5 to 6
#: (docs/reference/physics/power.md); the lower end promises least speed under a cap.
POWER_EXPONENT = 5.0


@dataclass(frozen=True)
class BestCap:
    """The cap with the least energy per work, the throughput that it leaves, and the energy that it
    saves as a share of that without a cap."""

    cap_w: Values
    relative_throughput: Values
    saved_share: Values


@law
def gpu_power_w(
    *,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    relative_throughput: Share,
    exponent: Positive = POWER_EXPONENT,
) -> Values:
    """Return the power of a GPU, W: ``P = P_static + P_dynamic · r^n``.

    ``static_w`` is drawn at any speed, ``dynamic_w`` on top of it at full speed by the present
    workload, and ``relative_throughput`` is r, the throughput (or clock) over that without a cap,
    0 to 1. All broadcast. Valid for one workload whose mix of work does not change with r. Below r
    of about 0.6 the voltage is at its floor and power falls as r does, which the law averages: off
    by up to 5 % of the highest power. Source: the form is that of CMOS power, f · V²; the exponent
    is fitted (see fit_power_curves).
    """
    return _power(static_w, dynamic_w, relative_throughput, exponent)


@law
def throughput_under_cap(
    *,
    cap_w: NonNegative,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
) -> Values:
    """Return the highest relative throughput, 0 to 1, at which a GPU draws at most ``cap_w``.

    The inverse of gpu_power_w: ``r = min(1, ((P_cap - P_static) / P_dynamic)^(1/n))``. A cap under
    the static power cannot be kept by slowing down: the answer is then 0. A GPU without dynamic
    power is at full speed under any cap that its static power keeps. All broadcast.
    """
    return _throughput(cap_w, static_w, dynamic_w, exponent)


@law
def slowdown_under_cap(
    *,
    cap_w: NonNegative,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
) -> Values:
    """Return how many times as long work takes under a cap: ``1 / r``, 1 or more, no unit.

    r is that of throughput_under_cap; inf where the cap is under the static power.
    """
    return _over(1.0, _throughput(cap_w, static_w, dynamic_w, exponent))


@law
def cap_for_slowdown_w(
    *,
    slowdown: AtLeastOne,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
) -> Values:
    """Return the lowest cap under which work takes ``slowdown`` times as long, W.

    The inverse of slowdown_under_cap: ``P_cap = P_static + P_dynamic · slowdown^-n``. 1.05 is 5 %
    more time. All broadcast.
    """
    return _power(static_w, dynamic_w, 1.0 / np.asarray(slowdown), exponent)


@law
def energy_per_work_j(
    *,
    cap_w: NonNegative,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
    overhead_w: NonNegative = 0.0,
    work_per_s: Positive = 1.0,
) -> Values:
    """Return the energy of a unit of work under a cap, J: ``(P(r) + P_overhead) / (r · work/s)``.

    ``work_per_s`` is the throughput without a cap: tokens or steps in a second. Left at 1, the unit
    of work is what the GPU does in a second without a cap. ``overhead_w`` is what runs as long as
    the work does and is not under the cap: the GPU's share of its host. inf where the cap is under
    the static power. All broadcast.
    """
    throughput = _throughput(cap_w, static_w, dynamic_w, exponent)
    drawn_w = _power(static_w, dynamic_w, throughput, exponent) + overhead_w
    return _over(drawn_w, throughput * work_per_s)


@law
def best_cap(
    *,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
    overhead_w: NonNegative = 0.0,
    least_throughput: Share = 0.0,
) -> BestCap:
    """Return the cap with the least energy per work: ``r = ((P_s + P_o) / ((n-1) · P_d))^(1/n)``.

    Where the derivative of energy_per_work_j is zero, held between ``least_throughput`` and 1. The
    cap is in W, throughput and saving are shares. What runs anyway (``overhead_w``, W) speaks for a
    higher cap. For n of 1 or less, and without dynamic power, full speed is best. The formula does
    not know how slow the GPU can run, nor what lateness costs: ``least_throughput`` does.
    """
    anyway_w = np.add(static_w, overhead_w)
    steepness_w = np.multiply(np.maximum(np.subtract(exponent, 1.0), 0.0), dynamic_w)
    ratio = np.minimum(_over(anyway_w, steepness_w, empty=1.0), 1.0)
    throughput = np.maximum(np.power(ratio, np.divide(1.0, exponent)), least_throughput)
    cap_w = _power(static_w, dynamic_w, throughput, exponent)
    # Over 0/0, reached only as r → 0 without any standing power, energy per work goes to 0.
    energy = _over(cap_w + overhead_w, throughput, empty=0.0)
    uncapped = np.add(anyway_w, dynamic_w)
    return BestCap(cap_w, throughput, 1.0 - _over(energy, uncapped, empty=1.0))


def _power(static_w: Values, dynamic_w: Values, throughput: Values, exponent: Values) -> Array:
    return np.asarray(static_w + dynamic_w * np.power(throughput, exponent))


def _throughput(cap_w: Values, static_w: Values, dynamic_w: Values, exponent: Values) -> Array:
    room_w = np.subtract(cap_w, static_w)
    # Where the room covers the dynamic power the ratio is 1 by definition: never a division by 0.
    ratio = np.where(room_w < dynamic_w, _over(room_w, np.asarray(dynamic_w), empty=0.0), 1.0)
    return np.asarray(np.power(np.clip(ratio, 0.0, 1.0), np.divide(1.0, exponent)))


def _over(amount: Values, divisor: Array, *, empty: float = np.inf) -> Array:
    """Return ``amount / divisor``, and ``empty`` where the divisor is 0."""
    zero = divisor == 0.0
    # Over a divisor of next to nothing, infinity is the answer.
    with np.errstate(over="ignore"):
        ratio = np.divide(amount, np.where(zero, 1.0, divisor))
    return np.asarray(np.where(zero, empty, ratio))
