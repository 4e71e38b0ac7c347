"""Ranks that hold their gang back, by what its loop reports of the slowest one. Pure.

Each report of a machine says how much longer the steps of its slowest rank take than those of the
median rank, without waiting for others, and which rank that is where it is a tenth or more. Any
rank is the slowest for a moment. One that is so nearly all the time holds the gang back, since the
others wait for it in each step. So does one that falls behind by more than is usual for its gang,
as a model of the gang's earlier reports has it, again and again within a few minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["STANDS_OUT", "WINDOW", "Straggler", "Usual", "stragglers", "usual_of"]

Floats = NDArray[np.float64]

#: The rule, as it was before anything was judged by it. So many reports are looked at together;
#: a rank that stands out takes at least so much longer than the median rank; and it holds the gang
#: back where it does in so much of the reports of its machine.
WINDOW, STANDS_OUT = 30, 1.1
_NEARLY_ALWAYS = 0.8
#: Of the model: so many reports at least are what is usual; more than so many standard deviations
#: above the median are not, by robust estimates; and so unlikely are reports together, of one rank,
#: that name it where nothing is wrong: once in a year of a gang that reports each half minute.
_LEAST_USUAL, _DEVIATIONS, _BY_CHANCE = 2 * WINDOW, 4.0, 1e-6
_DEVIATION_OF_MAD = 1.4826
#: A window of fewer reports than this share of a whole one says nothing.
_LEAST_OF_WINDOW = 0.5


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that held its gang back, from ``since`` to ``until``, Unix s.

    ``slower`` is how much longer its steps took than the median rank's, such as 1.4, the median of
    its reports of that time. ``windows`` of ``of`` windows show it; ``is_last``: the last one does.
    """

    rank: int
    slower: float
    since: float
    until: float
    windows: int
    of: int
    is_last: bool

    @property
    def lost_share(self) -> float:
        """The share of the others' time in which they waited for it, while it held them back."""
        return 1.0 - 1.0 / self.slower


@dataclass(frozen=True, eq=False)
class Usual:
    """What is usual in a gang, fitted to reports from before.

    ``most`` is the largest spread that is. ``shares`` are those of reports, 0 to 1, in which each
    rank was the slowest by more, as far as any was, and ``of_others`` that of all other ranks.
    """

    most: float
    shares: Mapping[int, float]
    of_others: float


def usual_of(slowest: Floats, spread: Floats, machines: int = 1) -> Usual | None:
    """Return what is usual in a gang by its earlier reports, as in :func:`stragglers`.

    None: there are too few of them.
    """
    if spread.size < _LEAST_USUAL * machines:
        return None
    log_spread = np.log(spread)
    center = float(np.median(log_spread))
    deviation = _DEVIATION_OF_MAD * float(np.median(np.abs(log_spread - center)))
    most = max(float(np.exp(center + _DEVIATIONS * deviation)), STANDS_OUT)
    ranks, counts = np.unique(slowest[_beyond(slowest, spread, most)], return_counts=True)
    # As if each rank had been beyond once and within once more: none is never.
    shares = (counts * machines + 1.0) / (spread.size + 2.0)
    by_rank = {int(rank): float(share) for rank, share in zip(ranks, shares, strict=True)}
    return Usual(most, by_rank, 1.0 / (spread.size + 2.0))


def stragglers(
    at: Floats, slowest: Floats, spread: Floats, machines: int = 1, usual: Usual | None = None
) -> tuple[Straggler, ...]:
    """Return the ranks that held a gang back, the one that does so most first.

    Arrays by report in order of time: when, Unix s, the slowest rank and how much longer its steps
    took, NaN where none is told. ``machines`` is how many report, each of its own ranks in turn.
    Without what is ``usual``, only who is slow nearly all the time is named.
    """
    of = 0
    found: dict[int, list[tuple[float, float, float]]] = {}
    last: set[int] = set()
    for here in _windows(at.size, machines):
        of += 1
        held = _held(slowest[here], spread[here], machines, usual)
        last = set(held)
        for rank, during in held.items():
            times, is_rank = at[here][during], slowest[here][during] == rank
            slower = float(np.median(spread[here][during][is_rank]))
            found.setdefault(rank, []).append((times[0], times[-1], slower))
    held_back = [
        Straggler(
            rank, float(np.median([each[2] for each in shown])), float(shown[0][0]),
            float(shown[-1][1]), len(shown), of, rank in last,
        )
        for rank, shown in found.items()
    ]  # fmt: skip
    return tuple(sorted(held_back, key=lambda each: (-each.windows * each.lost_share, each.rank)))


def _windows(reports: int, machines: int) -> Iterator[slice]:
    """Yield the windows of so many reports, the newest of them whole."""
    size = WINDOW * machines
    first = reports % size
    if first >= _LEAST_OF_WINDOW * size:
        yield slice(0, first)
    for begin in range(first, reports, size):
        yield slice(begin, begin + size)


def _held(slowest: Floats, spread: Floats, machines: int, usual: Usual | None) -> dict[int, slice]:
    """Return the ranks that hold a gang back in a window, and in which of its reports."""
    lately = {} if usual is None else _unusual(slowest, spread, machines, usual)
    return lately | dict.fromkeys(_nearly_always(slowest, spread, machines), slice(None))


def _nearly_always(slowest: Floats, spread: Floats, machines: int) -> list[int]:
    """Return the ranks that stand out in nearly all reports of their machine."""
    told = slowest[_beyond(slowest, spread, STANDS_OUT)]
    ranks, counts = np.unique(told, return_counts=True)
    return [int(each) for each in ranks[counts * machines >= _NEARLY_ALWAYS * slowest.size]]


def _unusual(slowest: Floats, spread: Floats, machines: int, usual: Usual) -> dict[int, slice]:
    """Return the ranks that are beyond what is usual too often for chance, and from when to when.

    A cumulative sum of log likelihood ratios by rank (Page): that it is beyond nearly always,
    over that it is as often as before. Reports of other machines say nothing of a rank, so what
    speaks against it counts for one of ``machines``.
    """
    beyond = _beyond(slowest, spread, usual.most)
    found = {}
    for rank in map(int, np.unique(slowest[beyond])):
        share = usual.shares.get(rank, usual.of_others)
        if share >= _NEARLY_ALWAYS:
            continue
        is_rank = beyond & (slowest == rank)
        against = np.log((1.0 - _NEARLY_ALWAYS) / (1.0 - share)) / machines
        added = np.cumsum(np.where(is_rank, np.log(_NEARLY_ALWAYS / share), against))
        risen = added - np.minimum.accumulate(np.r_[0.0, added[:-1]])
        if risen.max() >= -np.log(_BY_CHANCE):
            places = np.flatnonzero(is_rank)
            found[rank] = slice(int(places[0]), int(places[-1]) + 1)
    return found


def _beyond(slowest: Floats, spread: Floats, most: float) -> NDArray[np.bool_]:
    """Say in which reports a rank is named that is behind by ``most`` at least."""
    beyond: NDArray[np.bool_] = (spread >= most) & ~np.isnan(slowest)
    return beyond
