"""The controller of running load in a world: it looks at each step, and agents obey a little later.

What starts waits until the room for it has been made: its GPUs are held, and it begins under the
cap that the controller gives it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from admission.core.allocation.allocations import Allocations
from admission.core.allocation.reservation import AllocationArrays
from admission.core.controlling import Unmanaged, brought_down, budgets_of, plant_of, units_of
from policies.controller.control import Controlled, Memory, Tuning, Units, control
from policies.headroom.evaluate import Headroom

__all__ = ["Holding"]

Array = NDArray[np.float64]


class Holding:
    """The memory of the controller, and its last word."""

    def __init__(self, unmanaged: Unmanaged, tuning: Tuning) -> None:
        self._unmanaged, self._tuning = unmanaged, tuning
        self._memory = Memory()
        self._last: tuple[Units, Controlled] | None = None

    def step(self, headroom: Headroom, held: Allocations) -> Array:
        """Return the cap to set on each GPU of the inventory now, W; inf: none."""
        may_cap = headroom.summary.gpus.fresh
        units = units_of(held, headroom, may_cap, self._unmanaged)
        found = control(
            plant_of(headroom), units, budgets_of(headroom), self._memory,
            now=headroom.at, tuning=self._tuning,
        )  # fmt: skip
        self._memory, self._last = found.memory, (units, found)
        cap_w = np.full(len(headroom.fleet.gpus), np.inf)
        cap_w[units.gpu] = found.cap_w[units.unit]
        return cap_w

    def may_start(self) -> dict[int, float]:
        """Return the attempts for which there is room now, by id, and the cap of each, W."""
        if self._last is None:
            return {}
        units, found = self._last
        rows = np.flatnonzero(found.may_start)
        return dict(zip(units.id[rows].tolist(), found.cap_w[rows].tolist(), strict=True))

    def brought_down(
        self, headroom: Headroom, held: Allocations
    ) -> tuple[Headroom, AllocationArrays]:
        """Return the fleet once all has given way, and what is reserved then."""
        if self._last is None:
            return headroom, held.arrays
        return brought_down(headroom, held, *self._last)
