"""One look of the controller at running load, as the cycle of a server and a world take it. Pure.

Shells say whose agents act and what the last look left; what is held, whether jobs start under
their lowest caps, and what is kept for the next look is decided here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from admission.core.allocation.allocations import Allocations
from admission.core.allocation.reservation import AllocationArrays
from admission.core.controlling import (
    Excess,
    Unmanaged,
    brought_down,
    budgets_of,
    plant_of,
    steadied,
    units_of,
    without_ended,
    without_new,
)
from policies.controller.control import Budgets, Controlled, Memory, Plant, Tuning, Units, control
from policies.controller.heat import Warmth, limited_by_heat
from policies.headroom.columns import Bools
from policies.headroom.evaluate import Headroom

__all__ = ["ROOM_WITHIN_S", "Holding", "Remembered", "look"]

#: What was admitted waits so long for its room, s, and else goes back to the queue.
ROOM_WITHIN_S = 60.0


@dataclass(frozen=True, eq=False)
class Remembered:
    """What the last look left: of units, of what budgets carry beside GPUs, and of GPUs' heat.

    ``fresh`` says of each GPU whether it was heard.
    """

    units: Memory = field(default_factory=Memory)
    excess: Excess = field(default_factory=Excess)
    warmth: Warmth = field(default_factory=Warmth)
    fresh: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))


@dataclass(frozen=True, eq=False)
class Holding:
    """What the controller makes of a moment.

    ``may_cap`` says of each GPU whether caps on it can be counted on; ``starts_low``: all machines
    that take jobs can be, so that jobs start under the lowest caps that they accept.
    """

    headroom: Headroom
    held: Allocations
    may_cap: Bools
    starts_low: bool
    unmanaged: Unmanaged
    plant: Plant
    units: Units
    budgets: Budgets
    excess: Excess
    warmth: Warmth
    found: Controlled

    @property
    def remembered(self) -> Remembered:
        """What this look leaves to the next one."""
        fresh = self.headroom.summary.gpus.fresh
        return Remembered(self.found.memory, self.excess, self.warmth, fresh)

    def brought_down(self) -> tuple[Headroom, AllocationArrays]:
        """Return the fleet once all has given way as far as it agreed, and what is reserved."""
        return brought_down(self.headroom, self.held, self.units, self.found)


def look(
    headroom: Headroom,
    held: Allocations,
    *,
    may_cap: Bools,
    ready: Bools,
    unmanaged: Unmanaged,
    resting: Collection[int],
    memory: Remembered,
    tuning: Tuning,
) -> Holding | None:
    """Return what the controller makes of a moment; None: there is no GPU that it may cap.

    ``may_cap`` says of each GPU whether caps on it can be counted on, ``ready`` of each node
    whether its machine takes jobs; ``resting`` are the ids of attempts that stand still.
    """
    if not may_cap.any():
        return None
    units = units_of(held, headroom, may_cap, unmanaged, resting, memory.units.since)
    heat_w, warmth = limited_by_heat(headroom, memory.warmth)
    plant = plant_of(headroom, heat_w)
    budgets, excess = steadied(budgets_of(headroom), plant, memory.excess, headroom.at)
    budgets = without_ended(budgets, plant, memory.units, units, held.gpus)
    fresh = headroom.summary.gpus.fresh
    known = memory.fresh if len(memory.fresh) == len(fresh) else fresh
    heard = np.flatnonzero(fresh & ~known)
    before = without_new(memory.units, plant, units, budgets.reach, heard)
    takes_jobs = ready[headroom.fleet.gpus.node] & headroom.summary.gpus.fresh
    return Holding(
        headroom=headroom,
        held=held,
        may_cap=may_cap,
        starts_low=bool(may_cap[takes_jobs].all()),
        unmanaged=unmanaged,
        plant=plant,
        units=units,
        budgets=budgets,
        excess=excess,
        warmth=warmth,
        found=control(plant, units, budgets, before, now=headroom.at, tuning=tuning),
    )
