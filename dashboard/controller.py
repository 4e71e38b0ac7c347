"""What the controller of running load holds, in sentences for pages."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from dashboard import units
from dashboard.scopes import words
from fleet.snapshot import FleetArrays
from policies import current
from policies.caps import orders, status
from policies.caps.status import Heated, Held, Status
from policies.headroom.reach import reach_of
from policies.restrictions.kinds import gpus_in
from policies.scopes import Scope, ScopeKind

__all__ = ["Line", "above_rack", "of_fleet", "of_part", "of_scopes"]

#: So many budgets that are exceeded are told of at most; more are counted.
_MOST = 3
#: The fields of headroom that say what is drawn of a budget, and the budget.
_POWER = ("power_drawn_w", "power_budget_w")
_DRAWN = {ScopeKind.ZONE: ("cooling_drawn_w", "cooling_capacity_w")}
_GIVES_WAY = {
    "agreed": "jobs that agreed to be slower give way",
    "unmanaged": "load of no known owner gives way",
    "all": "all that runs gives way, also what agreed to nothing",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence; ``is_bad`` where somebody has to do something."""

    text: str
    is_bad: bool = False


def of_fleet(site: str = "") -> list[Line]:
    """Return what is held in all, and which budgets of ``site`` (empty: of all) are exceeded."""
    found = status.read()
    if found is None:
        return []
    lines = [_in_all(found)] if found.capped else []
    over = [each for each in found.budgets if each.is_over and _is_in(site, each)]
    over.sort(key=_urgency)
    lines += [_over(each) for each in over[:_MOST]]
    if len(over) > _MOST:
        rest = over[_MOST:]
        is_bad = not all(each.is_failover for each in rest)
        lines.append(Line(f"so are {units.count(len(rest), 'other budget')}", is_bad))
    return lines


def _in_all(found: Status) -> Line:
    what = f"{_gpus(found.capped)} capped, {units.kilowatts(found.taken_w)} kW taken"
    held = [each for each in found.budgets if each.gpus]
    most = min(held, key=lambda each: each.level, default=None)
    where = "" if most is None else f", furthest below {_words(most)}"
    return Line(f"held by the controller: {what}{where}")


def _is_in(site: str, each: Held) -> bool:
    """Say whether a budget is that of a site, or of a place in it."""
    return not site or each.scope.partition(" ")[2].partition("/")[0] == site


def _urgency(each: Held) -> tuple[bool, bool, bool, float]:
    """What is exceeded comes first, and of that what caps do not keep; what would be if something
    failed comes after what is.
    """
    return not each.is_over, each.is_failover, not each.is_unkept, -each.over_w


def of_scopes(scopes: Collection[str], *, most: int | None = None) -> list[Line]:
    """Return what is held below each of ``scopes``, and which of them are exceeded.

    Of racks among them also which GPUs are held for their heat. ``most``: of so many budgets, the
    most urgent first; others are counted.
    """
    found = status.read()
    if found is None:
        return []
    budgets = [each for each in found.budgets if each.scope in scopes and _tells(each)]
    if most is not None:
        budgets.sort(key=_urgency)
    shown, rest = budgets[:most], budgets[most:] if most is not None else []
    lines = [_over(each) if each.is_over else _held(each) for each in shown]
    if rest:
        lines.append(_counted(rest))
    hot = [each for each in found.heated if any(f"rack {rack}" in scopes for rack in each.racks)]
    lines += [_heated(each) for each in hot[:_MOST]]
    if len(hot) > _MOST:
        lines.append(Line(f"so are {units.count(len(hot) - _MOST, 'other GPU')} for their heat"))
    return lines


def _counted(rest: Collection[Held]) -> Line:
    over = sum(each.is_over and not each.is_failover for each in rest)
    said = f", {over} of them over" if over else ""
    return Line(
        f"{units.count(len(rest), 'other budget')} of places that it is about{said}", over > 0
    )


def of_budget(scope: Scope) -> list[Line]:
    """Return what is drawn of the budget of a place now, and what the controller does about it."""
    load, budget = _DRAWN.get(scope.kind, _POWER)
    table = current.headroom(time.time()).table(scope.kind)
    if scope.name not in table.index_by_name:
        return []
    row = table.row(scope.name)
    drawn_w, budget_w = float(row[load]), float(row[budget])
    left_w = budget_w - drawn_w
    share = f"{units.kilowatts(drawn_w)} of {units.kilowatts(budget_w)} kW now"
    left = f"{units.kilowatts(abs(left_w))} kW {'over' if left_w < 0.0 else 'left'}"
    return [Line(f"{words(scope)} draws {share}: {left}", left_w < 0.0), *of_scopes({str(scope)})]


def above_rack(fleet: FleetArrays, row: int) -> set[str]:
    """Return the scopes whose budgets a rack counts against."""
    reach = reach_of(fleet)
    return {str(reach.scope_at(place)[0]) for place in np.unique(reach.place[row]) if place >= 0}


def of_part(fleet: FleetArrays, scope: Scope) -> list[Line]:
    """Return how a node or a GPU is capped by the controller, and for which budgets; or nothing.

    Raises UnknownScope.
    """
    gpus = np.flatnonzero(gpus_in(fleet, scope))
    found = orders.current(time.time())
    cap_w = found.watts[np.isin(found.gpu_ids, fleet.gpus.ids[gpus])]
    if not len(cap_w):
        return []
    rack = int(fleet.nodes.rack[fleet.gpus.node[gpus[0]]])
    who = "it" if scope.kind is ScopeKind.GPU else f"{_gpus(len(cap_w))} of {len(gpus)}"
    least, most = (units.number(float(each)) for each in (cap_w.min(), cap_w.max()))
    watts = least if least == most else f"{least} to {most}"
    return [Line(f"caps {who} at {watts} W"), *of_scopes(above_rack(fleet, rack))]


def _tells(each: Held) -> bool:
    return each.is_over or each.gpus > 0


def _held(each: Held) -> Line:
    alone = " for the case that its other half fails" if each.is_failover else ""
    who = _GIVES_WAY.get(each.gives_way, "")
    return Line(
        f"{_words(each)}: held by the controller{alone}, {_taken(each)}{who and f': {who}'}"
    )


def _over(each: Held) -> Line:
    """Say by how much a budget is exceeded, and what is done about it, or why nothing is."""
    would = "would be" if each.is_failover else "is"
    over = f"{_words(each)} {would} over its budget by {units.kilowatts(each.over_w)} kW"
    if each.is_failover:
        over += " if its other half failed"
    is_bad = not each.is_failover
    if each.is_unkept:
        return Line(f"{over}, and caps do not keep it: {'; '.join(_why(each))}", is_bad)
    done = f", {_taken(each)} so far" if each.gpus else ""
    return Line(f"{over}: the controller is lowering caps{done}", is_bad)


def _heated(each: Heated) -> Line:
    heat = f"{units.celsius(each.temp_c)}, slowdown at {units.celsius(each.slowdown_c)}"
    return Line(
        f"GPU {each.gpu}: {heat}: held by the controller at {units.number(each.cap_w)} W,"
        f" {_gpus(each.gpus)} capped for it, {units.kilowatts(each.taken_w)} kW taken"
    )


def _why(each: Held) -> list[str]:
    """Say why caps cannot keep a budget, and who can do something about it."""
    why = []
    if each.deaf:
        why.append(
            f"agents of {_gpus(each.deaf)} below it set no caps: whoever runs those nodes can"
            " let them"
        )
    if each.left_alone:
        why.append(
            f"the admission policy leaves load of no known owner alone, {_gpus(each.left_alone)}"
            f" that draw {units.kilowatts(each.left_alone_w)} kW: whoever reviews policies can"
            " change that"
        )
    lacks = f"{units.kilowatts(each.short_w)} kW are missing with all caps at their lowest"
    return [*why, lacks] if each.gpus or not why else why


def _taken(each: Held) -> str:
    return f"{_gpus(each.gpus)} capped, {units.kilowatts(each.taken_w)} kW taken"


def _words(each: Held) -> str:
    kind, _, name = each.scope.partition(" ")
    return words(Scope(ScopeKind(kind), name))


def _gpus(count: int) -> str:
    return f"{units.number(count)} GPU{'' if count == 1 else 's'}"
