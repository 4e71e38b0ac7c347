"""The controller of running load in a world: it looks at each step, and agents obey a little later.

It looks as the server does (:mod:`admission.core.holding`). What starts waits until the room for it
has been made: its GPUs are held, and it begins under the cap that the controller gives it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from admission.core import holding as core
from admission.core.allocation.allocations import Allocations
from admission.core.allocation.reservation import AllocationArrays
from admission.core.controlling import Unmanaged, brought_down
from admission.core.holding import Remembered
from policies.controller.control import Tuning
from policies.controller.pausing import Paused, paused_after
from policies.headroom.evaluate import Headroom

__all__ = ["Holding"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: A GPU rests that draws no more than so much of the way from its draw at rest to its rating.
_AT_REST = 0.1


class Holding:
    """The memory of the controller, and its last word."""

    def __init__(self, unmanaged: Unmanaged, tuning: Tuning) -> None:
        self._unmanaged, self._tuning = unmanaged, tuning
        self._memory = Remembered()
        self._last: core.Holding | None = None
        #: attempts that are to stand still, and the cap under which each goes on, W
        self.paused = Paused()
        self._lowest_w: dict[int, float] = {}

    def step(
        self,
        headroom: Headroom,
        held: Allocations,
        *,
        acts: Bools,
        ready: Bools,
        may_pause: Mapping[int, float],
    ) -> Array:
        """Return the cap to set on each GPU of the inventory now, W; inf: none.

        ``acts`` says of each node whether its agent sets caps, ``ready`` whether it takes jobs;
        ``may_pause``: attempts that agreed to stand still (:func:`paused_after`).
        """
        gpus, idle_w = headroom.fleet.gpus, np.nan_to_num(headroom.fleet.gpus.idle_w)
        self._last = last = core.look(
            headroom,
            held,
            may_cap=headroom.summary.gpus.fresh & acts[gpus.node],
            ready=ready,
            unmanaged=self._unmanaged,
            resting=self._resting(headroom, held, idle_w),
            memory=self._memory,
            tuning=self._tuning,
        )
        if last is None:
            return np.full(len(gpus), np.inf)
        self._memory, units, found = last.remembered, last.units, last.found
        self.paused = paused_after(
            last.plant, units, last.budgets, found, self.paused, may_pause=may_pause, idle_w=idle_w
        )  # fmt: skip
        lowest_w = dict(zip(units.id.tolist(), found.lowest_w.tolist(), strict=True))
        before_w = self._lowest_w
        self._lowest_w = {
            each: lowest_w.get(each, before_w.get(each, np.inf)) for each in self.paused.saves_w
        }
        cap_w = np.full(len(headroom.fleet.gpus), np.inf)
        for attempt, rows in held.each():
            if attempt.id in self.paused:
                cap_w[_gpus(held, rows)] = self._lowest_w[attempt.id]
        cap_w[units.gpu] = np.minimum(cap_w[units.gpu], found.cap_w[units.unit])
        return cap_w

    def _resting(self, headroom: Headroom, held: Allocations, idle_w: Array) -> set[int]:
        """Return the attempts that were told to pause, and have come to rest."""
        gpus = headroom.summary.gpus
        rests = gpus.load_w <= idle_w + _AT_REST * (gpus.rated_w - idle_w)
        return {
            attempt.id
            for attempt, rows in held.each()
            if attempt.id in self.paused and rests[_gpus(held, rows)].all()
        }

    def may_start(self) -> dict[int, float]:
        """Return the attempts for which there is room now, by id, and the cap of each, W."""
        if self._last is None:
            return {}
        units, found = self._last.units, self._last.found
        rows = np.flatnonzero(found.may_start)
        return dict(zip(units.id[rows].tolist(), found.cap_w[rows].tolist(), strict=True))

    @property
    def kept(self) -> Bools | None:
        """Say of each budget of a reach whether caps keep it; None: nothing is capped."""
        return None if self._last is None else self._last.found.holds

    @property
    def starts_low(self) -> bool:
        """Whether jobs start under their lowest caps, once room was made for them."""
        return self._last is not None and self._last.starts_low

    def brought_down(
        self, headroom: Headroom, held: Allocations
    ) -> tuple[Headroom, AllocationArrays]:
        """Return the fleet once all has given way, and what is reserved then."""
        if self._last is None:
            return headroom, held.arrays
        return brought_down(headroom, held, self._last.units, self._last.found)


def _gpus(held: Allocations, rows: slice) -> Ints:
    """Return the rows of the GPUs of some allocations, in a row."""
    arrays = held.arrays
    here = (arrays.gpu_allocation >= rows.start) & (arrays.gpu_allocation < rows.stop)
    found: Ints = arrays.gpu[here]
    return found
