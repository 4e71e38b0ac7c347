"""What a curtailment would cost where the controller holds it: its own decision, asked beforehand.

The controller is asked what it would do now if the site might draw no more than the target, with
all that it remembers. So the answer has its margins, and what it counts together and apart. It
counts what jobs *may* draw: a target that it holds so is certain. What its caps cost goes by what
jobs draw *now*: a cap above that takes nothing. Many jobs at one moment are a fair sample of what
each does over time, so that what rests now stands for what rests then. Pure.

Over hours jobs end, and while some stand still none begins in their place. So what jobs that run
draw is free once they end, and as much of the target is given back to those that stand still. Of an
end it is known that it comes before the walltime is up, and any moment until then is as likely
(:mod:`admission.core.cycle.ends`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from admission.core.allocation.allocations import OpenAttempt
from admission.core.controlling import still_w
from admission.core.curtailment.cost import (
    BAND,
    BEYOND,
    PAUSE,
    SHRINK,
    Asked,
    Estimate,
    Measure,
    answered,
    likely,
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

__all__ = ["estimate_held", "obeyed"]

#: What is told shows so much later, s.
_REACTS_S = 6.0
#: The most that is lost goes by what jobs may draw. Of the work that a cap would take of a job
#: which always does all that it can, it takes so much: jobs load, save and wait, too. This and the
#: next are by 200 random events on the twin (seed 1).
_OF_CAPS = 0.87
#: The part of what is not known of loads and measures that is left of an answer of the controller.
_DOUBT = 0.5
#: Caps come in whole watts, so a speed that is lower by so little is the same.
_SAME_SPEED = 0.005
#: A job that loses no more than this share of its speed is not told to be slowed beyond what it
#: agreed to: what it draws meets its cap at times.
_HARDLY = 0.02
#: The mean over a time is that of its begin, its middle and its end, by Simpson's rule.
_POINTS = ((0.0, 1.0 / 6.0), (0.5, 4.0 / 6.0), (1.0, 1.0 / 6.0))
#: Ends that free no more than this share of a target change nothing.
_FEW = 0.002
#: Ends may come sooner than is known, and so more is free: by this factor at most, of 8 of 10.
_SOONER = 2.0


def obeyed(told: int, rested: int) -> float:
    """Return how likely a job stands still that is told to, after so many were and so many did.

    By the rule of succession: as likely as not where nobody was told yet.
    """
    return (rested + 1.0) / (told + 2.0)


def estimate_held(
    holding: Holding,
    site: str,
    asked: Asked,
    *,
    may_pause: Mapping[int, float],
    tuning: Tuning,
    obeys: float = 1.0,
) -> Estimate:
    """Return what it costs to have the controller hold a site to what is asked.

    ``may_pause`` has the attempts that agreed to stand still, with the speed that is left of each
    where it is slowed as far as it agreed. ``obeys``: how likely one of them does so in time.
    Raises KeyError for a site that is none.
    """
    return _Answer(holding, site, asked, may_pause, tuning, obeys).done()


class _Answer:
    """What is asked, as the controller would hold it."""

    def __init__(
        self,
        holding: Holding,
        site: str,
        asked: Asked,
        may_pause: Mapping[int, float],
        tuning: Tuning,
        obeys: float,
    ) -> None:
        self.holding, self.site, self.asked = holding, site, asked
        self.may_pause, self.tuning, self.obeys = may_pause, tuning, obeys
        #: by target, W: each is asked of the controller once
        self._held: dict[float, _HeldTo] = {}
        self.found = self._held_to(asked.target_w)

    def done(self) -> Estimate:
        found = self.found
        late = self._late_w()
        return answered(
            self.asked,
            lambda target_w: self._over_time(target_w, 1.0),
            load_w=found.load_w,
            possible_w=found.load_w - found.least_target_w,
            doubt=_DOUBT,
            band=self._band,
            expected=self._expected(*late),
            late=late,
        )

    def _late_w(self) -> tuple[float, float]:
        """Return what jobs would save that do not stand still in time, W, and how far it strays."""
        saves_w = [each.saves_w for each in self.found.measures(0.0) if each.what == PAUSE]
        spread_w = math.sqrt(self.obeys * (1.0 - self.obeys) * sum(each**2 for each in saves_w))
        return (1.0 - self.obeys) * sum(saves_w), spread_w

    def _expected(self, late_w: float, spread_w: float) -> float:
        """Return how likely it is enough at what jobs draw now, with what comes too late."""
        found = self.found
        if not found.is_held or any(each.what == BEYOND for each in found.measures(0.0)):
            return 0.0
        left_w = self.asked.target_w - found.expected_w
        return likely(left_w, late_w, spread_w) if late_w > 0.0 else 1.0

    def _held_to(self, target_w: float) -> _HeldTo:
        if target_w not in self._held:
            self._held[target_w] = _HeldTo(
                self.holding, self.site, target_w, self.may_pause, self.tuning
            )
        return self._held[target_w]

    def _over_time(self, target_w: float, sooner: float) -> tuple[Measure, ...]:
        """Return measures over all of the time, with what ends free given back."""
        lasts_s, first = self.asked.lasts_s, self._held_to(target_w)
        freed_w = [sooner * first.freed_w(share * lasts_s) for share, _ in _POINTS]
        if max(freed_w) <= _FEW * target_w:
            return self._as_obeyed(first.measures(lasts_s))
        looks = [self._held_to(target_w + each_w) for each_w in freed_w]
        return self._as_obeyed(_mean([tuple(look.measures(lasts_s)) for look in looks]))

    def _as_obeyed(self, measures: Iterable[Measure]) -> tuple[Measure, ...]:
        return tuple(
            replace(each, lost_gpu_h=self.obeys * each.lost_gpu_h) if each.what == PAUSE else each
            for each in measures
        )

    def _band(self, error_w: float) -> tuple[float, float]:
        """Return the least and the most work that is lost.

        The least: less is to be taken off, and ends come sooner. The most: more is, nobody ends,
        and all draw what they may. Each job stands still as a whole, or does not.
        """
        target_w, lasts_s = self.asked.target_w, self.asked.lasts_s
        least = self._over_time(target_w + error_w, _SOONER)
        most = self._held_to(target_w - error_w)
        at_most = self._as_obeyed(most.measures(lasts_s, may=True))
        low, high = (sum(each.lost_gpu_h for each in part) for part in (least, at_most))
        return max(low - self._lumps(least), 0.0), high + self._lumps(at_most)

    def _lumps(self, measures: Sequence[Measure]) -> float:
        """Return by how much work may be off since each of those told stands still, or does not."""
        if self.obeys >= 1.0:
            return 0.0
        pauses = [each.lost_gpu_h / self.obeys for each in measures if each.what == PAUSE]
        squares = sum(each**2 for each in pauses)
        return BAND * math.sqrt(self.obeys * (1.0 - self.obeys) * squares)


def _mean(looks: Sequence[Sequence[Measure]]) -> tuple[Measure, ...]:
    """Return measures over a time of which :data:`_POINTS` are looked at: each as it is first."""
    first: dict[str, Measure] = {}
    lost_gpu_h: dict[str, float] = defaultdict(float)
    for measures, (_, weight) in zip(looks, _POINTS, strict=True):
        for each in measures:
            first.setdefault(each.key, each)
            lost_gpu_h[each.key] += weight * each.lost_gpu_h
    return tuple(replace(each, lost_gpu_h=lost_gpu_h[key]) for key, each in first.items())


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
    def expected_w(self) -> float:
        """What the site draws then, W, if all that is not held go on as now."""
        gpu, units = self.units.gpu, self.units
        stands = np.array([each in self.paused for each in units.id.tolist()], dtype=bool)
        left_w = np.where(stands[units.unit], self.rest_w[gpu], self.found.cap_w[units.unit])
        off_w = self.factor * np.maximum(self.plant.drawn_w[gpu] - left_w, 0.0)
        off = self.holding.budgets.reach.of_gpus(off_w, self.plant.rack[gpu])
        return self.load_w - float(off[self.place])

    @property
    def is_held(self) -> bool:
        """Whether caps and pauses keep the target at all."""
        return bool(self.found.holds[self.place])

    def freed_w(self, after_s: float) -> float:
        """Return what jobs draw that end within so many seconds, W.

        Nothing where nobody stands still: others begin in their place.
        """
        units, attempts = self.units, self._attempts
        if not any(each in self.paused for each in units.id.tolist()):
            return 0.0
        ended = np.array([
            0.0 if each in self.paused or each not in attempts else self._ended(each, after_s)
            for each in units.id.tolist()
        ])  # fmt: skip
        gpu = units.gpu
        drawn_w = np.minimum(self.plant.drawn_w[gpu], self.found.cap_w[units.unit])
        above_w = np.maximum(drawn_w - self.rest_w[gpu], 0.0) * ended[units.unit]
        racks = self.plant.rack[gpu]
        return float(self.holding.budgets.reach.of_gpus(self.factor * above_w, racks)[self.place])

    def _ended(self, attempt: int, after_s: float) -> float:
        """Return how likely an attempt has ended after so many seconds."""
        each, now = self._attempts[attempt], self.holding.headroom.at
        ran_s = 0.0 if each.started_at is None else now - each.started_at
        return min(after_s / max(each.request.walltime_s - ran_s, 1.0), 1.0)

    @cached_property
    def _attempts(self) -> dict[int, OpenAttempt]:
        return {each.id: each for each in self.holding.held.attempts}

    @property
    def _may_stand(self) -> Bools:
        return np.array([each in self.may_pause for each in self.units.id.tolist()], dtype=bool)

    def measures(self, lasts_s: float, *, may: bool = False) -> Iterator[Measure]:
        """Yield what jobs would have to do for so many seconds, of those that would do less.

        ``may``: as far as they may come to, and not by what they draw now.
        """
        units, attempts, now_w = self.units, self._attempts, self.found.now_w
        before, after, agreed = self._changes(now_w)
        lost = before - after
        if may:
            at_most = self._changes(self.found.full_w)
            lost = np.maximum(lost, _OF_CAPS * (at_most[0] - at_most[1]))
        gpus, loses_s = np.bincount(units.unit, minlength=len(units)), lasts_s - _REACTS_S
        for row, each in enumerate(units.id.tolist()):
            stands = each in self.paused
            share = float(before[row] if stands else lost[row])
            # Load of no known owner is nobody's job, and what has not begun loses nothing.
            if each not in attempts or units.is_starting[row] or share <= _SAME_SPEED:
                continue
            is_beyond = after[row] < agreed[row] - _HARDLY
            yield Measure(
                key=attempts[each].key,
                project=attempts[each].request.project,
                job_class=attempts[each].request.job_class,
                what=PAUSE if stands else BEYOND if is_beyond else SHRINK,
                gpus=int(gpus[row]),
                saves_w=self._saves_w(row, stands),
                lost_gpu_h=float(gpus[row]) * share * max(loses_s, 0.0) / 3600.0,
            )

    def _changes(self, full_w: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the speed of each unit before, under its cap and as slow as it agreed."""
        caps_w = (self.holding.found.cap_w, self.found.cap_w, self.found.lowest_w)
        before, after, agreed = (self._speeds(cap_w, full_w) for cap_w in caps_w)
        return before, after, agreed

    def _saves_w(self, row: int, stands: bool) -> float:
        mine = self.units.unit == row
        gpu = self.units.gpu[mine]
        left_w = self.rest_w[gpu] if stands else self.found.cap_w[row]
        saved_w = self.factor[mine] * np.maximum(self.plant.drawn_w[gpu] - left_w, 0.0)
        return float(saved_w.sum())

    def _speeds(self, cap_w: Floats, full_w: Floats) -> Floats:
        """Return the speed of each unit under a cap, as a share of its full speed.

        ``full_w``: what one of its GPUs draws at that, W.
        """
        plant, units = self.plant, self.units
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
