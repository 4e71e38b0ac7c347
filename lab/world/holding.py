"""The controller of running load in a world: it looks at each step, and agents obey a little later.

It looks as the server does (:mod:`admission.core.holding`). What starts waits until the room for it
has been made: its GPUs are held, and it begins under the cap that the controller gives it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from admission.core import holding as core
from admission.core.allocation.allocations import Allocations
from admission.core.allocation.reservation import AllocationArrays
from admission.core.controlling import Unmanaged, at_rest, brought_down
from admission.core.directives.standing import Standing
from admission.core.holding import Remembered
from admission.core.snapshot import Draws
from policies.controller.control import Tuning
from policies.controller.pausing import Paused
from policies.headroom.evaluate import Headroom

__all__ = ["Holding"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Holding:
    """The memory of the controller, and its last word."""

    def __init__(self, unmanaged: Unmanaged, tuning: Tuning) -> None:
        self._unmanaged, self._tuning = unmanaged, tuning
        self._memory = Remembered()
        self._last: core.Holding | None = None

    @property
    def last(self) -> core.Holding | None:
        """What the controller made of the last step; None: there was no GPU that it may cap."""
        return self._last

    @property
    def paused(self) -> Paused:
        """What is to stand still."""
        return self._memory.paused

    def step(
        self,
        headroom: Headroom,
        held: Allocations,
        *,
        acts: Bools,
        ready: Bools,
        standing: Standing,
    ) -> Array:
        """Return the cap to set on each GPU of the inventory now, W; inf: none.

        ``acts`` says of each node whether its agent sets caps, ``ready`` whether it takes jobs;
        ``standing``: who agreed to stand still.
        """
        gpus = headroom.fleet.gpus
        self._last = last = core.look(
            headroom,
            held,
            may_cap=headroom.summary.gpus.fresh & acts[gpus.node],
            ready=ready,
            unmanaged=self._unmanaged,
            resting=at_rest(headroom, held, self.paused.saves_w.keys()),
            memory=self._memory,
            standing=standing,
            tuning=self._tuning,
        )
        cap_w = np.full(len(gpus), np.inf)
        if last is not None:
            self._memory = last.remembered
            capped, _, caps_w = last.caps()
            cap_w[capped] = caps_w
        return cap_w

    def may_start(self) -> dict[int, float]:
        """Return the attempts for which there is room now, by id, and the cap of each, W."""
        if self._last is None:
            return {}
        units, found = self._last.units, self._last.found
        rows = np.flatnonzero(found.may_start)
        return dict(zip(units.id[rows].tolist(), found.cap_w[rows].tolist(), strict=True))

    @property
    def kept(self) -> Bools | None:
        """Say of each budget of a reach whether it is kept; None: nothing is capped."""
        return None if self._last is None else self._last.kept

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

    @property
    def draws(self) -> dict[str, Draws]:
        """What elastic jobs draw now, and without a cap, by key."""
        return {} if self._last is None else self._last.draws
