"""Laws of speedup: of fixed work, of growing work, and of two measured runs."""

from __future__ import annotations

import dataclasses

import numpy as np

from physics._bounds import PositiveShare, Several
from physics.law import Count, Positive, Share, Values, law

__all__ = [
    "MeasuredEfficiency",
    "amdahl_limit",
    "amdahl_serial_share",
    "amdahl_speedup",
    "gustafson_serial_share",
    "gustafson_speedup",
    "measured_efficiency",
    "strong_scaling_efficiency",
    "weak_scaling_efficiency",
]


@law
def amdahl_speedup(*, gpus: Count, serial_share: Share) -> Values:
    """Return the speedup of a fixed amount of work on N GPUs: ``1 / (s + (1 - s) / N)``.

    ``serial_share`` (s) is the share of the time on one GPU in which the others would wait: serial
    code, and all that keeps every GPU waiting. Exactly 1 at N = 1, N at s = 0. Valid while s does
    not depend on N; waiting for collectives does, and :func:`usl_speedup` has a term for it.
    Source: Amdahl 1967.
    """
    return 1.0 / (serial_share + (1.0 - serial_share) / gpus)


@law
def amdahl_limit(*, serial_share: Share) -> Values:
    """Return the speedup that no number of GPUs exceeds: ``1 / s``; infinite at s = 0.

    Source: Amdahl 1967.
    """
    with np.errstate(divide="ignore", over="ignore"):
        return np.divide(1.0, serial_share)


@law
def amdahl_serial_share(*, gpus: Several, speedup: Positive) -> Values:
    """Return the serial share behind a measured speedup S: ``(1/S - 1/N) / (1 - 1/N)``.

    The inverse of :func:`amdahl_speedup`, known as the Karp-Flatt metric. Where it grows with N,
    the loss is overhead that grows with N and not serial work. Under 0: more than N times faster
    (caches, or a wrong base). Over 1: slower than one GPU. Source: Karp and Flatt 1990.
    """
    return (1.0 / speedup - 1.0 / gpus) / (1.0 - 1.0 / gpus)


@law
def gustafson_speedup(*, gpus: Count, serial_share: Share) -> Values:
    """Return the speedup when the work grows with N: ``N - s (N - 1)``.

    Here ``serial_share`` (s) is a share of the time on N GPUs, not of the time on one: the same
    number means less loss than with Amdahl. Source: Gustafson 1988.
    """
    return gpus - serial_share * (gpus - 1.0)


@law
def gustafson_serial_share(*, gpus: Several, speedup: Positive) -> Values:
    """Return the serial share behind a measured scaled speedup S: ``(N - S) / (N - 1)``.

    The inverse of :func:`gustafson_speedup`; under 0 where S exceeds N.
    """
    return (gpus - speedup) / (gpus - 1.0)


@law
def strong_scaling_efficiency(
    *, reference_gpus: Count, reference_time_s: Positive, gpus: Count, time_s: Positive
) -> Values:
    """Return the efficiency of N against N₀ GPUs on the same work: ``(t₀ N₀) / (t N)``.

    The total work is fixed: ideal is a time that falls as 1/N.
    """
    return (reference_time_s * reference_gpus) / (time_s * gpus)


@law
def weak_scaling_efficiency(*, reference_time_s: Positive, time_s: Positive) -> Values:
    """Return the efficiency when every GPU keeps its amount of work: ``t₀ / t``.

    The work for each GPU is fixed, so the total grows as N: ideal is a time that does not change.
    """
    return np.divide(reference_time_s, time_s)


@dataclasses.dataclass(frozen=True)
class MeasuredEfficiency:
    """Scaling efficiency of a larger run, against the smaller run and against one GPU."""

    relative: Values
    absolute: Values


@law
def measured_efficiency(
    *,
    throughput_ratio: Positive,
    reference_gpus: Count,
    gpus: Count,
    reference_efficiency: PositiveShare,
) -> MeasuredEfficiency:
    """Return the efficiency of N GPUs whose throughput is r times that of N₀ GPUs.

    ``relative = r N₀ / N`` says what was kept since N₀; it is what two runs measure.
    ``absolute = relative · η₀`` counts from one GPU on, and is as good as ``reference_efficiency``
    (η₀, the efficiency at N₀: from a run on one node, or from :data:`TEXTBOOK_TABLE_5`). The two
    differ by the factor η₀: 2.5 times from 1,024 to 4,096 GPUs is 62.5 % relative and, with
    η₀ = 0.5, 31.25 % absolute. Over 1 where growth is more than linear.
    """
    relative = throughput_ratio * reference_gpus / gpus
    return MeasuredEfficiency(relative=relative, absolute=relative * reference_efficiency)
