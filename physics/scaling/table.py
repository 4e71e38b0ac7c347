"""Scaling efficiency as a table, and how many GPUs a rate takes by it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from physics._bounds import AtLeastOne, PositiveShare
from physics._search import smallest_whole
from physics.errors import ImpossibleArgumentError
from physics.law import Array, Count, Flags, Positive, Share, Values, law, require

__all__ = [
    "TEXTBOOK_TABLE_5",
    "EfficiencyTable",
    "efficiency_at",
    "gpus_for_rate",
    "gpus_worth",
    "marginal_share",
]

#: Makes a GPU count that exactly gives a rate pass for enough in spite of rounding.
_ROUNDING = 1e-12
#: No search looks at more GPUs than this; whole numbers are exact far above it.
_MOST_GPUS = 2.0**40
_BEYOND = "unless loss_per_doubling says what is assumed beyond"


@dataclasses.dataclass(frozen=True)
class EfficiencyTable:
    """Scaling efficiency as data: at ``sizes`` (GPUs, rising) the ``efficiencies`` against one GPU.

    Between two sizes it is linear in log2 N. Under the first it goes to 1 at one GPU. Over the
    last the table says nothing: :func:`efficiency_at` wants ``loss_per_doubling`` there.
    """

    sizes: tuple[int, ...]
    efficiencies: tuple[float, ...]
    source: str

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, dtype=np.float64)
        efficiencies = np.asarray(self.efficiencies, dtype=np.float64)
        rising = bool(sizes.size and sizes[0] >= 1.0 and np.all(np.diff(sizes) > 0.0))
        if not (rising and sizes[-1] <= _MOST_GPUS and np.all(sizes % 1.0 == 0.0)):
            raise ImpossibleArgumentError("sizes", "whole numbers from 1 to 2**40, each the larger")
        if efficiencies.shape != sizes.shape:
            raise ImpossibleArgumentError("efficiencies", "as many as sizes")
        if not np.all((efficiencies > 0.0) & (efficiencies <= 1.0)):
            raise ImpossibleArgumentError("efficiencies", "above 0 and at most 1")

    @property
    def knots(self) -> tuple[Array, Array]:
        """The sizes and efficiencies, from one GPU on."""
        sizes, efficiencies = np.array(self.sizes, float), np.array(self.efficiencies, float)
        if sizes[0] == 1.0:
            return sizes, efficiencies
        return np.concatenate([[1.0], sizes]), np.concatenate([[1.0], efficiencies])


#: Data, not a law: no curve of Amdahl or Gunther goes through these four points.
TEXTBOOK_TABLE_5 = EfficiencyTable(
    sizes=(32, 256, 1024, 8192),
    efficiencies=(0.90, 0.70, 0.50, 0.35),
    source="Fleet Foundations, Table 5: empirical, well-optimized distributed training",
)


@law
def efficiency_at(
    *,
    gpus: Count,
    table: EfficiencyTable = TEXTBOOK_TABLE_5,
    loss_per_doubling: Share | None = None,
) -> Values:
    """Return the scaling efficiency at N GPUs by a table, linear in log2 N between its rows.

    Under the first row: linear to 1 at N = 1. Over the last row the table says nothing, so that
    ``gpus`` is refused there unless ``loss_per_doubling`` states what is assumed: the efficiency
    lost by each doubling from there on, ``max(0, η_last - loss · log2(N / N_last))``. The last two
    rows of :data:`TEXTBOOK_TABLE_5` lose 0.05 a doubling; 0 holds the last value.
    """
    within = loss_per_doubling is not None or np.less_equal(gpus, table.sizes[-1])
    require(within, "gpus", f"at most {table.sizes[-1]}, the last size of the table, {_BEYOND}")
    return _efficiency(table, gpus, loss_per_doubling)


@law
def gpus_for_rate(
    *,
    target_rate_flops: Positive,
    peak_flops: Positive,
    mfu: PositiveShare,
    goodput: PositiveShare,
    table: EfficiencyTable = TEXTBOOK_TABLE_5,
    loss_per_doubling: Share | None = None,
) -> Values:
    """Return the fewest GPUs whose effective rate reaches a target, FLOP/s.

    The smallest whole N with ``N · R_peak · MFU · η(N) · η_goodput ≥ target``; η by
    :func:`efficiency_at`. Refuses a target that no N of the table reaches, and names the most.
    """
    busy_gpus = np.divide(target_rate_flops, peak_flops * mfu * goodput)
    return _gpus_for(busy_gpus, table, loss_per_doubling, "target_rate_flops")


@law
def gpus_worth(
    *,
    gpus: Count,
    speedup: AtLeastOne,
    table: EfficiencyTable = TEXTBOOK_TABLE_5,
    loss_per_doubling: Share | None = None,
) -> Values:
    """Return how many added GPUs do what making the software ``speedup`` times faster does.

    The smallest whole ΔN with ``(N + ΔN) · η(N + ΔN) ≥ speedup · N · η(N)``. It is more than
    ``(speedup - 1) · N``, as added GPUs lower the efficiency of all.
    """
    efficiency = efficiency_at(gpus=gpus, table=table, loss_per_doubling=loss_per_doubling)
    reached = _gpus_for(speedup * gpus * efficiency, table, loss_per_doubling, "speedup")
    return np.maximum(reached - gpus, 0.0)


@law
def marginal_share(
    *,
    gpus: Count,
    added_gpus: Count = 1.0,
    table: EfficiencyTable = TEXTBOOK_TABLE_5,
    loss_per_doubling: Share | None = None,
) -> Values:
    """Return the share of an added GPU that does work: ``((N+Δ) η(N+Δ) - N η(N)) / Δ``.

    Less than η(N), as added GPUs lower the efficiency of all. Negative where they take more than
    they bring.
    """
    grown = gpus + added_gpus
    busy, grown_busy = (
        size * efficiency_at(gpus=size, table=table, loss_per_doubling=loss_per_doubling)
        for size in (gpus, grown)
    )
    return np.asarray((grown_busy - busy) / added_gpus)


def _efficiency(table: EfficiencyTable, gpus: Values, loss_per_doubling: Values | None) -> Array:
    sizes, efficiencies = table.knots
    inside = np.asarray(np.interp(np.log2(gpus), np.log2(sizes), efficiencies))
    if loss_per_doubling is None:
        return inside
    doublings = np.maximum(np.log2(gpus) - np.log2(sizes[-1]), 0.0)
    return np.asarray(np.maximum(inside - loss_per_doubling * doublings, 0.0))


def _gpus_for(
    busy_gpus: Values, table: EfficiencyTable, loss_per_doubling: Values | None, argument: str
) -> Array:
    """Return the smallest whole N with N · η(N) ≥ ``busy_gpus``; blame ``argument`` if none has."""
    wanted = np.asarray(busy_gpus) * (1.0 - _ROUNDING)

    def enough(gpus: Array) -> Flags:
        return gpus * _efficiency(table, gpus, loss_per_doubling) >= wanted

    rungs = _rungs(table)
    best = np.maximum.accumulate(rungs * _efficiency(table, rungs, None))
    rung = np.searchsorted(best, wanted)
    last = _last_useful(table, loss_per_doubling)
    above = np.concatenate([[0.0], rungs])[rung]
    up_to = np.where(rung < rungs.size, np.append(rungs, 0.0)[rung], last)
    above, up_to = np.broadcast_arrays(above, up_to)
    reachable = enough(up_to)
    advice = _BEYOND if loss_per_doubling is None else "beyond which more GPUs do less"
    require(reachable, argument, f"in reach of {np.min(last):.0f} GPUs, {advice}")
    return smallest_whole(enough, above=above, up_to=up_to)


def _rungs(table: EfficiencyTable) -> Array:
    """Return whole sizes between which N · η(N) only rises or only falls: knots and peaks."""
    sizes, efficiencies = table.knots
    doublings = np.log2(sizes)
    # Without a fall there is no peak inside; the smallest loss puts it beyond the next knot.
    loss = np.maximum(-np.diff(efficiencies) / np.diff(doublings), 1e-9)
    peaks = np.minimum(_peak_doublings(efficiencies[:-1], loss) + doublings[:-1], doublings[1:])
    peaks = np.exp2(np.maximum(peaks, doublings[:-1]))
    rungs = np.concatenate([sizes, np.floor(peaks), np.ceil(peaks)])
    return np.unique(np.clip(rungs, 1.0, sizes[-1]))


def _last_useful(table: EfficiencyTable, loss_per_doubling: Values | None) -> Array:
    """Return the size beyond which N · η(N) is not known, or falls for good."""
    last = float(table.sizes[-1])
    if loss_per_doubling is None:
        return np.asarray(last)
    loss = np.maximum(loss_per_doubling, 1e-9)
    doublings = np.clip(_peak_doublings(table.efficiencies[-1], loss), 0.0, 40.0)
    return np.floor(np.clip(last * np.exp2(doublings), last, _MOST_GPUS))


def _peak_doublings(efficiency: Values, loss_per_doubling: Values) -> Array:
    """Return how many doublings on ``N · (η - loss · log2 N)`` peaks, where η is that at N = 1."""
    return np.asarray(efficiency / loss_per_doubling - 1.0 / math.log(2.0))
