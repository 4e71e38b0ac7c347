"""How far ranges of starts that were drawn have been off, and by how much the next ones are moved.

Draws know how jobs end. Who comes later they do not know, nor what places and budgets keep from
jobs, and what they get wrong they get wrong for many jobs at once. So each end of a range is moved
by what the last starts asked for: conformal quantile regression (Romano, Patterson and Candès,
2019), on logarithms, by class of sizes, with the last starts alone and what was usual elsewhere
beside them. Who still waits counts with what has passed already, or ranges would follow those who
were lucky.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.cycle.ends import size_class

__all__ = ["SHARES", "Calibration", "Estimate", "Given"]

Floats = NDArray[np.float64]

#: Shares of starts that are to come before the low end, the middle and the high end of a range.
SHARES = (0.1, 0.5, 0.9)
#: Waits shorter than this are alike, s.
_SHORT_S = 30.0
#: Of so many of the last starts errors are kept.
_KEPT = 200
#: Of jobs of a class that were told within so long a time, s, so many count: what nobody could know
#: puts all of them off alike, and a burst of a thousand says no more than a few of them.
_TOGETHER_S = 300.0
_MOST_TOGETHER = 3
#: Starts of jobs of another size count as so much of one.
_OF_OTHERS = 0.3
#: Errors are logarithms of ratios, by the width of what was drawn (one, too) and this.
_BASE = 0.5
#: The ends of a range are moved by so much of that where nothing is known, …
_USUAL = np.array([-0.2, 0.0, 0.2])
#: … which counts as so many starts.
_USUAL_STARTS = 30.0
#: Errors beyond this are not told apart.
_MOST = 2.0
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Given:
    """A range that was drawn for a job: 10, 50 and 90 % of its starts in all draws, s from now."""

    gpus: int
    low_s: float
    middle_s: float
    high_s: float

    @property
    def scale(self) -> float:
        """By how much more it is off than one in which all draws agree."""
        return _BASE + math.log((self.high_s + _SHORT_S) / (self.low_s + _SHORT_S))


@dataclass(frozen=True, slots=True)
class Estimate:
    """In how many seconds from now a job starts: of ten such jobs one before ``p10_s``, …

    ``drawn`` is what the range was made of. ``basis`` says what it rests on.
    """

    p10_s: float
    p50_s: float
    p90_s: float
    drawn: Given
    basis: str = ""


@dataclass(frozen=True, slots=True)
class _Error:
    """By how much each end of a drawn range was off, for its scale.

    ``size`` is the class of the job, ``told`` the stretch of time in which it was told.
    """

    size: int
    told: int
    off: tuple[float, float, float]

    @staticmethod
    def of(drawn: Given, waited_s: float, told_at: float) -> _Error:
        waited = math.log(waited_s + _SHORT_S)
        low, middle, high = (
            min(max((waited - math.log(each + _SHORT_S)) / drawn.scale, -_MOST), _MOST)
            for each in (drawn.low_s, drawn.middle_s, drawn.high_s)
        )
        return _Error(size_class(drawn.gpus), int(told_at // _TOGETHER_S), (low, middle, high))


@dataclass(frozen=True)
class Calibration:
    """The errors of past ranges, and how many starts fell into theirs. A value.

    ``waiting`` are those that have not come true yet: by how much they are off at least.
    """

    errors: tuple[_Error, ...] = ()
    starts: int = 0
    within: int = 0
    waiting: tuple[_Error, ...] = ()
    #: made when first asked for, by class of sizes
    _moved: dict[int, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as plain values for JSON."""
        errors = [
            [each.size, each.told, *(round(off, 4) for off in each.off)] for each in self.errors
        ]
        return {"starts": self.starts, "within": self.within, "last": errors}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Calibration:
        """Return the calibration that :meth:`as_json` wrote."""
        errors = (_Error(size, told, (low, middle, high))
                  for size, told, low, middle, high in document["last"])  # fmt: skip
        return Calibration(tuple(errors), document["starts"], document["within"])

    @property
    def coverage(self) -> float | None:
        """The share of starts that fell into their ranges; None before there was one."""
        return self.within / self.starts if self.starts else None

    def learn(self, starts: Sequence[tuple[Estimate, float, float]]) -> Calibration:
        """Return the calibration after some jobs have started.

        Of each what it was told, when (Unix s), and how many seconds after that it started.
        """
        found = [_Error.of(given.drawn, waited_s, at) for given, at, waited_s in starts]
        within = sum(given.p10_s <= waited_s <= given.p90_s for given, _, waited_s in starts)
        return Calibration(
            (*self.errors, *_few_together(found, self.errors))[-_KEPT:],
            self.starts + len(starts),
            self.within + within,
        )

    def beside(self, waiting: Iterable[tuple[Given, float]], at: float) -> Calibration:
        """Return the calibration with the jobs that still wait at ``at`` (Unix s).

        Of each what was drawn for it, and when it was told that (Unix s). Without them only those
        count that have started, and of those who were told the same these are the lucky ones.
        """
        found = [_Error.of(drawn, max(at - told_at, 0.0), told_at) for drawn, told_at in waiting]
        return Calibration(self.errors, self.starts, self.within, tuple(_few_together(found, ())))

    def estimate(self, drawn: Given) -> Estimate:
        """Return the range for what was drawn."""
        size = size_class(drawn.gpus)
        if size not in self._moved:
            self._moved[size] = self._by(size)
        at = np.array([drawn.low_s, drawn.middle_s, drawn.high_s])
        moved = np.sort((at + _SHORT_S) * np.exp(drawn.scale * self._moved[size]) - _SHORT_S)
        low_s, middle_s, high_s = np.maximum(moved, 0.0).tolist()
        basis = "the queue played on many times"
        if self.starts:
            last = len(self.errors)
            starts = "start" if last == 1 else f"{last} starts"
            basis += f", and how far off that was for the last {starts}"
        return Estimate(low_s, middle_s, high_s, drawn, basis)

    def _by(self, size: int) -> Floats:
        """Return by how much the ends of ranges of a class are moved, for their scale."""
        if not self.errors:
            return _USUAL
        every = (*self.errors, *self.waiting)
        weight = np.array([1.0 if each.size == size else _OF_OTHERS for each in every])
        is_over = np.arange(len(every)) < len(self.errors)
        off = np.array([each.off for each in every])
        seen = np.array(
            [_quantile(off[:, place], weight, is_over, share) for place, share in enumerate(SHARES)]
        )
        starts = weight[is_over].sum()
        moved: Floats = (starts * seen + _USUAL_STARTS * _USUAL) / (starts + _USUAL_STARTS)
        return moved


def _few_together(found: Sequence[_Error], before: Sequence[_Error]) -> list[_Error]:
    """Return those of ``found`` that count: a few for each class and stretch of time."""
    count = Counter((each.size, each.told) for each in before)
    kept = []
    for each in found:
        count[each.size, each.told] += 1
        if count[each.size, each.told] <= _MOST_TOGETHER:
            kept.append(each)
    return kept


def _quantile(off: Floats, weight: Floats, is_over: NDArray[np.bool_], share: float) -> float:
    """Return a quantile of errors with weights; of those not over only the least is known.

    The estimator is that of Kaplan and Meier (1958).
    """
    order = np.lexsort((~is_over, off))
    off, weight, is_over = off[order], weight[order], is_over[order]
    at_risk = np.cumsum(weight[::-1])[::-1]
    beyond = np.cumprod(np.where(is_over, 1.0 - weight / at_risk, 1.0))
    found = np.flatnonzero(beyond <= 1.0 - share + _ROUNDING)
    return float(off[found[0] if len(found) else -1])
