"""What the controller of running load holds, in sentences for pages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from dashboard import units
from fleet.snapshot import FleetArrays
from policies.caps import status
from policies.caps.status import Held, Status
from policies.headroom.reach import Reach

__all__ = ["Line", "above_rack", "of_fleet", "of_scopes"]

#: So many budgets that caps cannot keep are told of at most; more are counted.
_MOST = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence; ``is_bad`` where somebody has to do something."""

    text: str
    is_bad: bool = False


def of_fleet(scopes: Collection[str] | None = None) -> list[Line]:
    """Return what is held in all, and which of ``scopes`` (None: all) caps cannot keep."""
    found = status.read()
    if found is None:
        return []
    lines = []
    if found.capped:
        what = f"{_gpus(found.capped)} capped, {units.kilowatts(found.taken_w)} kW taken"
        lines.append(Line(f"held by the controller: {what}"))
    unkept = [each for each in found.budgets if _is_unkept(each)]
    unkept = [each for each in unkept if scopes is None or each.scope in scopes]
    lines += [_unkept(each, found) for each in unkept[:_MOST]]
    if len(unkept) > _MOST:
        lines.append(Line(f"so are {len(unkept) - _MOST} other budgets", is_bad=True))
    return lines


def of_scopes(scopes: Collection[str]) -> list[Line]:
    """Return what is held below each of ``scopes``, and whether caps keep it."""
    found = status.read()
    lines = []
    for each in found.budgets if found is not None else ():
        if each.scope not in scopes or each.is_failover:
            continue
        if each.gpus:
            lines.append(_held(each))
        if found is not None and _is_unkept(each):
            lines.append(_unkept(each, found))
    return lines


def above_rack(fleet: FleetArrays, row: int) -> set[str]:
    """Return the scopes whose budgets a rack counts against."""
    reach = Reach.of(fleet)
    return {str(reach.scope_at(place)[0]) for place in np.unique(reach.place[row]) if place >= 0}


def _held(each: Held) -> Line:
    return Line(
        f"{each.scope}: held by the controller, {_gpus(each.gpus)} capped,"
        f" {units.kilowatts(each.taken_w)} kW taken, at {units.percent(each.level)} of its range"
    )


def _is_unkept(each: Held) -> bool:
    return not each.is_failover and each.over_w > 0.0 and (each.short_w > 0.0 or not each.gpus)


def _unkept(each: Held, found: Status) -> Line:
    """Say of a budget that caps cannot keep why not, and who can do something about it."""
    why = []
    if each.deaf:
        why.append(
            f"agents of {_gpus(each.deaf)} below it set no caps: whoever runs those nodes can"
            " let them"
        )
    if not found.unmanaged_capped:
        why.append(
            "the admission policy leaves load of no known owner alone: whoever reviews policies"
            " can change that"
        )
    if not why:
        why.append("all caps are being lowered, or are at their lowest")
    over = f"{each.scope} is over its budget by {units.kilowatts(each.over_w)} kW"
    return Line(f"{over}, and caps do not keep it: {'; '.join(why)}", is_bad=True)


def _gpus(count: int) -> str:
    return f"{units.number(count)} GPU{'' if count == 1 else 's'}"
