"""What giving the restrictions of a run back would bring, and what it would break. Pure.

An upper bound: a GPU that is at its cap may want all of its rated power, and nobody knows whether
it does. So what is said to stay within its budget does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.headroom.evaluate import Headroom
from policies.restrictions.kinds import KINDS, RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.rules.words import spoken
from policies.scopes import ScopeKind

__all__ = ["GivesBack", "gives_back"]

Floats = NDArray[np.float64]

#: A GPU that draws this share of its cap may be held by it.
_AT_CAP = 0.9
#: One that draws this much more than when idle works, and may be held by a cap on its clocks.
_WORKS = 1.2


@dataclass(frozen=True)
class GivesBack:
    """The outcome of ending a run now."""

    #: what would not be in force any more, in words
    restrictions: tuple[str, ...]
    #: what GPUs may draw more, W
    most_w: float
    #: places that may be over their budget then, the worst first, in words
    over: tuple[str, ...]

    @property
    def text(self) -> str:
        """Say it in one line."""
        if not self.restrictions:
            return "It holds nothing."
        said = f"Gives back {', '.join(self.restrictions)}."
        if self.most_w < 1.0:
            return f"{said} No GPU draws more by that."
        said += f" GPUs may draw up to {spoken(self.most_w, 'W')} more:"
        if not self.over:
            return f"{said} every rack and zone stays within its budget."
        more = f" and {len(self.over) - 3} more" if len(self.over) > 3 else ""
        return f"{said} {'; '.join(self.over[:3])}{more}."


def gives_back(owner: str, headroom: Headroom, in_force: InForce) -> GivesBack:
    """Return what ends when all that ``owner`` and its steps hold is given back.

    ``owner``: how the owners of its restrictions begin.
    """
    ending = [each for each in in_force.restrictions if each.owner.startswith(owner)]
    staying = [each for each in in_force.restrictions if not each.owner.startswith(owner)]
    back_w = _back_w(headroom, in_force, InForce.standing(in_force.at, staying))
    over = sorted(_over(headroom, back_w), reverse=True)
    return GivesBack(
        tuple(_words(each) for each in ending), float(back_w.sum()), tuple(said for _, said in over)
    )


def _back_w(headroom: Headroom, before: InForce, after: InForce) -> Floats:
    """Return what each GPU may draw more, W."""
    fleet, load_w = headroom.fleet, headroom.summary.gpus.load_w
    rated_w = np.nan_to_num(fleet.gpus.rated_w)
    power, clock = RestrictionKind.POWER_CAP_W, RestrictionKind.CLOCK_CAP_MHZ
    cap_w, then_w = before.by_gpu(fleet, power), after.by_gpu(fleet, power)
    is_held = (then_w > cap_w) & (load_w >= _AT_CAP * cap_w)
    works = load_w > _WORKS * np.nan_to_num(fleet.gpus.idle_w)
    is_held |= works & (after.by_gpu(fleet, clock) > before.by_gpu(fleet, clock))
    most_w = np.minimum(rated_w, then_w)
    return np.where(is_held, np.maximum(most_w - load_w, 0.0), 0.0)


def _over(headroom: Headroom, back_w: Floats) -> Iterator[tuple[float, str]]:
    """Yield the places that may be over their budget, with by how much, W."""
    fleet = headroom.fleet
    rack_of_gpu = fleet.nodes.rack[fleet.gpus.node]
    of_rack: Floats = np.bincount(rack_of_gpu, weights=back_w, minlength=len(fleet.racks)).astype(
        np.float64
    )
    yield from _places(headroom, ScopeKind.RACK, of_rack, "power_drawn_w", "power_budget_w")
    zone = fleet.racks.zone
    in_zone = zone >= 0
    of_zone = np.bincount(
        zone[in_zone], weights=of_rack[in_zone], minlength=len(fleet.zones)
    ).astype(np.float64)
    yield from _places(headroom, ScopeKind.ZONE, of_zone, "cooling_drawn_w", "cooling_capacity_w")


def _places(
    headroom: Headroom, kind: ScopeKind, more_w: Floats, load: str, budget: str
) -> Iterator[tuple[float, str]]:
    table = headroom.table(kind)
    then_w = table.columns[load] + more_w
    over_w = then_w - table.columns[budget]
    for row in np.flatnonzero((more_w > 0.0) & (over_w > 0.0)).tolist():
        would, may = spoken(float(then_w[row]), "W"), spoken(float(table.columns[budget][row]), "W")
        yield float(over_w[row]), f"{kind} {table.names[row]} would be at {would} of {may}"


def _words(each: ActiveRestriction) -> str:
    value = "" if each.value is None else f" {spoken(each.value, KINDS[each.kind].unit)}"
    return f"{each.kind}{value} on {each.scope}"
