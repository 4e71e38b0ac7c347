"""What units that are not slowed draw together at most: less than the sum of what each does.

The sum of caps holds a budget whatever load does, all at once as well. That is right for what a
breaker keeps. A limit that somebody asks for, and that is judged by its seconds, need not wait for
all peaks in one moment: of it counts what those that agreed to nothing drew together at most, of
late. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from policies.controller.control import Budgets, Controlled, Kind, Plant, Units
from policies.controller.levels import LOWEST
from policies.headroom.columns import Bools, Floats

__all__ = ["Together", "slowed_together", "with_peaks_apart"]

#: What was drawn together is forgotten by half in so many s.
_FORGETS_IN_S = 600.0


@dataclass(frozen=True, eq=False)
class Together:
    """By budget: the most that its units drew together of late, and what they would one by one, W.

    Empty: nothing is known.
    """

    at: float = -np.inf
    most_w: Floats = field(default_factory=lambda: np.zeros(0))
    apart_w: Floats = field(default_factory=lambda: np.zeros(0))

    def after(self, plant: Plant, units: Units, budgets: Budgets, found: Controlled) -> Together:
        """Return what is known after a round. Of units that are new too little is known.

        While some are slowed, what all draw says nothing of what they would.
        """
        counts = ((units.kind == Kind.FIRM) & found.is_learned)[units.unit]
        gpus = units.gpu[counts]
        factor, rack = 1.0 + plant.host_share[gpus], plant.rack[gpus]
        now_w = budgets.reach.of_gpus(factor * plant.drawn_w[gpus], rack)
        apart_w = budgets.reach.of_gpus(factor * found.full_w[units.unit[counts]], rack)
        most_w = apart_w
        if len(self.most_w) == len(now_w):
            slowed = slowed_together(plant, units, budgets, found)
            passed_s = max(found.memory.at - self.at, 0.0)
            keep = np.where(slowed, 1.0, 0.5 ** (passed_s / _FORGETS_IN_S))
            # What comes or goes moves what was drawn by as much.
            before_w = self.most_w + apart_w - self.apart_w
            most_w = np.maximum(now_w, now_w + (before_w - now_w) * keep)
        return Together(found.memory.at, np.minimum(most_w, apart_w), apart_w)

    @property
    def spare_w(self) -> Floats:
        """What is left over of the sum of all, by budget, W."""
        return self.apart_w - self.most_w


def slowed_together(plant: Plant, units: Units, budgets: Budgets, found: Controlled) -> Bools:
    """Say of each budget whether something is slowed there that agreed to nothing.

    Its peaks are at its cap then, and come together.
    """
    is_slowed = (units.kind == Kind.FIRM) & (found.filled.level < LOWEST)
    gpus = units.gpu[is_slowed[units.unit]]
    return budgets.reach.of_gpus(np.ones(len(gpus)), plant.rack[gpus]) > 0.0


def with_peaks_apart(budgets: Budgets, together: Together, is_asked: Bools) -> Budgets:
    """Return budgets of which those that somebody asks for have what peaks leave that are apart."""
    if len(together.most_w) != len(budgets.budget_w):
        return budgets
    return replace(budgets, budget_w=budgets.budget_w + np.where(is_asked, together.spare_w, 0.0))
