"""Power of one GPU against its throughput, and what a cap does to both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from physics._bounds import AtLeastOne
from physics.law import Array, NonNegative, Positive, Share, Values, law

#: Exponent of power over relative throughput. Measured workloads that a cap slows down need 5 to 6
#: (docs/reference/physics/power.md); the lower end promises least speed under a cap.
POWER_EXPONENT = 5.0
#: Newton's method has both slopes to the last digits after so many rounds: it starts close above.
_ROUNDS = 12
#: Where a slope is taken in place of 0.
_TINY = 1e-150


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
    linear_share: Share = 0.0,
) -> Values:
    """Return the power of a GPU, W: ``P = P_static + P_dynamic · (λ · r + (1 - λ) · r^n)``.

    ``static_w`` is drawn at any speed, ``dynamic_w`` on top of it at full speed by the present
    workload, and ``relative_throughput`` is r, the throughput (or clock) over that without a cap,
    0 to 1. ``linear_share`` is λ: the share of the dynamic power that falls as r does, because the
    voltage is at its floor. All broadcast. Valid for one workload whose mix of work does not change
    with r. With λ = 0 it holds above half of the highest cap only: below, power falls as r does,
    and one slope averages that. Source: the form is that of CMOS power, f · V²; exponent and share
    are fitted (see fit_power_curves, and the power curves of the catalogue).
    """
    return _power(static_w, dynamic_w, relative_throughput, exponent, linear_share)


@law
def throughput_under_cap(
    *,
    cap_w: NonNegative,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
    linear_share: Share = 0.0,
) -> Values:
    """Return the highest relative throughput, 0 to 1, at which a GPU draws at most ``cap_w``.

    The inverse of gpu_power_w: ``r = min(1, ((P_cap - P_static) / P_dynamic)^(1/n))`` where λ is 0,
    else by Newton's method. A cap under the static power cannot be kept by slowing down: the answer
    is then 0. A GPU without dynamic power is at full speed under any cap that its static power
    keeps. All broadcast.
    """
    return _throughput(cap_w, static_w, dynamic_w, exponent, linear_share)


@law
def slowdown_under_cap(
    *,
    cap_w: NonNegative,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
    linear_share: Share = 0.0,
) -> Values:
    """Return how many times as long work takes under a cap: ``1 / r``, 1 or more, no unit.

    r is that of throughput_under_cap; inf where the cap is under the static power.
    """
    return _over(1.0, _throughput(cap_w, static_w, dynamic_w, exponent, linear_share))


@law
def cap_for_slowdown_w(
    *,
    slowdown: AtLeastOne,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
    linear_share: Share = 0.0,
) -> Values:
    """Return the lowest cap under which work takes ``slowdown`` times as long, W.

    The inverse of slowdown_under_cap: gpu_power_w at ``r = 1 / slowdown``. 1.05 is 5 % more time.
    All broadcast.
    """
    return _power(static_w, dynamic_w, 1.0 / np.asarray(slowdown), exponent, linear_share)


@law
def energy_per_work_j(
    *,
    cap_w: NonNegative,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
    linear_share: Share = 0.0,
    overhead_w: NonNegative = 0.0,
    work_per_s: Positive = 1.0,
) -> Values:
    """Return the energy of a unit of work under a cap, J: ``(P(r) + P_overhead) / (r · work/s)``.

    ``work_per_s`` is the throughput without a cap: tokens or steps in a second. Left at 1, the unit
    of work is what the GPU does in a second without a cap. ``overhead_w`` is what runs as long as
    the work does and is not under the cap: the GPU's share of its host. inf where the cap is under
    the static power. All broadcast.
    """
    throughput = _throughput(cap_w, static_w, dynamic_w, exponent, linear_share)
    drawn_w = _power(static_w, dynamic_w, throughput, exponent, linear_share) + overhead_w
    return _over(drawn_w, throughput * work_per_s)


@law
def best_cap(
    *,
    static_w: NonNegative,
    dynamic_w: NonNegative,
    exponent: Positive = POWER_EXPONENT,
    linear_share: Share = 0.0,
    overhead_w: NonNegative = 0.0,
    least_throughput: Share = 0.0,
) -> BestCap:
    """Return the cap with the least energy per work.

    ``r = ((P_s + P_o) / ((n - 1) · (1 - λ) · P_d))^(1/n)``.

    Where the derivative of energy_per_work_j is zero, held between ``least_throughput`` and 1. The
    cap is in W, throughput and saving are shares. What runs anyway (``overhead_w``, W) speaks for a
    higher cap. For n of 1 or less, and without dynamic power, full speed is best. The formula does
    not know how slow the GPU can run, nor what lateness costs: ``least_throughput`` does.
    """
    anyway_w = np.add(static_w, overhead_w)
    steep_w = np.multiply(np.subtract(1.0, linear_share), dynamic_w)
    steepness_w = np.multiply(np.maximum(np.subtract(exponent, 1.0), 0.0), steep_w)
    ratio = np.minimum(_over(anyway_w, steepness_w, empty=1.0), 1.0)
    throughput = np.maximum(np.power(ratio, np.divide(1.0, exponent)), least_throughput)
    cap_w = _power(static_w, dynamic_w, throughput, exponent, linear_share)
    # Over 0/0, reached only as r → 0 without any standing power, energy per work is the slope at 0.
    slope_w = np.multiply(linear_share, dynamic_w)
    energy = np.where(throughput > 0.0, _over(cap_w + overhead_w, throughput), slope_w)
    uncapped = np.add(anyway_w, dynamic_w)
    return BestCap(cap_w, throughput, 1.0 - _over(energy, uncapped, empty=1.0))


def _power(
    static_w: Values, dynamic_w: Values, throughput: Values, exponent: Values, linear: Values
) -> Array:
    steep = np.power(throughput, exponent)
    return np.asarray(static_w + dynamic_w * (linear * throughput + (1.0 - linear) * steep))


def _throughput(
    cap_w: Values, static_w: Values, dynamic_w: Values, exponent: Values, linear: Values
) -> Array:
    room_w = np.subtract(cap_w, static_w)
    # Where the room covers the dynamic power the ratio is 1 by definition: never a division by 0.
    ratio = np.where(room_w < dynamic_w, _over(room_w, np.asarray(dynamic_w), empty=0.0), 1.0)
    share = np.clip(ratio, 0.0, 1.0)
    if not np.any(linear):
        return np.asarray(np.power(share, np.divide(1.0, exponent)))
    return _inverse(share, np.asarray(exponent, dtype=float), np.asarray(linear, dtype=float))


def _inverse(share: Array, exponent: Values, linear: Values) -> Array:
    """Return r at which ``λ · r + (1 - λ) · r^n`` is ``share``, 0 to 1."""
    steep = np.subtract(1.0, linear)
    root = np.divide(1.0, exponent)
    # Each term alone reaches the share later than both: the root is below both. The curve bends one
    # way, up for n above 1 and down below it, so that no step from its outer side leads past it.
    by_line = np.minimum(_over(share, np.asarray(linear)), 1.0)
    by_power = np.power(np.minimum(_over(share, np.asarray(steep)), 1.0), root)
    outside = np.minimum(by_line, by_power)
    found = np.where(np.greater_equal(exponent, 1.0), outside, np.power(share, root))
    for _ in range(_ROUNDS):
        raised = np.power(np.maximum(found, _TINY), np.subtract(exponent, 1.0))
        off = (linear + steep * raised) * found - share
        slope = np.asarray(linear + steep * exponent * raised)
        found = np.clip(found - _over(off, slope, empty=0.0), 0.0, 1.0)
    return np.asarray(found)


def _over(amount: Values, divisor: Array, *, empty: float = np.inf) -> Array:
    """Return ``amount / divisor``, and ``empty`` where the divisor is 0."""
    zero = divisor == 0.0
    # Over a divisor of next to nothing, infinity is the answer.
    with np.errstate(over="ignore"):
        ratio = np.divide(amount, np.where(zero, 1.0, divisor))
    return np.asarray(np.where(zero, empty, ratio))
