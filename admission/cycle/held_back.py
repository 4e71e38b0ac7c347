"""What the controller did, in numbers for pages, API and metrics. Pure."""

from __future__ import annotations

import numpy as np

from admission.core.allocation.allocations import busy
from admission.core.holding import Holding
from fleet.groups import row_of_most_by, sum_by
from policies.caps.status import Heated, Held, Status
from policies.controller.levels import FREE, FULL, Kind, last_to_give
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.reach import Room

__all__ = ["status_of"]

#: So many budgets are told of at most: those that lack most, and that take most. And so many GPUs.
_MOST = 500
_GIVES_WAY = {Kind.AGREED: "agreed", Kind.UNMANAGED: "unmanaged", Kind.FIRM: "all", None: ""}


def status_of(holding: Holding, *, waiting: int) -> Status:
    """Return the status of a round."""
    units, found, fleet = holding.units, holding.found, holding.headroom.fleet
    reach, budgets = holding.budgets.reach, holding.budgets
    begun = ~units.is_starting[units.unit]
    slowed = (found.level < FULL)[units.unit] & np.isfinite(found.cap_w[units.unit]) & begun
    taken_w = np.where(slowed, np.maximum(found.full_w - found.cap_w, 0.0)[units.unit], 0.0)
    rack = fleet.nodes.rack[fleet.gpus.node[units.gpu]]
    factor = 1.0 + holding.headroom.host_share[fleet.gpus.node[units.gpu]]
    rack_taken_w = sum_by(np.where(slowed, factor * taken_w, 0.0), rack, len(fleet.racks))
    rack_gpus = sum_by(slowed.astype(np.float64), rack, len(fleet.racks))
    # As headroom says it, by the newest readings: those of `budgets` are steadied.
    by_budget_w, over_w = reach.of_racks(rack_taken_w), -Room.of(holding.headroom).left_w
    gpus = _below(reach.place, rack_gpus, reach.count)
    rack_of_gpu = fleet.nodes.rack[fleet.gpus.node]
    rack_deaf = sum_by((~holding.may_cap).astype(np.float64), rack_of_gpu, len(fleet.racks))
    deaf = _below(reach.place, rack_deaf, reach.count)
    left_alone = _left_alone(holding)
    rack_alone = np.bincount(rack_of_gpu[left_alone], minlength=len(fleet.racks)).astype(np.float64)
    alone = _below(reach.place, rack_alone, reach.count)
    alone_w = reach.of_gpus(
        np.where(left_alone, holding.headroom.summary.gpus.load_w, 0.0), rack_of_gpu
    )
    level, short_w = found.filled.budget_level, found.filled.short_w
    # NaN, where there is no budget, is over nothing.
    told = ~np.isnan(budgets.budget_w) & (((level < FULL) & (gpus > 0)) | (short_w > 0.0))
    told |= over_w > 0.0
    places = np.flatnonzero(told)
    places = places[np.lexsort((-by_budget_w[places], -short_w[places]))][:_MOST]
    return Status(
        at=holding.headroom.at,
        gpus=len(fleet.gpus),
        acting=int(holding.may_cap.sum()),
        capped=int(slowed.sum()),
        taken_w=float(rack_taken_w.sum()),
        units=len(units),
        waiting=waiting,
        paused=len(holding.paused.saves_w),
        starts_low=holding.starts_low,
        unmanaged_capped=holding.unmanaged.is_capped,
        budgets=tuple(
            Held(
                scope=str(reach.scope_at(place)[0]),
                is_failover=reach.scope_at(place)[1],
                level=float(min(level[place] / FREE, 1.0)),
                gpus=int(gpus[place]),
                taken_w=float(by_budget_w[place]),
                over_w=float(max(over_w[place], 0.0)),
                short_w=float(short_w[place]),
                gives_way=_GIVES_WAY[last_to_give(level[place])] if gpus[place] else "",
                deaf=int(deaf[place]),
                left_alone=int(alone[place]),
                left_alone_w=float(alone_w[place]),
            )
            for place in places.tolist()
        ),
        heated=_heated(holding, slowed, taken_w),
    )


def _left_alone(holding: Holding) -> Bools:
    """Say of each GPU whether it could be capped, and its load is left alone by the policy."""
    if holding.unmanaged.is_capped:
        return np.zeros(len(holding.may_cap), dtype=bool)
    return holding.may_cap & busy(holding.headroom) & ~holding.held.gpus


def _heated(holding: Holding, slowed: Bools, taken_w: Floats) -> tuple[Heated, ...]:
    """Return the hottest GPU of each unit that is held for its heat, those that take most first.

    ``slowed`` and ``taken_w`` are by the GPUs of units.
    """
    units, found, fleet = holding.units, holding.found, holding.headroom.fleet
    count, seen, heat = len(units), holding.headroom.seen, holding.headroom.gpu_heat
    by_heat = found.heat_level <= found.filled.level
    unit_taken_w = np.where(by_heat, sum_by(taken_w, units.unit, count), 0.0)
    hottest = row_of_most_by(-holding.plant.heat_w[units.gpu], units.unit, count)
    order = np.argsort(-unit_taken_w, kind="stable")[:_MOST]
    told = []
    for unit in order[unit_taken_w[order] > 0.0].tolist():
        gpu = int(units.gpu[hottest[unit]])
        mine = units.gpu[slowed & (units.unit == unit)]
        margin_c = np.fmin(heat.margin_c[gpu], heat.mem_margin_c[gpu])
        racks = np.unique(fleet.nodes.rack[fleet.gpus.node[mine]])
        told.append(
            Heated(
                gpu=str(fleet.gpu_names[gpu]),
                temp_c=float(seen.limit_c[gpu] - margin_c),
                slowdown_c=float(seen.limit_c[gpu]),
                cap_w=float(found.cap_w[unit]),
                gpus=len(mine),
                taken_w=float(unit_taken_w[unit]),
                racks=tuple(fleet.racks.paths[racks].tolist()),
            )
        )
    return tuple(told)


def _below(place: Ints, by_rack: Floats, count: int) -> Floats:
    """Return how many of what racks have are below each budget, each rack once."""
    found = np.zeros(count + 1)
    for column in range(place.shape[1]):
        new = np.ones(len(place), dtype=bool)
        for before in range(column):
            new &= place[:, before] != place[:, column]
        np.add.at(found, place[new, column], by_rack[new])
    return found[:-1]
