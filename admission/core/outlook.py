"""What failure rates mean for a job: how many failures it meets, how often it should save. Pure.

A rate is that of one GPU with all that stops a job with it. Its bounds go through all that is
reckoned from it: with few failures little is known, and that is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from physics import reliability

__all__ = ["CheckpointAdvice", "Forecast", "GpuRate", "advise", "forecast"]

#: A gain in useful time that is worth a change.
WORTH = 0.002


@dataclass(frozen=True, slots=True)
class GpuRate:
    """How often one GPU fails, per second, with bounds; ``upper`` is above 0.

    ``basis``: whose rate it is. Without a failure ``per_s`` and ``lower`` are 0.
    """

    per_s: float
    lower_per_s: float
    upper_per_s: float
    failures: int
    basis: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """The failures that N GPUs meet in a time: the mean with bounds, and how likely one is.

    ``probability`` is that of at least one, at the rate as it was seen; ``probability_upper`` at
    the upper bound of the rate.
    """

    gpus: int
    time_s: float
    expected: float
    expected_lower: float
    expected_upper: float
    probability: float
    probability_upper: float


@dataclass(frozen=True, slots=True)
class CheckpointAdvice:
    """How long to train between saves, s, beside what is done now.

    ``best_s`` is None where no failure was seen: then only ``best_lower_s``, the best at the upper
    bound of the rate, is known. ``gain`` is in useful time, as a share of wall time: at the rate as
    it was seen; without a failure at its upper bound, and at least that. ``change``: "longer",
    "shorter", or "" where the interval is as good as is known.
    """

    interval_s: float
    best_s: float | None
    best_lower_s: float
    best_upper_s: float | None
    mtbf_s: float | None
    mtbf_lower_s: float
    save_s: float
    ettr: float
    ettr_best: float
    gain: float
    change: str


def forecast(rate: GpuRate, gpus: int, time_s: float) -> Forecast:
    """Return the failures of N ``gpus`` in T s: ``rate · N · T``, and ``1 - exp(-rate · N · T)``.

    Valid for a constant rate, and failures that are repaired or replaced at once.
    """
    gpu_s = gpus * time_s
    mean, low, high = (gpu_s * each for each in (rate.per_s, rate.lower_per_s, rate.upper_per_s))
    seen, most = (
        reliability.failure_probability(window_s=each, system_mtbf_s=1.0) for each in (mean, high)
    )
    return Forecast(gpus, time_s, mean, low, high, float(seen), float(most))


def advise(
    rate: GpuRate, gpus: int, *, save_s: float, interval_s: float, restart_s: float
) -> CheckpointAdvice:
    """Return the best interval for a job on ``gpus`` that stops for ``save_s`` s at each save.

    By the exact optimum (:func:`physics.reliability.optimal_interval_s`) at the rate and at its
    bounds. ``restart_s`` from a failure to the next step changes what is gained, not the optimum.
    """
    mtbf_s, mtbf_upper_s = _mtbf_s(rate.per_s, gpus), _mtbf_s(rate.lower_per_s, gpus)
    mtbf_lower_s = 1.0 / (rate.upper_per_s * gpus)
    best_lower_s = _best_s(save_s, mtbf_lower_s)
    best_s = None if mtbf_s is None else _best_s(save_s, mtbf_s)
    best_upper_s = None if mtbf_upper_s is None else _best_s(save_s, mtbf_upper_s)
    goal_s = best_lower_s if best_s is None else best_s
    now, then = (
        _ettr(save_s, restart_s, mtbf_lower_s if mtbf_s is None else mtbf_s, each)
        for each in (interval_s, goal_s)
    )
    gain = max(then - now, 0.0)
    return CheckpointAdvice(
        interval_s, best_s, best_lower_s, best_upper_s, mtbf_s, mtbf_lower_s, save_s,
        now, then, gain, _change(interval_s, best_lower_s, best_upper_s, gain),
    )  # fmt: skip


def _change(interval_s: float, least_s: float, most_s: float | None, gain: float) -> str:
    """Return what to do where the interval is outside of all that the rate's bounds allow."""
    if gain < WORTH:
        return ""
    if interval_s < least_s:
        return "longer"
    return "shorter" if most_s is not None and interval_s > most_s else ""


def _mtbf_s(rate_per_s: float, gpus: int) -> float | None:
    return 1.0 / (rate_per_s * gpus) if rate_per_s > 0.0 else None


def _best_s(save_s: float, mtbf_s: float) -> float:
    return float(reliability.optimal_interval_s(checkpoint_s=save_s, system_mtbf_s=mtbf_s))


def _ettr(save_s: float, restart_s: float, mtbf_s: float, interval_s: float) -> float:
    return float(
        reliability.ettr(
            checkpoint_s=save_s, restart_s=restart_s, system_mtbf_s=mtbf_s, interval_s=interval_s
        )
    )
