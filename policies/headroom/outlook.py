"""Forecasts of the loads of budgets, with bands, and the record that says whether to trust them.

Several simple methods run side by side. Once an update (a minute) what each said for now is
compared with the load that came; at each horizon the method that was off least lately makes the
forecast. Its own record decides whether the forecast is shown: it has to have beaten "as now". The
band around it moves with each comparison, so that four of five loads fall into it.

Arrays are (horizons, budgets), or (methods, horizons, budgets). Pure: time is counted in updates,
so that the same code judges series of any pace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from policies.headroom.columns import Bools, Floats
from policies.headroom.trend import risen

__all__ = ["AHEAD", "COVERAGE", "METHODS", "UPDATE_S", "Basis", "Forecast", "Record", "learned"]

#: Time between updates as Headroom runs, s.
UPDATE_S = 60.0
#: How far ahead loads are forecast, in updates.
AHEAD = (1, 5, 15, 30, 60)
#: The share of loads that has to fall into the band.
COVERAGE = 0.8

#: Half-lives of the levels that loads return to, in updates.
_LEVELS = (3.0, 15.0, 60.0)
#: Ways to forecast. "as now" knows nothing of what is to come; all others do. A trend is followed,
#: in part or in whole, and so is the way back to each level.
METHODS = (
    "as now", "known changes", "half trend", "trend",
    *(f"{way} way back to {life:g}" for life in _LEVELS for way in ("half", "whole")),
)  # fmt: skip
#: A trend lasts for about so many updates.
_TREND_LASTS = 10.0
#: A comparison counts half after so many updates, or after so many horizons if that is longer.
_FORGETS_IN, _FORGETS_IN_HORIZONS = 120.0, 4.0
#: Of late: what counts half after so many updates, or horizons.
_LATE, _LATE_HORIZONS = 30.0, 1.5
#: Another method takes the place of the present one once its errors are less by this share.
_BETTER = 0.05
#: A forecast is shown once its errors are at most this share of those of "as now", and hidden again
#: from that share on.
_SHOW_AT, _HIDE_AT = 0.85, 0.92
#: Comparisons before a record counts: so many, and so many horizons' worth.
_COMPARED, _COMPARED_HORIZONS = 30.0, 3.0
#: A load has to be known for so many updates before anything is said of it.
_FRESH = 5
#: With less of the loads within its band no forecast is shown.
_LEAST_COVERED = 0.7
#: A band begins with so many usual errors to either side. After each comparison an end moves by
#: this share of the usual error, by more as long as there are few comparisons.
_BAND_BEGINS, _BAND_STEP, _BAND_STEP_EARLY = 1.6, 0.06, 3.0

_HORIZONS = len(AHEAD)
_STEPS: Floats = np.array(AHEAD, dtype=np.float64)[:, None]
_WEIGHT: Floats = 1.0 - 0.5 ** (1.0 / np.maximum(_FORGETS_IN, _FORGETS_IN_HORIZONS * _STEPS))
_LATE_WEIGHT: Floats = 1.0 - 0.5 ** (1.0 / np.maximum(_LATE, _LATE_HORIZONS * _STEPS))
_LEVEL_WEIGHT: Floats = 1.0 - 0.5 ** (1.0 / np.array(_LEVELS)[:, None])
_COUNTS_FROM: Floats = _COMPARED + _COMPARED_HORIZONS * _STEPS


@dataclass(frozen=True, eq=False)
class Record:
    """What the forecasts of some budgets were worth: arrays end in the budgets.

    ``loss_w`` is the mean absolute error of each method, ``own_loss_w`` that of the forecasts as
    they were made; ``gain_w`` by how much these were less than those of "as now" of late.
    ``covered`` is the share of loads that fell into the band. ``low_w`` and ``high_w`` lead from
    the forecast to the ends of its band. ``method`` is a place in ``METHODS``, ``shown`` is 0 or 1,
    ``fresh`` counts the updates since the load was last not known.
    """

    levels_w: Floats
    loss_w: Floats
    own_loss_w: Floats
    compared: Floats
    covered: Floats
    low_w: Floats
    high_w: Floats
    gain_w: Floats
    method: Floats
    shown: Floats
    fresh: Floats

    @staticmethod
    def none(budgets: int) -> Record:
        """Nothing was compared yet."""
        empty = {name: np.zeros((*shape, budgets)) for name, shape in _SHAPES.items()}
        return Record(**{**empty, "levels_w": np.full_like(empty["levels_w"], np.nan)})

    def packed(self) -> NDArray[np.float32]:
        """Return all of it as one array: (numbers, budgets)."""
        budgets = self.fresh.shape[-1]
        parts = [getattr(self, name).reshape(-1, budgets) for name in _SHAPES]
        return np.concatenate(parts).astype(np.float32)

    @staticmethod
    def unpacked(data: NDArray[np.float32]) -> Record:
        """Return the record that was :meth:`packed`. Raises ValueError where it is none."""
        sizes = [int(np.prod(shape)) for shape in _SHAPES.values()]
        if data.ndim != 2 or len(data) != sum(sizes):
            raise ValueError(f"a record has {sum(sizes)} numbers for each budget")
        parts = np.split(data.astype(np.float64), np.cumsum(sizes)[:-1])
        named = zip(_SHAPES.items(), parts, strict=True)
        return Record(**{name: part.reshape(*shape, -1) for (name, shape), part in named})

    @property
    def counts(self) -> Bools:
        """Whether enough was compared for errors and bands to mean something."""
        counts: Bools = self.compared >= _COUNTS_FROM
        return counts

    @property
    def ratio(self) -> Floats:
        """Errors of forecasts over those of "as now"; NaN where nothing tells."""
        as_now_w = self.loss_w[0]
        none = np.full(as_now_w.shape, np.nan)
        share: Floats = np.divide(self.own_loss_w, as_now_w, out=none, where=as_now_w > 0)
        return share


#: The arrays of a record as they are packed, in turn, without their last axis.
_SHAPES: dict[str, tuple[int, ...]] = {
    "levels_w": (len(_LEVELS),),
    "loss_w": (len(METHODS), _HORIZONS),
    **dict.fromkeys(
        ("own_loss_w", "compared", "covered", "low_w", "high_w", "gain_w", "method", "shown"),
        (_HORIZONS,),
    ),
    "fresh": (),
}


@dataclass(frozen=True, eq=False)
class Basis:
    """The state that forecasts are made from: loads of budgets, W, and how they move, W an update.

    ``changes_w`` (horizons, budgets) are changes that are known to come, ``most_w`` what no load
    can exceed as things are enforced; inf where nothing bounds it.
    """

    now_w: Floats
    slope_w: Floats
    levels_w: Floats
    changes_w: Floats
    most_w: Floats

    @cached_property
    def by_method(self) -> Floats:
        """The forecasts of all methods: (methods, horizons, budgets)."""
        found = np.empty((len(METHODS), *self.changes_w.shape))
        found[0] = self.now_w
        found[1:] = self.now_w + self.changes_w
        rise_w = risen(self.slope_w, _STEPS, _TREND_LASTS)
        found[2] += 0.5 * rise_w
        found[3] += rise_w
        back_w = np.nan_to_num(self.levels_w - self.now_w)[:, None]
        found[4::2] += 0.5 * back_w
        found[5::2] += back_w
        return found


@dataclass(frozen=True, eq=False)
class Forecast:
    """Forecasts of the loads of some budgets and their bands, W: (horizons, budgets).

    ``said_w`` is what people see: the forecast where it is ``shown``, since the record says that it
    is better than "as now", and else the load as now, with the changes that are known to come
    unless these made it worse. ``banded``: the load was known of late, and enough was compared for
    the band to mean something.
    """

    load_w: Floats
    low_w: Floats
    high_w: Floats
    said_w: Floats
    banded: Bools
    shown: Bools
    basis: Basis

    @staticmethod
    def of(record: Record, basis: Basis) -> Forecast:
        """Return the forecasts that the record's methods make, within what is enforced."""
        by_method = basis.by_method
        load_w = np.take_along_axis(by_method, record.method.astype(np.int64)[None], axis=0)[0]
        known = ~np.isnan(load_w) & (record.fresh >= _FRESH)
        shown = (record.shown > 0) & known
        as_now_w = np.where(record.loss_w[1] <= record.loss_w[0], by_method[1], by_method[0])
        most_w = np.maximum(basis.most_w, basis.now_w)
        return Forecast(
            load_w=np.clip(load_w, 0.0, most_w),
            low_w=np.clip(load_w + record.low_w, 0.0, most_w),
            high_w=np.clip(load_w + record.high_w, 0.0, most_w),
            said_w=np.clip(np.where(shown, load_w, as_now_w), 0.0, most_w),
            banded=record.counts & known,
            shown=shown,
            basis=basis,
        )

    def packed(self) -> NDArray[np.float32]:
        """Return all of it as one array: (numbers, budgets)."""
        basis = self.basis
        parts = [basis.now_w[None], basis.slope_w[None], basis.most_w[None], basis.levels_w]
        parts += [basis.changes_w, self.load_w, self.low_w, self.high_w, self.said_w]
        return np.concatenate([*parts, self.banded, self.shown]).astype(np.float32)

    @staticmethod
    def unpacked(data: NDArray[np.float32]) -> Forecast:
        """Return the forecasts that were :meth:`packed`. Raises ValueError where they are none."""
        sizes = [1, 1, 1, len(_LEVELS), *(_HORIZONS,) * 7]
        if data.ndim != 2 or len(data) != sum(sizes):
            raise ValueError(f"forecasts have {sum(sizes)} numbers for each budget")
        (
            now_w,
            slope_w,
            most_w,
            levels_w,
            changes_w,
            load_w,
            low_w,
            high_w,
            said_w,
            banded,
            shown,
        ) = np.split(data.astype(np.float64), np.cumsum(sizes)[:-1])
        basis = Basis(now_w[0], slope_w[0], levels_w, changes_w, most_w[0])
        return Forecast(load_w, low_w, high_w, said_w, banded > 0, shown > 0, basis)


def learned(record: Record, due: Mapping[int, Forecast], came_w: Floats) -> Record:
    """Return the record after an update in which the loads were ``came_w``; NaN: not known.

    ``due`` has what was said so many updates ago, by the place of that horizon in ``AHEAD``.
    """
    after = Record(**{name: getattr(record, name).copy() for name in _SHAPES})
    known = ~np.isnan(came_w)
    _compare(after, due, came_w)
    moved_w = after.levels_w + _LEVEL_WEIGHT * (came_w - after.levels_w)
    first = np.where(np.isnan(after.levels_w), came_w, moved_w)
    np.copyto(after.levels_w, first, where=known)
    after.fresh[:] = np.where(known, after.fresh + 1.0, 0.0)
    return after


def _compare(after: Record, due: Mapping[int, Forecast], came_w: Floats) -> None:
    """Move a record, in place, by what was said and what came."""
    said_w, low_w, high_w = (np.full(after.compared.shape, np.nan) for _ in range(3))
    by_method = np.zeros(after.loss_w.shape)
    for place, made in due.items():
        said_w[place], low_w[place] = made.load_w[place], made.low_w[place]
        high_w[place], by_method[:, place] = made.high_w[place], made.basis.by_method[:, place]
    known = ~np.isnan(came_w - said_w)
    # The first comparisons count alike, as in a plain mean.
    weight = np.where(known, np.maximum(1.0 / (after.compared + 1.0), _WEIGHT), 0.0)
    off_w = np.where(known, came_w - said_w, 0.0)
    _move(after.own_loss_w, np.abs(off_w), weight)
    each_off_w = np.where(known, np.abs(came_w - by_method), 0.0)
    _move(after.loss_w, each_off_w, weight)
    late = np.where(known, np.maximum(1.0 / (after.compared + 1.0), _LATE_WEIGHT), 0.0)
    _move(after.gain_w, each_off_w[0] - np.abs(off_w), late)
    _move(after.covered, (came_w >= low_w) & (came_w <= high_w), weight)
    _move_bands(after, off_w, known)
    after.compared[:] += known
    _choose(after)


def _move(mean: Floats, value: Floats | Bools, weight: Floats) -> None:
    mean += weight * (value - mean)


def _move_bands(after: Record, off_w: Floats, known: Bools) -> None:
    """Move the ends of bands, so that what comes is beyond each in half of the rest of times."""
    beyond = (1.0 - COVERAGE) / 2.0
    share = np.maximum(_BAND_STEP, _BAND_STEP_EARLY / (after.compared + 1.0))
    step_w = np.where(known, share * after.own_loss_w, 0.0)
    begins_w = np.where(known & (after.compared == 0), _BAND_BEGINS * after.own_loss_w, 0.0)
    high_w = after.high_w + begins_w
    low_w = after.low_w - begins_w
    high_w += step_w * np.where(off_w > high_w, 1.0 - beyond, -beyond)
    low_w -= step_w * np.where(off_w < low_w, 1.0 - beyond, -beyond)
    after.high_w[:], after.low_w[:] = np.maximum(high_w, 0.0), np.minimum(low_w, 0.0)


def _choose(after: Record) -> None:
    """Choose the method of each horizon, and whether its forecast is shown."""
    method = after.method.astype(np.int64)[None]
    present_w = np.take_along_axis(after.loss_w, method, axis=0)[0]
    better = after.loss_w.min(axis=0) < (1.0 - _BETTER) * present_w
    better &= after.compared >= _COMPARED
    after.method[:] = np.where(better, after.loss_w.argmin(axis=0), after.method)
    bar = np.where(after.shown > 0, _HIDE_AT, _SHOW_AT)
    after.shown[:] = (
        after.counts
        & (np.nan_to_num(after.ratio, nan=1.0) <= bar)
        & (after.gain_w > 0)
        & (after.covered >= _LEAST_COVERED)
        & (after.method > 0)
    )
