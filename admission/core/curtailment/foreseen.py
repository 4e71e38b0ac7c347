"""What a curtailment would cost where the controller holds it: its own decision, asked beforehand.

The controller is asked what it would do now if the site might draw no more than the target, with
all that it remembers. So the answer has its margins, and what it counts together and apart; each
job is slowed as far as it would be, and stands still if it would. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from admission.core.controlling import still_w
from admission.core.curtailment.cost import (
    BEYOND,
    PAUSE,
    SHRINK,
    Asked,
    Estimate,
    Measure,
    answered,
)
from admission.core.holding import Holding
from fleet.groups import sum_by
from physics.power import throughput_under_cap
from policies.controller.asking import held_as_asked
from policies.controller.control import Tuning
from policies.controller.together import with_peaks_apart
from policies.headroom.columns import Bools, Floats
from policies.headroom.reach import Need
from policies.scopes import Scope, ScopeKind

__all__ = ["estimate_held"]

#: What is told shows so much later, s.
_REACTS_S = 6.0
#: Of the work that a cap would take of a job which always does all that it can, it takes so much:
#: jobs load, save and wait, too. This and the next are by 200 random events on the twin (seed 1).
_OF_CAPS = 0.87
#: The part of what is not known of loads and measures that is left of an answer of the controller.
_DOUBT = 0.5
#: Caps come in whole watts, so a speed that is lower by so little is the same.
_SAME_SPEED = 0.005


def estimate_held(
    holding: Holding,
    site: str,
    asked: Asked,
    *,
    may_pause: Mapping[int, float],
    tuning: Tuning,
) -> Estimate:
    """Return what it costs to have the controller hold a site to what is asked.

    ``may_pause`` has the attempts that agreed to stand still, with the speed that is left of each
    where it is slowed as far as it agreed. Raises KeyError for a site that is none.
    """

    def held_to(target_w: float) -> _HeldTo:
        return _HeldTo(holding, site, target_w, may_pause, tuning)

    found = held_to(asked.target_w)
    return answered(
        asked,
        lambda target_w: tuple(held_to(target_w).measures(asked.lasts_s)),
        load_w=found.load_w,
        # What jobs may draw can be more than they draw: then nothing is promised.
        possible_w=max(found.load_w - found.least_target_w, 0.0),
        doubt=_DOUBT,
    )


class _HeldTo:
    """What the controller makes of a moment in which the budget of a site is lowered."""

    def __init__(
        self,
        holding: Holding,
        site: str,
        target_w: float,
        may_pause: Mapping[int, float],
        tuning: Tuning,
    ) -> None:
        self.holding, self.may_pause, self.tuning = holding, may_pause, tuning
        self.plant, self.units, budgets = holding.plant, holding.units, holding.budgets
        self.place = budgets.reach.place_of(Need(Scope(ScopeKind.SITE, site), 0.0))
        here = np.arange(budgets.reach.count) == self.place
        lowered_w = np.where(here, np.fmin(budgets.budget_w, target_w), budgets.budget_w)
        lowered, asked = replace(budgets, budget_w=lowered_w), holding.asked | here
        apart = with_peaks_apart(lowered, holding.together, asked)
        self.apart_w = float((apart.budget_w - lowered_w)[self.place])
        self.rest_w = still_w(holding.headroom, holding.rest_share)
        self.factor = 1.0 + self.plant.host_share[self.units.gpu]
        self.found, self.paused = held_as_asked(
            self.plant, self.units, lowered, holding.found.memory, holding.paused,
            together=holding.together, asked=asked, now=holding.headroom.at, tuning=tuning,
            may_pause=may_pause, rest_w=self.rest_w, is_in_time=True,
        )  # fmt: skip

    @property
    def load_w(self) -> float:
        return float(self.holding.budgets.load_w[self.place])

    @property
    def least_target_w(self) -> float:
        """The lowest target that is kept with all as low as they agreed, W."""
        units, found, reach = self.units, self.found, self.holding.budgets.reach
        gpu_w = np.where(
            self._may_stand[units.unit], self.rest_w[units.gpu], found.lowest_w[units.unit]
        )
        gpu_w = np.where(units.is_starting[units.unit], 0.0, found.memory.held_share * gpu_w)
        units_w = reach.of_gpus(self.factor * gpu_w, self.plant.rack[units.gpu])[self.place]
        least_w = float(units_w + found.other_w[self.place])
        return max(least_w / (1.0 - self.tuning.margin) - self.apart_w, 0.0)

    @property
    def _may_stand(self) -> Bools:
        return np.array([each in self.may_pause for each in self.units.id.tolist()], dtype=bool)

    def measures(self, lasts_s: float) -> Iterator[Measure]:
        """Yield what jobs would have to do for so many seconds, of those that would do less."""
        units, before = self.units, self._speeds(self.holding.found.cap_w)
        after, agreed = self._speeds(self.found.cap_w), self._speeds(self.found.lowest_w)
        gpus, loses_s = np.bincount(units.unit, minlength=len(units)), lasts_s - _REACTS_S
        attempts = {each.id: each for each in self.holding.held.attempts}
        for row, each in enumerate(units.id.tolist()):
            stands = each in self.paused
            lost = float(before[row] if stands else _OF_CAPS * (before[row] - after[row]))
            # Load of no known owner is nobody's job, and what has not begun loses nothing.
            if each not in attempts or units.is_starting[row] or lost <= _SAME_SPEED:
                continue
            is_beyond = after[row] < agreed[row] - _SAME_SPEED
            yield Measure(
                key=attempts[each].key,
                project=attempts[each].request.project,
                job_class=attempts[each].request.job_class,
                what=PAUSE if stands else BEYOND if is_beyond else SHRINK,
                gpus=int(gpus[row]),
                saves_w=self._saves_w(row, stands),
                lost_gpu_h=float(gpus[row]) * lost * max(loses_s, 0.0) / 3600.0,
            )

    def _saves_w(self, row: int, stands: bool) -> float:
        mine = self.units.unit == row
        gpu = self.units.gpu[mine]
        left_w = self.rest_w[gpu] if stands else self.found.cap_w[row]
        saved_w = self.factor[mine] * np.maximum(self.plant.drawn_w[gpu] - left_w, 0.0)
        return float(saved_w.sum())

    def _speeds(self, cap_w: Floats) -> Floats:
        """Return the speed of each unit under a cap, as a share of its full speed."""
        plant, units, full_w = self.plant, self.units, self.found.full_w
        gpus = np.maximum(np.bincount(units.unit, minlength=len(units)), 1)

        def mean(values: Floats) -> Floats:
            return sum_by(values[units.gpu], units.unit, len(units)) / gpus

        static_w = np.minimum(mean(plant.static_w), full_w)
        return np.asarray(
            throughput_under_cap(
                cap_w=np.minimum(cap_w, full_w),
                static_w=static_w,
                dynamic_w=full_w - static_w,
                exponent=mean(plant.exponent),
                linear_share=mean(plant.linear_share),
            )
        )
