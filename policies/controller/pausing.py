"""Pauses: what stands still where slowing as far as was agreed is not enough.

A job that agreed to it stands still before one that agreed to nothing is slowed. Who gives the most
watts for the least work goes first. It goes on, the last first, once all budgets would hold it at
the slowest that it agreed to, with some room beside. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fleet.groups import sum_by
from policies.controller.control import Budgets, Controlled, Plant, Units
from policies.headroom.columns import Floats

__all__ = ["Paused", "paused_after"]

#: Share of a budget that has to be left beside what goes on.
_BAND = 0.01


@dataclass(frozen=True)
class Paused:
    """What stands still: by id, in the order in which it began to, what each saves by budget, W."""

    saves_w: Mapping[int, Floats] = field(default_factory=dict)

    def __contains__(self, unit: int) -> bool:
        return unit in self.saves_w


def paused_after(
    plant: Plant,
    units: Units,
    budgets: Budgets,
    found: Controlled,
    before: Paused,
    *,
    may_pause: Mapping[int, float],
    idle_w: Floats,
) -> Paused:
    """Return what is to stand still now.

    ``may_pause`` has those that agreed to it and have begun, with the speed that is left of each
    where it is slowed as far as it agreed. ``idle_w`` is what GPUs of the inventory draw at rest.
    What is paused and no unit any more rests already, and is in what budgets carry besides.
    """
    usable_w, reach = found.usable_w, budgets.reach
    factor = 1.0 + plant.host_share[units.gpu]
    lowest_w = factor * found.lowest_w[units.unit]
    saves_w = np.maximum(lowest_w - factor * idle_w[units.gpu], 0.0)
    place = {each: row for row, each in enumerate(units.id.tolist())}

    def saved_by(each: int) -> Floats:
        mine = units.unit == place[each]
        return reach.of_gpus(saves_w[mine], plant.rack[units.gpu[mine]])

    # What is to start waits for room, and nothing stands still for it.
    running = ~units.is_starting[units.unit]
    running_w = reach.of_gpus(np.where(running, lowest_w, 0.0), plant.rack[units.gpu])
    short_w = running_w + found.other_w - usable_w
    short_w = np.where(np.isnan(short_w), -np.inf, short_w)
    kept = {each: watts for each, watts in before.saves_w.items() if each in may_pause}
    for each in kept:
        if each in place:
            kept[each] = saved_by(each)
            short_w = short_w - kept[each]
    if not (short_w > 0.0).any():
        return Paused(_without_those_that_go_on(kept, short_w, usable_w))
    able = [each for each in may_pause if each in place and each not in kept]
    total_w = sum_by(saves_w, units.unit, len(units))
    gpus = np.bincount(units.unit, minlength=len(units))
    price = gpus / np.maximum(total_w, 1e-9)
    for each in sorted(able, key=lambda each: (price[place[each]] * may_pause[each], each)):
        saved_w = saved_by(each)
        if (saved_w[short_w > 0.0] > 0.0).any():
            kept[each] = saved_w
            short_w = short_w - saved_w
    return Paused(kept)


def _without_those_that_go_on(
    kept: dict[int, Floats], short_w: Floats, usable_w: Floats
) -> dict[int, Floats]:
    """Return what stays paused: the last goes on first, as far as there is room for it."""
    room_w = np.where(np.isnan(usable_w), np.inf, -short_w - _BAND * usable_w)
    left = dict(kept)
    for each in reversed(kept):
        more_w = left[each]
        if (more_w > room_w).any():
            break
        room_w = room_w - more_w
        del left[each]
    return left
