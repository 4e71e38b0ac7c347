"""Ranks that hold their gang back, by what its loop reports of the slowest one. Pure.

Each report of a machine says how much longer the steps of its slowest rank take than those of the
median rank, without waiting for others, and which rank that is where it is a tenth or more. Any
rank is the slowest for a moment. One that is so nearly all the time holds the gang back, since the
others wait for it in each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["STANDS_OUT", "WINDOW", "Straggler", "stragglers"]

Floats = NDArray[np.float64]

#: The rule, as it was before anything was judged by it. So many reports are looked at together;
#: a rank that stands out takes at least so much longer than the median rank; and it holds the gang
#: back where it does in so much of the reports of its machine.
WINDOW, STANDS_OUT = 30, 1.1
_NEARLY_ALWAYS = 0.8
#: A window of fewer reports than this share of a whole one says nothing.
_LEAST_OF_WINDOW = 0.5


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that held its gang back, from ``since`` to ``until``, Unix s.

    ``slower`` is how much longer its steps took than the median rank's, such as 1.4, the median of
    its reports. ``windows`` of ``of`` windows show it; ``is_last``: the last one does.
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


def stragglers(
    at: Floats, slowest: Floats, spread: Floats, machines: int = 1
) -> tuple[Straggler, ...]:
    """Return the ranks that held a gang back, the one that does so most first.

    Arrays by report in order of time: when, Unix s, the slowest rank and how much longer its steps
    took, NaN where none is told. ``machines`` is how many report, each of its own ranks in turn.
    """
    of = 0
    found: dict[int, list[tuple[float, float, float]]] = {}
    last: set[int] = set()
    for here in _windows(at.size, machines):
        of += 1
        last = set()
        for rank in _named(slowest[here], spread[here], machines):
            slower = float(np.median(spread[here][slowest[here] == rank]))
            found.setdefault(rank, []).append((at[here][0], at[here][-1], slower))
            last.add(rank)
    held = [
        Straggler(
            rank, float(np.median([each[2] for each in shown])), float(shown[0][0]),
            float(shown[-1][1]), len(shown), of, rank in last,
        )
        for rank, shown in found.items()
    ]  # fmt: skip
    return tuple(sorted(held, key=lambda each: (-each.windows * each.lost_share, each.rank)))


def _windows(reports: int, machines: int) -> Iterator[slice]:
    """Yield the windows of so many reports, the newest of them whole."""
    size = WINDOW * machines
    first = reports % size
    if first >= _LEAST_OF_WINDOW * size:
        yield slice(0, first)
    for begin in range(first, reports, size):
        yield slice(begin, begin + size)


def _named(slowest: Floats, spread: Floats, machines: int) -> list[int]:
    """Return the ranks that stand out in nearly all reports of their machine."""
    told = slowest[(spread >= STANDS_OUT) & ~np.isnan(slowest)]
    ranks, counts = np.unique(told, return_counts=True)
    return [int(each) for each in ranks[counts * machines >= _NEARLY_ALWAYS * slowest.size]]
