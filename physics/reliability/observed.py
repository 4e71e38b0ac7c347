"""What observed failures say."""

from __future__ import annotations

# SciPy is imported in functions: it takes longer to load than all laws that do without it.
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from physics._bounds import NonNegativeSeries, Probability
from physics._search import smallest_positive
from physics.errors import UnfittableError
from physics.law import Amount, Array, Bound, Positive, PositiveSeries, Values, law, require

__all__ = [
    "FEWEST_FAILURES",
    "LemonNodes",
    "MtbfEstimate",
    "RateComparison",
    "WeibullFit",
    "compare_rates",
    "estimate_mtbf",
    "lemon_nodes",
    "weibull_test",
]

AmountSeries: TypeAlias = Annotated[
    Array, Bound("whole numbers, at least 0", low=0.0, whole=True, series=True)
]
Flags: TypeAlias = Annotated[Array, Bound("0 or 1", low=0.0, high=1.0, whole=True, series=True)]
Verdict: TypeAlias = Literal["infant mortality", "constant rate", "wear-out", "not enough failures"]

#: Below this many failures :func:`weibull_test` gives no verdict: with 5 complete lifetimes its
#: likelihood ratio calls 10 % of constant-rate fleets something else instead of 5 %, with 10 7 %.
FEWEST_FAILURES = 10

# Shapes between which any fit lies: ages are floats, so their logarithms spread less than 1,500.
_FLATTEST, _STEEPEST = np.asarray(1e-4), np.asarray(1e8)


@dataclass(frozen=True)
class LemonNodes:
    """For each node: does it fail more than the rest of the fleet?"""

    #: At the fleet's rate, for this node's exposure.
    expected_failures: Array
    p_value: Array
    #: The false discovery rate at which the node would just be flagged.
    q_value: Array
    flagged: NDArray[np.bool_]


@dataclass(frozen=True)
class MtbfEstimate:
    """A mean time between failures with its confidence interval.

    Without a failure ``mtbf_s`` and ``upper_s`` are infinite and ``lower_s`` is a one-sided bound.
    """

    mtbf_s: Values
    lower_s: Values
    upper_s: Values


@dataclass(frozen=True)
class RateComparison:
    """How many times higher the failure rate of A is than that of B."""

    rate_ratio: Values
    lower: Values
    upper: Values
    #: Two-sided: how often equal rates would look at least this unlike.
    p_value: Values


@dataclass(frozen=True)
class WeibullFit:
    """A Weibull lifetime fitted to failures and survivors. NaN where there is no verdict."""

    shape: float
    shape_standard_error: float
    shape_lower: float
    shape_upper: float
    scale_s: float
    #: Twice the gain in log likelihood over a constant rate (shape 1), and how often chance gives
    #: as much.
    likelihood_ratio: float
    p_value: float
    failures: int
    verdict: Verdict


@law
def estimate_mtbf(
    *, failures: Amount, exposure_s: Positive, confidence: Probability = 0.95
) -> MtbfEstimate:
    """Estimate an MTBF from n failures in T device-seconds: ``T / n``, with bounds by χ².

    ``lower = 2T / χ²(1 - a/2; 2n + 2)``, ``upper = 2T / χ²(a/2; 2n)``, ``a = 1 - confidence``. With
    n = 0 the estimate and the upper bound are infinite, and the lower bound is one-sided:
    ``T / -ln(a)``. Exposure is the time that all devices ran, summed. Shapes broadcast.

    Valid for a constant rate and an observation that ends at a time set beforehand, not at a
    failure. Source: Epstein and Sobel 1953; IEC 60605-4.
    """
    from scipy.special import gammainccinv, gammaincinv

    none = failures == 0
    tail = (1.0 - confidence) / np.where(none, 1.0, 2.0)
    some = np.where(none, 1.0, failures)
    upper_s = exposure_s / gammaincinv(some, tail)
    return MtbfEstimate(
        mtbf_s=np.where(none, np.inf, exposure_s / some),
        lower_s=exposure_s / gammainccinv(failures + 1.0, tail),
        upper_s=np.where(none, np.inf, upper_s),
    )


@law
def compare_rates(
    *,
    failures_a: Amount,
    exposure_a_s: Positive,
    failures_b: Amount,
    exposure_b_s: Positive,
    confidence: Probability = 0.95,
) -> RateComparison:
    """Compare two failure rates: ``(n_a / T_a) / (n_b / T_b)``, exact interval and p value.

    Given ``n_a + n_b``, n_a is binomial with share ``T_a / (T_a + T_b)`` when rates are equal. The
    p value is twice the smaller tail (at most 1); the interval is Clopper and Pearson's for that
    share, as a ratio. Exposures in device-seconds; shapes broadcast. Without failures in B the
    ratio is infinite, without any at all NaN (from 0 to infinity). Exact, so on the safe side with
    few failures. Source: Przyborowski and Wilenski 1940.
    """
    from scipy.special import betaincinv

    a, b = failures_a, failures_b
    share = exposure_a_s / (exposure_a_s + exposure_b_s)
    tails = _binomial_tail(a, b, share), _binomial_tail(b, a, 1.0 - share)
    half = (1.0 - confidence) / 2.0
    low = np.where(a > 0, betaincinv(np.maximum(a, 1.0), b + 1.0, half), 0.0)
    # Of B's share, not A's: close to 1 it would lose its digits.
    high = np.where(b > 0, betaincinv(np.maximum(b, 1.0), a + 1.0, half), 0.0)
    odds = exposure_b_s / exposure_a_s
    return RateComparison(
        rate_ratio=_ratio(a * odds, b),
        lower=low / (1.0 - low) * odds,
        upper=_ratio((1.0 - high) * odds, high),
        p_value=np.minimum(2.0 * np.minimum(*tails), 1.0),
    )


@law
def lemon_nodes(
    *, failures: AmountSeries, exposure_s: NonNegativeSeries, false_discovery: Probability = 0.05
) -> LemonNodes:
    """Find the nodes that fail more than the rest of the fleet: tail p values, then q values.

    Given all n failures, a healthy node has ``Binomial(n, T_i / ΣT)`` of them; its p value is the
    upper tail, which is also the exact test of its rate against the rest's. Over nodes, the q
    values of Benjamini and Hochberg: among the flagged (``q ≤ false_discovery``), that share is
    expected to be healthy. Series over nodes, exposure in node-seconds (0: not in use).

    Valid for a constant rate. Counts are whole, so p values err on the safe side. A repair that
    did not help counts as new failures: that is what makes a lemon. Many lemons at once raise the
    rate that each is held against. Source: Benjamini and Hochberg 1995.
    """
    require((exposure_s > 0.0) | (failures == 0.0), "failures", "0 for a node without exposure")
    require(exposure_s.sum() > 0.0, "exposure_s", "above 0 for some node")
    require(np.ndim(false_discovery) == 0, "false_discovery", "one number")
    share = exposure_s / exposure_s.sum()
    total = failures.sum()
    p_value = _binomial_tail(failures, total - failures, share)
    q_value = _false_discovery_rates(p_value)
    return LemonNodes(total * share, p_value, q_value, q_value <= false_discovery)


@law
def weibull_test(
    *, age_s: PositiveSeries, failed: Flags, confidence: Probability = 0.95
) -> WeibullFit:
    """Fit ``P(alive at t) = exp(-(t / scale)^shape)`` by maximum likelihood, and test shape = 1.

    ``age_s`` is the age at which a device failed (``failed`` 1) or was last seen alive (0); both
    are series over devices. Shape below 1 is infant mortality, 1 a constant rate, above 1 wear-out:
    the verdict is one of the outer two where the likelihood ratio against shape 1 is too large for
    chance (χ² with one degree, p below ``1 - confidence``). The standard error is that of the
    observed information, the interval of the shape is log-normal.

    Gives "not enough failures" and NaN below :data:`FEWEST_FAILURES`; with few failures the
    shape comes out too high (by about 1.4 / n of itself). Ages count from when a device was new,
    not from the start of the observation. Raises :class:`UnfittableError` where all
    failures are at one age that nothing outlived. Source: Lawless 2003.
    """
    require(np.ndim(confidence) == 0, "confidence", "one number")
    failures = int(np.sum(failed))
    if failures < FEWEST_FAILURES:
        nan = float("nan")
        return WeibullFit(nan, nan, nan, nan, nan, nan, nan, failures, "not enough failures")
    return _fit_weibull(age_s, failed > 0.0, float(confidence))


def _binomial_tail(successes: Any, others: Any, share: Any) -> Array:
    """Return P(X ≥ successes) for X binomial over all trials."""
    from scipy.special import betainc

    tail = betainc(np.maximum(successes, 1.0), others + 1.0, share)
    return np.where(successes > 0.0, tail, 1.0)


def _ratio(a: Any, b: Any) -> Array:
    """Return a / b: infinite where only b is 0, NaN where both are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.divide(a, b))


def _false_discovery_rates(p_value: Array) -> Array:
    order = np.argsort(p_value)
    scaled = p_value[order] * p_value.size / np.arange(1, p_value.size + 1)
    q_value = np.empty_like(p_value)
    q_value[order] = np.minimum.accumulate(scaled[::-1])[::-1]
    return q_value


@dataclass(frozen=True)
class _Lifetimes:
    """Ages as logarithms of shares of the oldest, so that no power of an age overflows."""

    logs: Array
    failures: int
    mean_log_of_failures: float

    def moments(self, shape: float) -> tuple[float, float, float]:
        """Return Σ t^shape, and mean and variance of ln t weighted by t^shape."""
        weights = np.exp(shape * self.logs)
        total = float(weights.sum())
        mean = float(weights @ self.logs) / total
        return total, mean, float(weights @ (self.logs - mean) ** 2) / total

    def past_peak(self, shape: Array) -> bool:
        """Return whether the likelihood, at its best scale for each shape, falls here."""
        return self.moments(float(shape))[1] - 1.0 / float(shape) >= self.mean_log_of_failures

    def log_likelihood(self, shape: float) -> float:
        """Return the likelihood's logarithm at the best scale, up to a constant."""
        log_scale = math.log(self.moments(shape)[0] / self.failures)
        return self.failures * (math.log(shape) - log_scale + shape * self.mean_log_of_failures)


def _fit_weibull(age_s: Array, failed: NDArray[np.bool_], confidence: float) -> WeibullFit:
    from scipy.special import chdtrc, ndtri

    oldest_s = float(age_s.max())
    logs = np.log(age_s / oldest_s)
    failures = int(failed.sum())
    lives = _Lifetimes(logs, failures, float(logs[failed].mean()))
    if not lives.past_peak(_STEEPEST):
        raise UnfittableError("every failure is at one age, which no device outlived")
    shape = float(smallest_positive(lives.past_peak, _FLATTEST, _STEEPEST))
    total, _, variance = lives.moments(shape)
    error = 1.0 / math.sqrt(failures * (shape**-2.0 + variance))
    gain = max(2.0 * (lives.log_likelihood(shape) - lives.log_likelihood(1.0)), 0.0)
    p_value = float(chdtrc(1.0, gain))
    spread = math.exp(float(ndtri(0.5 + confidence / 2.0)) * error / shape)
    return WeibullFit(
        shape=shape,
        shape_standard_error=error,
        shape_lower=shape / spread,
        shape_upper=shape * spread,
        scale_s=oldest_s * (total / failures) ** (1.0 / shape),
        likelihood_ratio=gain,
        p_value=p_value,
        failures=failures,
        verdict=_verdict(shape, p_value < 1.0 - confidence),
    )


def _verdict(shape: float, significant: bool) -> Verdict:
    if not significant:
        return "constant rate"
    return "infant mortality" if shape < 1.0 else "wear-out"
