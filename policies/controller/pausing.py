"""Pauses: what stands still where slowing as far as was agreed is not enough.

A job that agreed to it stands still before one that agreed to nothing is slowed. Who gives the most
watts for the least work goes first, and nobody who is not needed once all are chosen. It goes on,
the last first, once all budgets would hold it at the slowest that it agreed to, with some room
beside; where the last does not fit, one before it may.

A pause takes some seconds to show. Where budgets have to be kept only later, what was told to stand
still counts as if it did, so that nobody is slowed meanwhile. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fleet.groups import most_by, sum_by
from policies.controller.control import (
    Budgets,
    Controlled,
    Memory,
    Plant,
    Tuning,
    Units,
    control,
)
from policies.headroom.columns import Floats

__all__ = ["Paused", "held_with_pauses", "paused_after"]

#: Share of a budget that has to be left beside what goes on.
_BAND = 0.003


@dataclass(frozen=True)
class Paused:
    """What stands still: by id, in the order in which it began to, what each saves by budget, W.

    ``goes_w``: the same of what was told to go on, and is not at work yet. ``cap_w``: the cap under
    which each of both goes on, W.
    """

    saves_w: Mapping[int, Floats] = field(default_factory=dict)
    goes_w: Mapping[int, Floats] = field(default_factory=dict)
    cap_w: Mapping[int, float] = field(default_factory=dict)

    def __contains__(self, unit: int) -> bool:
        return unit in self.saves_w


def held_with_pauses(
    plant: Plant,
    units: Units,
    budgets: Budgets,
    memory: Memory,
    before: Paused,
    *,
    now: float,
    tuning: Tuning,
    may_pause: Mapping[int, float],
    rest_w: Floats,
    is_in_time: bool,
) -> tuple[Controlled, Paused]:
    """Return the caps to set now, and what is to stand still: see :func:`paused_after`.

    ``rest_w`` is what GPUs of the inventory draw while what they run stands still. ``is_in_time``:
    what is told to stand still now does so before it has to.
    """
    still_w = most_by(rest_w[units.gpu], units.unit, len(units))

    def held(paused: Paused) -> Controlled:
        stands = np.array([is_in_time and each in paused for each in units.id.tolist()], dtype=bool)
        return control(
            plant, units, budgets, memory,
            now=now, tuning=tuning, still_w=np.where(stands, still_w, np.nan),
        )  # fmt: skip

    found = held(before)
    after = paused_after(
        plant, units, budgets, found, before, may_pause=may_pause, rest_w=rest_w
    )  # fmt: skip
    if is_in_time and after.saves_w.keys() != before.saves_w.keys():
        found = held(after)
    return replace(found, memory=_with_resting(found.memory, memory, may_pause, after)), after


def _with_resting(
    after: Memory, before: Memory, may_pause: Collection[int], paused: Paused
) -> Memory:
    """Return a memory that also has what was known of those that rest, and are no units."""
    resting = [each for each in may_pause if each not in after.since and each in before.since]
    cap_w = {each: paused.cap_w.get(each, before.cap_w[each]) for each in resting}
    return replace(
        after,
        since={**after.since, **{each: before.since[each] for each in resting}},
        full_w={**after.full_w, **{each: before.full_w[each] for each in resting}},
        cap_w={**after.cap_w, **cap_w},
    )


def paused_after(
    plant: Plant,
    units: Units,
    budgets: Budgets,
    found: Controlled,
    before: Paused,
    *,
    may_pause: Mapping[int, float],
    rest_w: Floats,
) -> Paused:
    """Return what is to stand still now.

    ``may_pause`` has those that agreed to it and have begun, with the speed that is left of each
    where it is slowed as far as it agreed. ``rest_w`` is what GPUs of the inventory draw at rest.
    What is paused and no unit any more rests already, and is in what budgets carry besides.
    """
    return _Choice(plant, units, budgets, found, before, may_pause, rest_w).done()


class _Choice:
    """One decision on what stands still; what budgets are short of moves along with it."""

    def __init__(
        self,
        plant: Plant,
        units: Units,
        budgets: Budgets,
        found: Controlled,
        before: Paused,
        may_pause: Mapping[int, float],
        rest_w: Floats,
    ) -> None:
        self.plant, self.units, self.reach, self.found = plant, units, budgets.reach, found
        self.before, self.may_pause = before, may_pause
        self.place = {each: row for row, each in enumerate(units.id.tolist())}
        factor = 1.0 + plant.host_share[units.gpu]
        lowest_w = factor * found.lowest_w[units.unit]
        self.gpu_saves_w = np.maximum(lowest_w - factor * rest_w[units.gpu], 0.0)
        # What is to start waits for room, and nothing stands still for it.
        running = ~units.is_starting[units.unit]
        running_w = self.reach.of_gpus(np.where(running, lowest_w, 0.0), plant.rack[units.gpu])
        short_w = running_w + found.other_w - found.usable_w
        self.short_w = np.where(np.isnan(short_w), -np.inf, short_w)

    def done(self) -> Paused:
        kept = self._kept()
        if (self.short_w > 0.0).any():
            return self._after({**kept, **self._taken(kept)})
        return self._after(self._without_those_that_go_on(kept))

    def _saved_by(self, each: int) -> Floats:
        mine = self.units.unit == self.place[each]
        rack = self.plant.rack[self.units.gpu[mine]]
        return self.reach.of_gpus(self.gpu_saves_w[mine], rack)

    def _kept(self) -> dict[int, Floats]:
        """Return what stands still, and count what it saves, and what others are about to draw."""
        kept = {pk: watts for pk, watts in self.before.saves_w.items() if pk in self.may_pause}
        for each in kept:
            if each in self.place:
                kept[each] = self._saved_by(each)
                self.short_w = self.short_w - kept[each]
        for each, watts in self.before.goes_w.items():
            if each in self.may_pause and each not in self.place:
                self.short_w = self.short_w + watts
        return kept

    def _taken(self, kept: Collection[int]) -> dict[int, Floats]:
        """Return who stands still from now on: first who loses the least work for the watts."""
        place, units = self.place, self.units
        able = [each for each in self.may_pause if each in place and each not in kept]
        total_w = sum_by(self.gpu_saves_w, units.unit, len(units))
        gpus = np.bincount(units.unit, minlength=len(units))
        lost = {each: float(gpus[place[each]]) * self.may_pause[each] for each in able}
        price = {each: lost[each] / max(total_w[place[each]], 1e-9) for each in able}
        taken: dict[int, Floats] = {}
        for each in sorted(able, key=lambda each: (price[each], each)):
            saved_w = self._saved_by(each)
            if (saved_w[self.short_w > 0.0] > 0.0).any():
                taken[each] = saved_w
                self.short_w = self.short_w - saved_w
        # Some were taken before one that alone would have been enough.
        for each in sorted(taken, key=lambda each: (-lost[each], each)):
            if (self.short_w + taken[each] <= 0.0)[taken[each] > 0.0].all():
                self.short_w = self.short_w + taken.pop(each)
        return taken

    def _without_those_that_go_on(self, kept: Mapping[int, Floats]) -> dict[int, Floats]:
        """Return what stays paused: the last goes on first, and others as far as there is room."""
        usable_w = self.found.usable_w
        room_w = np.where(np.isnan(usable_w), np.inf, -self.short_w - _BAND * usable_w)
        left = dict(kept)
        for each in reversed(list(kept)):
            if (left[each] <= room_w).all():
                room_w = room_w - left.pop(each)
        return left

    def _after(self, chosen: Mapping[int, Floats]) -> Paused:
        before, lowest_w = self.before, self.found.lowest_w
        goes_w = {
            each: watts
            for each, watts in {**before.goes_w, **before.saves_w}.items()
            if each in self.may_pause and each not in self.place and each not in chosen
        }
        cap_w = {
            each: float(lowest_w[self.place[each]]) if each in self.place else before.cap_w[each]
            for each in (*chosen, *goes_w)
        }
        return Paused(chosen, goes_w, cap_w)
