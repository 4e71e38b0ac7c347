"""Forecasts over a series as Headroom makes them, scored against "as now" at each horizon."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lab.forecasts.series import Array, Series
from policies.headroom.claims import Claims, crossing, said
from policies.headroom.outlook import AHEAD, Basis, Forecast, Record, learned
from policies.headroom.trend import slope_per_s

__all__ = ["PACES_S", "ClaimsJudged", "Judged", "judged"]

#: Time between updates, s: as Headroom runs, and faster for series that are short.
PACES_S = (60.0, 10.0, 1.0, 0.1)
#: A series is judged at the slowest paces that have so many updates in it, at so many of them.
_UPDATES, _PACES = 120, 2
#: A series has the budget that it keeps for this share of the time.
_BUDGET_KEPT = 0.95
#: A horizon is judged by so many comparisons.
_COMPARED = 30
#: Slots of loads in an update, and those that a slope is made of.
_SLOTS, _SLOPE_SLOTS = 3, 12


@dataclass(frozen=True)
class Judged:
    """Forecasts of one series at one pace and horizon, beside "as now".

    Errors are means of absolute ones, in ``unit``. ``said`` is what people see: the forecast while
    it is shown, else "as now". Errors while shown are of the moments at which one was.
    """

    series: str
    unit: str
    unseen: bool
    pace_s: float
    horizon_s: float
    compared: int
    as_now: float
    method: float
    said: float
    coverage: float | None
    shown_share: float
    shown_as_now: float | None
    shown: float | None
    shown_coverage: float | None

    @property
    def ratio(self) -> float:
        """Errors of what is said over those of "as now"; 1 where neither was ever off."""
        return self.said / self.as_now if self.as_now > 0 else 1.0

    @property
    def shown_ratio(self) -> float | None:
        """The same while a forecast was shown."""
        if self.shown is None or not self.shown_as_now:
            return None
        return self.shown / self.shown_as_now


@dataclass(frozen=True)
class ClaimsJudged:
    """Claims that a series would pass its budget, at one pace: how many, and how many came true.

    ``passed`` is how often it did pass it, ``claimed_share`` the share of time with a claim.
    """

    series: str
    unseen: bool
    pace_s: float
    updates: int
    passed: int
    made: int
    came_true: int
    claimed_share: float


def judged(series: Series) -> Iterator[Judged | ClaimsJudged]:
    """Yield how forecasts of a series did, by pace and horizon, where it is long enough."""
    paces = [
        pace_s
        for pace_s in PACES_S
        if series.span_s >= _UPDATES * pace_s and series.cadence_s <= pace_s
    ]
    for pace_s in paces[:_PACES]:
        yield from _at_pace(series, pace_s, int(series.span_s // pace_s))


@dataclass
class _Sums:
    """Errors of one horizon, added up over updates and columns."""

    compared: int = 0
    as_now: float = 0.0
    method: float = 0.0
    said: float = 0.0
    banded: int = 0
    covered: int = 0
    shown: int = 0
    shown_as_now: float = 0.0
    shown_off: float = 0.0
    shown_covered: int = 0

    def add(self, said: Forecast, place: int, now: Array, came: Array) -> None:
        known = ~np.isnan(came) & ~np.isnan(now)
        as_now, off = np.abs(came - now)[known], np.abs(came - said.load_w[place])[known]
        as_said = np.abs(came - said.said_w[place])[known]
        within = ((came >= said.low_w[place]) & (came <= said.high_w[place]))[known]
        shown = said.shown[place][known]
        self.compared += int(known.sum())
        self.as_now += float(as_now.sum())
        self.method += float(off.sum())
        self.said += float(as_said.sum())
        banded = said.banded[place][known]
        self.banded += int(banded.sum())
        self.covered += int(within[banded].sum())
        self.shown += int(shown.sum())
        self.shown_as_now += float(as_now[shown].sum())
        self.shown_off += float(off[shown].sum())
        self.shown_covered += int(within[shown].sum())


class _Run:
    """One series at one pace: forecasts and claims, update by update, and how they did."""

    def __init__(self, slots: Array, pace_s: float) -> None:
        self.slots, self.pace_s = slots, pace_s
        columns = slots.shape[1]
        self.budget = np.nanquantile(slots, _BUDGET_KEPT, axis=0)
        self.record, self.claims = Record.none(columns), Claims.none(columns)
        self.sums = [_Sums() for _ in AHEAD]
        self.claimed = self.passed = 0
        self._made: deque[Forecast] = deque(maxlen=AHEAD[-1])
        self._was_over = np.ones(columns, dtype=bool)

    def take(self, update: int) -> None:
        """Compare what is due with the loads of an update, and forecast from there."""
        came, made = self.slots[update * _SLOTS], self._made
        due = {place: made[-ahead] for place, ahead in enumerate(AHEAD) if len(made) >= ahead}
        for place, each in due.items():
            now = self.slots[(update - AHEAD[place]) * _SLOTS]
            self.sums[place].add(each, place, now, came)
        self.record = learned(self.record, due, came)
        made.append(Forecast.of(self.record, self._basis(update)))
        self._claim(update, came)

    def _basis(self, update: int) -> Basis:
        last, columns = update * _SLOTS, self.slots.shape[1]
        window = self.slots[max(last - _SLOPE_SLOTS + 1, 0) : last + 1]
        times = self.pace_s / _SLOTS * np.arange(len(window), dtype=np.float64)
        return Basis(
            now_w=self.slots[last],
            slope_w=self.pace_s * slope_per_s(times, window.astype(np.float32)),
            levels_w=self.record.levels_w,
            changes_w=np.zeros((len(AHEAD), columns)),
            most_w=np.full(columns, np.inf),
        )

    def _claim(self, update: int, came: Array) -> None:
        over, known = came > self.budget, ~np.isnan(came)
        found = crossing(self.record, self._made[-1], came, self.budget)
        at, pace_s = update * self.pace_s, self.pace_s
        self.claims = said(self.claims, found, now=at, over=over, possible=known, update_s=pace_s)
        self.claimed += int(self.claims.standing.sum())
        self.passed += int((over & ~self._was_over).sum())
        self._was_over = np.where(known, over, self._was_over)


def _at_pace(series: Series, pace_s: float, updates: int) -> Iterator[Judged | ClaimsJudged]:
    slots = series.at(series.t_s[0] + pace_s / _SLOTS * np.arange(updates * _SLOTS))
    run = _Run(slots, pace_s)
    for update in range(updates):
        run.take(update)
    for ahead, found in zip(AHEAD, run.sums, strict=True):
        if found.compared >= _COMPARED:
            yield _judged(series, pace_s, pace_s * ahead, found)
    count = updates * slots.shape[1]
    yield ClaimsJudged(
        series=series.name,
        unseen=not series.chosen_on,
        pace_s=pace_s,
        updates=count,
        passed=run.passed,
        made=int(run.claims.made.sum()),
        came_true=int(run.claims.came_true.sum()),
        claimed_share=run.claimed / count,
    )


def _judged(series: Series, pace_s: float, horizon_s: float, found: _Sums) -> Judged:
    def of_shown(value: float) -> float | None:
        return value / found.shown if found.shown else None

    return Judged(
        series=series.name,
        unit=series.unit,
        unseen=not series.chosen_on,
        pace_s=pace_s,
        horizon_s=horizon_s,
        compared=found.compared,
        as_now=found.as_now / found.compared,
        method=found.method / found.compared,
        said=found.said / found.compared,
        coverage=found.covered / found.banded if found.banded else None,
        shown_share=found.shown / found.compared,
        shown_as_now=of_shown(found.shown_as_now),
        shown=of_shown(found.shown_off),
        shown_coverage=of_shown(found.shown_covered),
    )
