"""What failures cost a job, and the checkpoint intervals that keep the cost low.

M is the system's mean time between failures, δ the time of a checkpoint, R that of a restart, D the
wait in a queue before it, τ the interval: the useful time between the end of one checkpoint and the
start of the next.
"""

from __future__ import annotations

# SciPy is imported in functions: it takes longer to load than all laws that do without it.
from dataclasses import dataclass
from typing import Any

import numpy as np

from physics._bounds import Probability
from physics._search import smallest_positive
from physics.law import Array, NonNegative, Positive, Values, law, require

__all__ = [
    "ExpectedRun",
    "FirstOrderWaste",
    "WallTimeShares",
    "daly_first_order_interval_s",
    "daly_interval_s",
    "ettr",
    "expected_run",
    "first_order_waste",
    "mtbf_for_ettr_s",
    "optimal_interval_s",
    "restart_for_ettr_s",
    "wall_time_shares",
    "young_interval_s",
]


@dataclass(frozen=True)
class ExpectedRun:
    """What a job of a given length comes to, in expectation."""

    wall_s: Values
    #: Useful time over wall time.
    ettr: Values
    failures: Values
    checkpoints: Values
    interval_s: Values


@dataclass(frozen=True)
class WallTimeShares:
    """Where the wall time of a long job goes, in expectation. The five shares sum to 1."""

    #: The effective training time ratio (ETTR).
    useful_share: Values
    checkpoint_share: Values
    #: Work lost since the last checkpoint, done again.
    rework_share: Values
    restart_share: Values
    queue_wait_share: Values
    interval_s: Values


@dataclass(frozen=True)
class FirstOrderWaste:
    """What checkpoints and lost work cost, in proportion to useful time."""

    checkpoint_share: Values
    rework_share: Values
    total_share: Values


@law
def young_interval_s(*, checkpoint_s: NonNegative, system_mtbf_s: Positive) -> Values:
    """Return Young's checkpoint interval, s: ``τ = √(2 δ M)``. Shapes broadcast.

    Valid for δ well below M: the time to train is 0.005 % above the least possible at δ = M / 200,
    0.5 % at M / 10 and 14 % at M. Source: Young 1974.
    """
    return np.sqrt(2.0 * checkpoint_s * system_mtbf_s)


@law
def daly_first_order_interval_s(
    *, checkpoint_s: NonNegative, restart_s: NonNegative, system_mtbf_s: Positive
) -> Values:
    """Return Daly's first-order checkpoint interval, s: ``τ = √(2 δ (M + R))``. Shapes broadcast.

    Valid for δ and R well below M. R is in it by the approximation only: the exact optimum does
    not depend on R, because no interval changes how often one restarts. Source: Daly 2006, first
    model, in the form of Herault and Robert 2015 (whose period adds δ).
    """
    return np.sqrt(2.0 * checkpoint_s * (system_mtbf_s + restart_s))


@law
def daly_interval_s(*, checkpoint_s: NonNegative, system_mtbf_s: Positive) -> Values:
    """Return Daly's higher-order interval, s: ``τ = √(2δM) [1 + ⅓ √(δ/2M) + (δ/2M) / 9] - δ``.

    For δ < 2M; from there on ``τ = M``. Shapes broadcast. The interval is within 0.04 % of the
    optimum for δ up to M / 10, within 6 % for any; the time to train within 0.2 %. Source: Daly
    2006.
    """
    ratio = np.minimum(checkpoint_s / (2.0 * system_mtbf_s), 1.0)
    factor = 1.0 + np.sqrt(ratio) / 3.0 + ratio / 9.0
    estimate = np.sqrt(2.0 * checkpoint_s * system_mtbf_s) * factor - checkpoint_s
    return np.where(ratio < 1.0, estimate, system_mtbf_s)


@law
def optimal_interval_s(*, checkpoint_s: NonNegative, system_mtbf_s: Positive) -> Values:
    """Return the interval of least expected time, s: ``τ = M [1 + W0(-exp(-1 - δ / M))]``.

    W0 is the principal branch of Lambert's function; the minimum of :func:`expected_run` over τ,
    where ``e^((τ+δ)/M) (τ/M - 1) = -1``. Depends neither on R nor on D. From 0 at δ = 0 to M at
    δ ≫ M. Shapes broadcast. Exact for a constant failure rate. Source: Daly 2006, equation of the
    optimum; solved by Lambert's function in Bougeret et al. 2011.
    """
    return _optimum(checkpoint_s, system_mtbf_s)


@law
def first_order_waste(
    *, checkpoint_s: NonNegative, system_mtbf_s: Positive, interval_s: Positive
) -> FirstOrderWaste:
    """Return the waste of an interval to first order: ``δ/τ + τ/2M``, of useful time.

    A checkpoint each τ, and half an interval lost at each failure. Least at
    :func:`young_interval_s`, where both parts are ``√(δ/2M)``. Shapes broadcast. Valid for δ and τ
    well below M, and not a share of the wall time: over 1 where nothing would get done.
    :func:`wall_time_shares` is exact, and knows restarts. Source: Young 1974.
    """
    checkpoint = checkpoint_s / interval_s
    rework = interval_s / (2.0 * system_mtbf_s)
    return FirstOrderWaste(checkpoint, rework, checkpoint + rework)


@law
def wall_time_shares(
    *,
    checkpoint_s: NonNegative,
    restart_s: NonNegative,
    system_mtbf_s: Positive,
    interval_s: Positive | None = None,
    queue_wait_s: NonNegative = 0.0,
) -> WallTimeShares:
    """Return where a long job's wall time goes, as shares of it.

    With ``a = (τ + δ) / M``: ``useful = τ/(τ+δ) · a/(e^a - 1) · e^(-R/M) · M/(M+D)``, checkpoint
    ``δ/τ`` of that, ``rework = [1 - a/(e^a - 1)] e^(-R/M) M/(M+D)``,
    ``restart = (1 - e^(-R/M)) M/(M+D)``, ``queue wait = D/(M+D)``. Without ``interval_s`` the
    optimal one is taken. Shapes broadcast.

    Exact for a constant rate while the job holds its nodes: also checkpoints and restarts fail,
    and a failed restart waits in the queue again. Checkpoints block (see ``checkpoint`` for those
    that do not). Source: Daly 2006; Bougeret et al. 2011.
    """
    interval = _interval(interval_s, checkpoint_s, system_mtbf_s)
    return _shares(interval, checkpoint_s, restart_s, system_mtbf_s, queue_wait_s)


@law
def ettr(
    *,
    checkpoint_s: NonNegative,
    restart_s: NonNegative,
    system_mtbf_s: Positive,
    interval_s: Positive | None = None,
    queue_wait_s: NonNegative = 0.0,
) -> Values:
    """Return the effective training time ratio: useful time over expected wall time.

    ``τ e^(-R/M) / [(M + D) (e^((τ+δ)/M) - 1)]``; 1 - ETTR is the overhead of an interval. The
    ``useful_share`` of :func:`wall_time_shares`, which says the rest. Shapes broadcast. The name
    is that of Kokolis et al. 2025.
    """
    interval = _interval(interval_s, checkpoint_s, system_mtbf_s)
    return _shares(interval, checkpoint_s, restart_s, system_mtbf_s, queue_wait_s).useful_share


@law
def expected_run(
    *,
    work_s: Positive,
    checkpoint_s: NonNegative,
    restart_s: NonNegative,
    system_mtbf_s: Positive,
    interval_s: Positive | None = None,
    queue_wait_s: NonNegative = 0.0,
) -> ExpectedRun:
    """Return the expected time to train for ``work_s`` of useful time, and what it is made of.

    Each part of length τ (the last is what remains of the work) ends with a checkpoint and takes
    ``e^(R/M) (M + D) (e^((τ+δ)/M) - 1)``; failures are ``wall / (M + D)``. Without ``interval_s``
    the optimal one is taken. Shapes broadcast; a time beyond the range of floats is infinite.

    Valid as :func:`wall_time_shares`. The first start is not counted. Source: Daly 2006; Bougeret
    et al. 2011.
    """
    interval = _interval(interval_s, checkpoint_s, system_mtbf_s)
    require(interval > 0.0, "checkpoint_s", "above 0 where interval_s is left out")
    # The nudge keeps rounding from making a tiny last part with a checkpoint of its own.
    parts = np.maximum(np.ceil(work_s / interval * (1.0 - 1e-12)), 1.0)
    last = work_s - (parts - 1.0) * interval
    costs = checkpoint_s, restart_s, system_mtbf_s, queue_wait_s
    full_s = np.where(parts > 1.0, _part_s(interval, *costs), 0.0)
    wall_s = (parts - 1.0) * full_s + _part_s(last, *costs)
    return ExpectedRun(
        wall_s=wall_s,
        ettr=work_s / wall_s,
        failures=wall_s / (system_mtbf_s + queue_wait_s),
        checkpoints=parts,
        interval_s=interval,
    )


@law
def restart_for_ettr_s(
    *,
    target_ettr: Probability,
    checkpoint_s: NonNegative,
    system_mtbf_s: Positive,
    interval_s: Positive | None = None,
    queue_wait_s: NonNegative = 0.0,
) -> Values:
    """Return the longest restart that still gives an ETTR, s: ``R = M ln(ETTR(R = 0) / ETTR)``.

    The inverse of :func:`ettr`; a target above ETTR(R = 0) is refused, since no restart is that
    quick. Shapes broadcast.
    """
    interval = _interval(interval_s, checkpoint_s, system_mtbf_s)
    zero = np.zeros(())
    best = _shares(interval, checkpoint_s, zero, system_mtbf_s, queue_wait_s).useful_share
    require(np.less_equal(target_ettr, best), "target_ettr", "at most what a restart of 0 s gives")
    return system_mtbf_s * np.log(best / target_ettr)


@law
def mtbf_for_ettr_s(
    *,
    target_ettr: Probability,
    checkpoint_s: Positive,
    restart_s: NonNegative,
    interval_s: Positive | None = None,
    queue_wait_s: NonNegative = 0.0,
) -> Values:
    """Return the system MTBF that an ETTR needs, s: the M at which ``ettr(M) = target``.

    Found by bisection (ETTR rises with M). With a given ``interval_s`` the target must be below
    ``τ / (τ + δ)``, which no MTBF passes; without it, each M has its optimal interval. Shapes
    broadcast.
    """
    if interval_s is not None:
        limit = interval_s / (interval_s + checkpoint_s)
        require(
            np.less(target_ettr, limit), "target_ettr", "below interval / (interval + checkpoint)"
        )

    def reached(mtbf_s: Array) -> Any:
        interval = _interval(interval_s, checkpoint_s, mtbf_s)
        share = _shares(interval, checkpoint_s, restart_s, mtbf_s, queue_wait_s).useful_share
        return share >= target_ettr

    scale = checkpoint_s + restart_s + queue_wait_s + (0.0 if interval_s is None else interval_s)
    scale = np.broadcast_arrays(scale, target_ettr)[0]
    return smallest_positive(reached, scale * 1e-40, scale * 1e40)


def _optimum(checkpoint_s: Any, mtbf_s: Any) -> Array:
    from scipy.special import lambertw

    ratio = checkpoint_s / mtbf_s
    root = np.sqrt(-2.0 * np.expm1(-ratio))
    # At W's branch point (δ ≪ M) its argument loses the digits that matter: its series instead.
    near = root < 0.01
    terms = (1.0, -1 / 3, 11 / 72, -43 / 540, 769 / 17280, -221 / 8505)
    series = sum(term * root**power for power, term in enumerate(terms, start=1))
    far = 1.0 + lambertw(-np.exp(-1.0 - ratio)).real
    return np.asarray(mtbf_s * np.where(near, series, far))


def _interval(interval_s: Values | None, checkpoint_s: Any, mtbf_s: Any) -> Values:
    return _optimum(checkpoint_s, mtbf_s) if interval_s is None else interval_s


def _shares(
    interval_s: Any, checkpoint_s: Any, restart_s: Any, mtbf_s: Any, wait_s: Any
) -> WallTimeShares:
    from scipy.special import exprel  # (e^x - 1) / x, also at 0

    period = interval_s + checkpoint_s
    working = np.where(period > 0.0, interval_s / np.where(period > 0.0, period, 1.0), 1.0)
    holding = mtbf_s / (mtbf_s + wait_s)
    running = holding * np.exp(-restart_s / mtbf_s)
    kept = running / exprel(period / mtbf_s)
    return WallTimeShares(
        useful_share=kept * working,
        checkpoint_share=kept * (1.0 - working),
        rework_share=running - kept,
        restart_share=holding * -np.expm1(-restart_s / mtbf_s),
        queue_wait_share=wait_s / (mtbf_s + wait_s),
        interval_s=interval_s,
    )


def _part_s(length_s: Any, checkpoint_s: Any, restart_s: Any, mtbf_s: Any, wait_s: Any) -> Array:
    """Return the expected time of work between two checkpoints, and of the second of them."""
    from scipy.special import exprel

    period = length_s + checkpoint_s
    with np.errstate(over="ignore"):
        failing = np.exp(restart_s / mtbf_s) * (1.0 + wait_s / mtbf_s)
        return np.asarray(period * exprel(period / mtbf_s) * failing)
