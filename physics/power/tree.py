"""Power of nodes and racks, and the feeds that they hang on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from physics._bounds import PositiveShare
from physics.errors import UnfittableError
from physics.law import Array, Count, Flags, NonNegative, Series, Share, Values, law, require

#: A reading this many robust standard deviations off its line has no say in it (Tukey's bisquare:
#: 95 % efficient on Gaussian noise).
OUTLIER_SPREADS = 4.685
#: Standard deviation of a Gaussian over its median absolute deviation.
_SPREAD_PER_MAD = 1.4826


@dataclass(frozen=True)
class HostCurve:
    """Host power = ``host_idle_w + host_share · GPUs``: what node meters show beside the GPUs.

    Errors are one standard error; ``spread_w`` is the robust standard deviation of the readings
    from the line, ``left_out`` how many readings have no say in it.
    """

    host_idle_w: Values
    host_share: Values
    host_idle_error_w: Values
    host_share_error: Values
    spread_w: Values
    left_out: Values


@dataclass(frozen=True)
class Failover:
    """What each feed of a pair carries alone, and what it has left then (negative: too little)."""

    survivor_a_w: Values
    survivor_b_w: Values
    margin_a_w: Values
    margin_b_w: Values
    holds: bool | Flags


@law
def node_power_w(
    *,
    gpus_w: NonNegative,
    host_idle_w: NonNegative,
    host_rated_w: NonNegative,
    host_load: Share,
    psu_efficiency: PositiveShare = 1.0,
) -> Values:
    """Return the power of a node, W: ``(GPUs + idle + (rated - idle) · load) / η``.

    ``gpus_w`` is the sum over its GPUs; the host (CPUs, memory, NICs, fans) goes linearly from
    ``host_idle_w`` to ``host_rated_w`` with ``host_load``, 0 to 1. ``psu_efficiency`` η is 1 where
    the host's figures were measured at the wall. All broadcast.
    """
    require(np.greater_equal(host_rated_w, host_idle_w), "host_rated_w", "at least host_idle_w")
    host_w = host_idle_w + (host_rated_w - host_idle_w) * host_load
    return (gpus_w + host_w) / psu_efficiency


@law
def host_power_w(
    *, gpus_w: NonNegative, host_idle_w: NonNegative, host_share: NonNegative
) -> Values:
    """Return the power of a node beside its GPUs, W: ``P_idle + share · GPUs``.

    ``host_share`` is watts of host for each watt of GPUs: fans, conversion losses, and the CPUs
    that feed them. fit_host finds both from measurements. All broadcast.
    """
    return host_idle_w + host_share * gpus_w


@law
def fit_host(*, gpus_w: Series, node_w: Series) -> HostCurve:
    """Fit ``node - GPUs = P_idle + share · GPUs``, W, to readings of the same moments; robust.

    Two series of one length: the sum over the node's GPUs, and its meter. Iterated least squares
    with Tukey's bisquare, so that zeros, spikes and meters that lag (up to about a third of the
    readings) have no say. Errors take the readings for independent. Raises UnfittableError with
    fewer than three readings, or where the GPUs' power hardly moves. Source: Holland and Welsch
    1977.
    """
    if len(gpus_w) < 3:
        raise UnfittableError("a line and its error need at least three readings")
    host_w = node_w - gpus_w
    weight, line = _robust_line(gpus_w, host_w)
    off_w = host_w - line[0] - line[1] * gpus_w
    kept = weight > 0.0
    variance = (weight @ off_w**2) / max(kept.sum() - 2.0, 1.0)
    mean_w = weight @ gpus_w / weight.sum()
    moved = weight @ (gpus_w - mean_w) ** 2
    return HostCurve(
        host_idle_w=line[0],
        host_share=line[1],
        host_idle_error_w=np.sqrt(variance * (1.0 / weight.sum() + mean_w**2 / moved)),
        host_share_error=np.sqrt(variance / moved),
        spread_w=_spread(off_w[kept]),
        left_out=int(np.count_nonzero(~kept)),
    )


@law
def rack_power_w(
    *,
    node_w: NonNegative,
    nodes: Count,
    others_w: NonNegative = 0.0,
    efficiency: PositiveShare = 1.0,
) -> Values:
    """Return the power of a rack of like nodes, W: ``(nodes · P_node + others) / η``.

    ``others_w`` is what else it holds (switches, pumps, controllers), ``efficiency`` η that of its
    power shelf. All broadcast. Nodes that do not peak together draw less than nodes at their peak.
    """
    return (nodes * node_w + others_w) / efficiency


@law
def usable_w(*, capacity_w: NonNegative, derating: Share) -> Values:
    """Return what may be drawn without end, W: ``capacity · derating``.

    ``derating`` is a share: 0.8 for continuous loads on breakers rated for 80 % (NEC 210.20 and
    215.3: 125 % of the continuous load), 1 where the capacity is already that. All broadcast.
    """
    return capacity_w * derating


@law
def headroom_w(*, load_w: NonNegative, capacity_w: NonNegative, derating: Share = 1.0) -> Values:
    """Return what is left, W: ``capacity · derating - load``; negative where the load is over it.

    All broadcast.
    """
    return capacity_w * derating - load_w


@law
def failover(
    *,
    load_a_w: NonNegative,
    load_b_w: NonNegative,
    capacity_a_w: NonNegative,
    capacity_b_w: NonNegative,
    derating: Share = 1.0,
    transferred: Share = 1.0,
) -> Failover:
    """Return what each feed of an A/B pair carries when the other fails, W.

    ``survivor_a = load_a + transferred · load_b``, its margin ``capacity_a · derating`` less that;
    B alike. ``transferred`` is the share of a feed's load that moves over: 1 where all power
    supplies have a cord in each feed, less where some have one only. The pair holds where neither
    margin is negative. Valid for loads of constant power, in the steady state after the transfer:
    inrush and the time curve of breakers are not in it. All broadcast.
    """
    survivor_a_w = load_a_w + transferred * load_b_w
    survivor_b_w = load_b_w + transferred * load_a_w
    margin_a_w = capacity_a_w * derating - survivor_a_w
    margin_b_w = capacity_b_w * derating - survivor_b_w
    holds = np.asarray(np.minimum(margin_a_w, margin_b_w) >= 0.0)
    return Failover(survivor_a_w, survivor_b_w, margin_a_w, margin_b_w, holds)


@law
def pair_budget_w(
    *, capacity_a_w: NonNegative, capacity_b_w: NonNegative, derating: Share = 1.0
) -> Values:
    """Return the most that both feeds of a pair may carry together so that either can alone, W.

    ``min(capacity_a, capacity_b) · derating``, all load being on both feeds. All broadcast.
    """
    return np.minimum(capacity_a_w, capacity_b_w) * derating


def _robust_line(x: Array, y: Array) -> tuple[Array, tuple[float, float]]:
    """Return the weights of the readings, and the line ``y = a + b · x`` through them."""
    line = _median_line(x, y)
    weight = np.ones_like(x)
    for _ in range(30):
        off = y - line[0] - line[1] * x
        # Without any noise the spread is 0, and rounding must not count as an outlier.
        reach = OUTLIER_SPREADS * max(_spread(off), 1e-9 * np.abs(y).max(), 1e-300)
        weight = np.maximum(1.0 - (off / reach) ** 2, 0.0) ** 2
        line = _line(x, y, weight)
    return weight, line


def _median_line(x: Array, y: Array) -> tuple[float, float]:
    """Return a first line that outliers do not move: through the medians of two halves of x."""
    low, high = np.quantile(x, [0.05, 0.95])
    if high - low <= 1e-9 * np.abs(x).max():
        raise UnfittableError("the GPUs' power moves in too few readings")
    upper = x > (low + high) / 2.0
    rise = np.median(y[upper]) - np.median(y[~upper])
    slope = rise / (np.median(x[upper]) - np.median(x[~upper]))
    return float(np.median(y - slope * x)), float(slope)


def _line(x: Array, y: Array, weight: Array) -> tuple[float, float]:
    mean_x, mean_y = weight @ x / weight.sum(), weight @ y / weight.sum()
    off = weight * (x - mean_x)
    moved = off @ (x - mean_x)
    if moved <= 0.0:
        raise UnfittableError("but for outliers, the GPUs' power never moves")
    slope = off @ y / moved
    return float(mean_y - slope * mean_x), float(slope)


def _spread(off: Array) -> float:
    return float(_SPREAD_PER_MAD * np.median(np.abs(off - np.median(off))))
