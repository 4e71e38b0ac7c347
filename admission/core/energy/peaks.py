"""The peak of a month that a demand charge is for: the greatest mean over an interval. Pure.

Utilities meter a kW by the mean over intervals that follow each other from the full hour on, mostly
of 15 minutes. Energy of sites is kept by five minutes, so that the interval of a tariff may be any
whole number of these that an hour is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from admission.core.energy.amounts import MJ_PER_J
from admission.core.energy.rates import Terms, in_force

__all__ = ["BINS", "BIN_S", "INTERVALS_MIN", "HourDraw", "Peak", "peak_of"]

#: Energy of sites is kept by bins of so many seconds, of which an hour has so many.
BIN_S, BINS = 300, 12
#: Over how many minutes a tariff may take its means.
INTERVALS_MIN = (5, 10, 15, 20, 30, 60)
_W_PER_KW = 1000.0


@dataclass(frozen=True, slots=True)
class HourDraw:
    """What a site drew in an hour, mJ; ``bins_mj`` by five minutes, empty: that is not known."""

    hour: datetime
    mj: int
    bins_mj: Sequence[int] = ()

    def means_w(self, interval_min: int) -> Iterator[tuple[datetime, int, float]]:
        """Yield the intervals of the hour: start, length in s, and mean power, W.

        An hour whose five minutes are not known is one interval.
        """
        if not self.bins_mj:
            yield self.hour, BINS * BIN_S, self.mj / (BINS * BIN_S * MJ_PER_J)
            return
        length_s = interval_min * 60
        each = length_s // BIN_S
        for first in range(0, BINS, each):
            start = self.hour + timedelta(seconds=first * BIN_S)
            mj = sum(self.bins_mj[first : first + each])
            yield start, length_s, mj / (length_s * MJ_PER_J)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The greatest mean of a month over an interval, and what is charged for it.

    ``hour`` is the hour that it is in; ``length_s`` is an hour where its five minutes are not
    known, whatever the tariff says.
    """

    hour: datetime
    at: datetime
    length_s: int
    mean_w: float
    per_kw: float

    @property
    def charge(self) -> float:
        return self.per_kw * max(self.mean_w, 0.0) / _W_PER_KW


def peak_of(draws: Iterable[HourDraw], terms: Sequence[Terms]) -> Peak | None:
    """Return the peak of the hours of a month, of equal ones the first; None: none is charged.

    Each hour counts by the interval and the price of the tariff that held in it. Hours for which
    no demand charge is stated do not count.
    """
    greatest: Peak | None = None
    for draw in sorted(draws, key=lambda each: each.hour):
        stated = in_force(terms, draw.hour)
        if stated is None or stated.demand_per_kw is None:
            continue
        for at, length_s, mean_w in draw.means_w(stated.demand_interval_min):
            if greatest is None or mean_w > greatest.mean_w:
                greatest = Peak(
                    hour=draw.hour, at=at, length_s=length_s, mean_w=mean_w,
                    per_kw=stated.demand_per_kw,
                )  # fmt: skip
    return greatest
