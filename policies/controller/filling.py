"""The highest levels at which no budget is exceeded: progressive filling over a tree of budgets.

A unit stands in one rack or in several, a rack draws on several budgets, and a unit has one level.
All levels rise together; where a budget is full, the units that draw on it stay, and the others go
on. So each unit is as low as the tightest budget above it makes it, and no lower. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.controller.levels import LEVELS, caps_at
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.reach import Reach

__all__ = ["Cells", "Filled", "fill", "level_at"]

#: Levels are found by so many rounds at most; what then is left stays as low as its tightest budget
#: would make it if nobody gave anything back.
_ROUNDS = 12
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Cells:
    """The parts of units in racks: rows of both, and the power of each at each level, W."""

    unit: Ints
    rack: Ints
    watts: Floats


@dataclass(frozen=True, eq=False)
class Filled:
    """The level of each unit; and by budget, the highest at which its units would fit.

    ``short_w`` is what a budget lacks with all units at the lowest level, 0 where that is nothing.
    """

    level: Floats
    budget_level: Floats
    short_w: Floats


def fill(cells: Cells, units: int, reach: Reach, room_w: Floats) -> Filled:
    """Return the levels of ``units`` for budgets that have ``room_w`` for them; inf: no limit."""
    return _Filling(cells, units, reach, room_w).done()


class _Filling:
    def __init__(self, cells: Cells, units: int, reach: Reach, room_w: Floats) -> None:
        self.cells, self.units, self.reach = cells, units, reach
        self.room_w = np.where(np.isnan(room_w), np.inf, room_w)
        self.racks = len(reach.place)
        self.active: Bools = np.ones(units, dtype=bool)
        self.level: Floats = np.full(units, float(LEVELS - 1))

    def done(self) -> Filled:
        first: tuple[Floats, Floats] | None = None
        for _ in range(_ROUNDS):
            if not self.active.any():
                break
            at_budget, short_w = self._levels_of_budgets()
            first = first or (at_budget, short_w)
            at_unit = self._least_of(at_budget)
            self.level = np.where(self.active, at_unit, self.level)
            self.active &= ~self._is_settled(at_budget, at_unit)
        at_budget, short_w = first or self._levels_of_budgets()
        return Filled(self.level, at_budget, short_w)

    def _by_rack(self, watts: Floats) -> Floats:
        found = np.zeros((self.racks, *watts.shape[1:]))
        np.add.at(found, self.cells.rack, watts)
        return found

    def _levels_of_budgets(self) -> tuple[Floats, Floats]:
        """Return the level at which active units fill each budget, and what it is short of."""
        cells = self.cells
        active = self.active[cells.unit]
        moving_w = self.reach.of_racks(self._by_rack(np.where(active[:, None], cells.watts, 0.0)))
        still_w = np.where(active, 0.0, caps_at(cells.watts, self.level[cells.unit]))
        left_w = self.room_w - self.reach.of_racks(self._by_rack(still_w))
        return level_at(moving_w, left_w), np.maximum(moving_w[:, 0] - left_w, 0.0)

    def _least_of(self, at_budget: Floats) -> Floats:
        """Return for each unit the least level of the budgets above it."""
        known = np.append(at_budget, LEVELS - 1.0)
        by_rack = known[self.reach.place].min(axis=1, initial=LEVELS - 1.0)
        found = np.full(self.units, LEVELS - 1.0)
        np.minimum.at(found, self.cells.unit, by_rack[self.cells.rack])
        return found

    def _is_settled(self, at_budget: Floats, at_unit: Floats) -> Bools:
        """Say which units stay: those of budgets all of whose active units it holds itself."""
        cells = self.cells
        here = np.where(self.active, at_unit, np.inf)[cells.unit]
        of_rack = np.full(self.racks, np.inf)
        np.minimum.at(of_rack, cells.rack, here)
        least = np.full(self.reach.count + 1, np.inf)
        for column in range(self.reach.place.shape[1]):
            np.minimum.at(least, self.reach.place[:, column], of_rack)
        holds = least[:-1] >= at_budget - _ROUNDING
        held = np.append(np.where(holds, at_budget, np.inf), np.inf)
        settled = at_unit >= self._least_of(np.minimum(held[:-1], LEVELS - 1.0)) - _ROUNDING
        lowest = at_unit[self.active].min(initial=np.inf)
        found: Bools = self.active & (settled | (at_unit <= lowest + _ROUNDING))
        return found


def level_at(watts: Floats, left_w: Floats) -> Floats:
    """Return the level at which each row of ``watts``, which rise, comes to ``left_w``.

    The lowest where that is more at any level, the highest where it is no more at any.
    """
    fits = watts <= left_w[:, None]
    low = np.maximum(fits.sum(axis=1) - 1, 0)
    rows = np.arange(len(watts))
    high = np.minimum(low + 1, LEVELS - 1)
    step_w = watts[rows, high] - watts[rows, low]
    more = np.divide(left_w - watts[rows, low], step_w, out=np.zeros(len(rows)), where=step_w > 0)
    level = np.where(fits[:, 0], np.minimum(low + np.clip(more, 0.0, 1.0), LEVELS - 1.0), 0.0)
    return np.where(fits[:, -1], LEVELS - 1.0, level)
