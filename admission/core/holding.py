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
    AT_REST,
    Excess,
    LastHeld,
    Unmanaged,
    asked_sites,
    brought_down,
    budgets_of,
    draws_of,
    plant_of,
    rest_share,
    steadied,
    still_w,
    units_of,
    without_ended,
    without_new,
)
from admission.core.directives.standing import Standing
from admission.core.snapshot import Draws
from policies.controller.asking import held_as_asked
from policies.controller.control import Budgets, Controlled, Memory, Plant, Tuning, Units
from policies.controller.heat import Warmth, limited_by_heat
from policies.controller.pausing import Paused
from policies.controller.together import Together
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.evaluate import Headroom

__all__ = ["ROOM_WITHIN_S", "Holding", "Remembered", "look"]

#: What was admitted waits so long for its room, s, and else goes back to the queue.
ROOM_WITHIN_S = 60.0


@dataclass(frozen=True, eq=False)
class Remembered:
    """What the last look left: units, what budgets carry besides, heat, and who stands still.

    ``fresh`` says of each GPU whether it was heard, ``last_held`` since when no attempt holds it,
    and ``ordered_w`` which cap its agent was told last, W; inf: none. ``rest_share`` is what jobs
    drew that stood still last.
    """

    units: Memory = field(default_factory=Memory)
    excess: Excess = field(default_factory=Excess)
    warmth: Warmth = field(default_factory=Warmth)
    fresh: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    paused: Paused = field(default_factory=Paused)
    together: Together = field(default_factory=Together)
    last_held: LastHeld = field(default_factory=LastHeld)
    ordered_w: Floats = field(default_factory=lambda: np.zeros(0))
    rest_share: float = AT_REST


@dataclass(frozen=True, eq=False)
class Holding:
    """What the controller makes of a moment.

    ``may_cap`` says of each GPU whether caps on it can be counted on; ``starts_low``: all machines
    that take jobs can be, so that jobs start under the lowest caps that they accept. ``paused`` is
    what is to stand still, and ``before`` what was; ``asked`` says of each budget whether somebody
    asks for it.
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
    asked: Bools
    standing: Standing
    before: Paused
    paused: Paused
    together: Together
    last_held: LastHeld
    rest_share: float

    @property
    def remembered(self) -> Remembered:
        """What this look leaves to the next one."""
        return Remembered(
            units=self.found.memory,
            excess=self.excess,
            warmth=self.warmth,
            fresh=self.headroom.summary.gpus.fresh,
            paused=self.paused,
            together=self.together,
            last_held=self.last_held,
            ordered_w=self._ordered_w,
            rest_share=self.rest_share,
        )

    @property
    def _ordered_w(self) -> Floats:
        """Return the cap that each GPU is told now; where none can be told, the last one."""
        gpus, _, caps_w = self.caps()
        told_w = np.full(len(self.may_cap), np.inf)
        told_w[gpus] = caps_w
        return np.where(self.may_cap, told_w, self.plant.ordered_w)

    @property
    def kept(self) -> Bools:
        """Say of each budget whether caps and pauses keep it, so that nobody else gives way."""
        settles = any(each in self.paused for each in self.units.id.tolist())
        return np.asarray(self.found.holds | (self.asked & settles))

    def caps(self) -> tuple[Ints, Ints, Floats]:
        """Return rows of GPUs, the id of whom each is capped for, and the cap, W.

        What stands still is capped, too: it goes on under that.
        """
        units, paused = self.units, self.paused
        cap_w = self.found.cap_w[units.unit]
        is_capped = np.isfinite(cap_w)
        parts = [(units.gpu[is_capped], units.id[units.unit[is_capped]], cap_w[is_capped])]
        known = set(units.id.tolist())
        for attempt, rows in self.held.each():
            if attempt.id in paused.cap_w and attempt.id not in known:
                gpu = self.held.gpu_rows(rows)
                gpu = gpu[self.may_cap[gpu]]
                lowest_w = np.full(len(gpu), paused.cap_w[attempt.id])
                parts.append((gpu, np.full(len(gpu), attempt.id), lowest_w))
        gpus, holders, caps_w = zip(*parts, strict=True)
        return np.concatenate(gpus), np.concatenate(holders), np.concatenate(caps_w)

    def brought_down(self) -> tuple[Headroom, AllocationArrays]:
        """Return the fleet once all has given way as far as it agreed, and what is reserved."""
        return brought_down(self.headroom, self.held, self.units, self.found)

    @property
    def draws(self) -> dict[str, Draws]:
        """What elastic jobs draw now, and without a cap, by key."""
        return draws_of(self.headroom, self.held, self.units, self.found)


def look(
    headroom: Headroom,
    held: Allocations,
    *,
    may_cap: Bools,
    ready: Bools,
    unmanaged: Unmanaged,
    resting: Collection[int],
    memory: Remembered,
    standing: Standing,
    tuning: Tuning,
) -> Holding | None:
    """Return what the controller makes of a moment; None: there is no GPU that it may cap.

    ``may_cap`` says of each GPU whether caps on it can be counted on, ``ready`` of each node
    whether its machine takes jobs; ``resting`` are the ids of attempts that stand still, and
    ``standing`` says who agreed to.
    """
    parts = headroom.fleet.parts
    if parts is not None:
        # A cap is of a GPU as a whole: it would hold back whoever has another slice of it.
        may_cap = may_cap & ~parts.is_split & ~parts.is_core
    if not may_cap.any():
        return None
    last_held = memory.last_held.after(held.gpus, headroom.at)
    comes_to_rest = last_held.comes_to_rest
    units = units_of(held, headroom, may_cap, unmanaged, resting, memory.units.since, comes_to_rest)
    heat_w, warmth = limited_by_heat(headroom, memory.warmth)
    plant = plant_of(headroom, heat_w, memory.ordered_w)
    fresh = headroom.summary.gpus.fresh
    known = memory.fresh if len(memory.fresh) == len(fresh) else fresh
    heard = np.flatnonzero(fresh & ~known)
    budgets, excess = steadied(budgets_of(headroom), plant, memory.excess, headroom.at, heard)
    idle_w = np.nan_to_num(headroom.fleet.gpus.idle_w)
    budgets = without_ended(budgets, plant, comes_to_rest, idle_w)
    before = without_new(memory.units, plant, units, budgets.reach, heard)
    asked = asked_sites(headroom, budgets)
    share = rest_share(headroom, held, resting, memory.rest_share)
    found, paused = held_as_asked(
        plant, units, budgets, before, memory.paused,
        together=memory.together, asked=asked, now=headroom.at, tuning=tuning,
        may_pause=standing.speeds, rest_w=still_w(headroom, share),
        is_in_time=standing.is_in_time,
    )  # fmt: skip
    takes_jobs = ready[headroom.fleet.gpus.node] & headroom.summary.gpus.fresh
    if parts is not None:
        takes_jobs &= ~parts.is_split
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
        found=found,
        asked=asked,
        standing=standing,
        before=memory.paused,
        paused=paused,
        together=memory.together.after(plant, units, budgets, found),
        last_held=last_held,
        rest_share=share,
    )
