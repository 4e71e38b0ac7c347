"""How much of its walltime a job runs for, drawn from what others like it have run for.

Those alike are looked for from close to far: of the same user, size and walltime; of the same
project and walltime; of the same walltime. The more are known that are close, the less the others
count, and where nobody is known any share is as likely as any other. Of those that still run it is
known that they ran for so long at least: without them only the short ones of late would count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Like", "Ran", "RunRecord", "size_class"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Group: TypeAlias = tuple[str | int, ...]

#: So many that are close count as much as all that are further away.
_WEIGHT_OF_OTHERS = 4.0
#: The least GPUs of each class of sizes but the first.
_SIZES = (2, 8, 16)
_LEVELS = 3


def size_class(gpus: int) -> int:
    """Return the class of sizes of a job: 0 for one GPU, then 2 to 7, 8 to 15, 16 and more."""
    return sum(gpus >= least for least in _SIZES)


@dataclass(frozen=True, slots=True)
class Like:
    """What makes jobs alike."""

    project: str
    user: str
    gpus: int
    walltime_s: float

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups that it is of, from the closest. Walltimes count by factors of two."""
        walltime = math.floor(math.log2(max(self.walltime_s, 1.0)))
        return (
            (self.project, self.user, size_class(self.gpus), walltime),
            (self.project, walltime),
            (walltime,),
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """A job that ran for a share of its walltime; ``is_over``: it has ended, else it still runs."""

    like: Like
    share: float
    is_over: bool = True


class RunRecord:
    """The shares of their walltime that jobs run for, by what makes them alike. A value.

    Of each group it has the distribution by the estimator of Kaplan and Meier (1958).
    """

    def __init__(self, ran: Iterable[Ran]) -> None:
        groups: dict[Group, list[tuple[float, bool]]] = defaultdict(list)
        known: dict[Like, tuple[Group, ...]] = {}
        for each in ran:
            if each.like not in known:
                known[each.like] = each.like.groups
            for group in known[each.like]:
                groups[group].append((min(each.share, 1.0), each.is_over))
        #: of each group its place in those below; 0 is a group of which nothing is known
        self._number = {group: place for place, group in enumerate(groups, start=1)}
        found = [_distribution([]), *map(_distribution, groups.values())]
        #: shares of all groups one after the other, and how many of 1 ended by then, plus its place
        self._shares = np.concatenate([*(shares for shares, _ in found), [1.0]])
        upto = [upto + place for place, (_, upto) in enumerate(found)]
        self._upto = np.concatenate([*upto, [np.inf]])
        self._begin = np.cumsum([0, *(len(shares) for shares, _ in found)])

    def draw(
        self, jobs: Sequence[Like], ran: Floats, rng: np.random.Generator, draws: int
    ) -> Floats:
        """Return shares of their walltime that jobs run for: draws by jobs.

        ``ran``: the shares that they have run for already; the rest is beyond them.
        """
        group = self._groups(jobs)
        first = self._places(group, ran)
        count = self._begin[group + 1] - first
        which, at = _spread(rng, draws, len(jobs)), _spread(rng, draws, len(jobs))
        level = self._levels(which, count)
        is_known, columns = level < _LEVELS, np.arange(len(jobs))
        chosen = np.where(is_known, group[np.minimum(level, _LEVELS - 1), columns], 0)
        begin = np.where(is_known, first[np.minimum(level, _LEVELS - 1), columns], 0)
        # Of those who ran beyond all that ended nothing is known: these count as the others do.
        gone = np.where(begin > self._begin[chosen], self._upto[begin - 1], chosen)
        last = np.where(is_known, self._upto[self._begin[chosen + 1] - 1], chosen)
        place = np.searchsorted(self._upto, gone + at * (last - gone), side="left")
        return np.where(is_known, self._shares[place], ran + (1.0 - ran) * at)

    def _groups(self, jobs: Sequence[Like]) -> Ints:
        """Return the number of each group of each job, 0 for those unknown: levels by jobs."""
        numbers: dict[Like, list[int]] = {}
        for each in jobs:
            if each not in numbers:
                numbers[each] = [self._number.get(group, 0) for group in each.groups]
        found = [numbers[each] for each in jobs]
        return np.array(found, dtype=np.int64).reshape(-1, _LEVELS).T

    def _places(self, group: Ints, ran: Floats) -> Ints:
        """Return the first place of a share beyond those that jobs ran for: levels by jobs."""
        begin, end = self._begin[group], self._begin[group + 1]
        found = begin.copy()
        for level, job in zip(*np.nonzero((ran > 0.0) & (end > begin)), strict=True):
            shares = self._shares[begin[level, job] : end[level, job]]
            found[level, job] += np.searchsorted(shares, ran[job], side="right")
        return found

    @staticmethod
    def _levels(which: Floats, count: Ints) -> Ints:
        """Return from which level each draw comes, the last for none: draws by jobs."""
        close = count / (count + _WEIGHT_OF_OTHERS)
        open_ = np.cumprod(np.concatenate([np.ones((1, count.shape[1])), 1.0 - close]), axis=0)
        upto = 1.0 - open_[1:]
        found: Ints = (which[None] >= upto[:, None, :]).sum(axis=0)
        return found


def _distribution(ran: Sequence[tuple[float, bool]]) -> tuple[Floats, Floats]:
    """Return the shares at which jobs ended, in order, and how many of 1 had by then."""
    ordered = sorted(ran, key=lambda each: (each[0], not each[1]))
    is_over = np.array([each[1] for each in ordered], dtype=np.bool_)
    at_risk = np.arange(len(ordered), 0, -1)
    kept: Floats = np.where(is_over, 1.0 - 1.0 / at_risk, 1.0)
    left: Floats = kept.cumprod()
    shares = np.array([each[0] for each in ordered], dtype=np.float64)
    return shares[is_over], (1.0 - left)[is_over]


def _spread(rng: np.random.Generator, draws: int, jobs: int) -> Floats:
    """Return numbers from 0 to 1, evenly spread over the draws of each job: draws by jobs."""
    steps = np.argsort(rng.random((draws, jobs)), axis=0)
    found: Floats = (steps + rng.random((draws, jobs))) / draws
    return found
