"""Budgets in one row: their loads, what these can reach, and what is forecast and claimed. Pure.

Sites, cooling zones, power domains and racks stand one after another, each in the order of its
table. Of many moments arrays have the times before their last axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fleet.groups import count_by, sum_by
from fleet.tables import FleetArrays
from policies.headroom import claims, outlook, power
from policies.headroom.claims import Crossing
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.inputs import Outlook
from policies.headroom.outlook import AHEAD, UPDATE_S, Basis, Forecast
from policies.headroom.quantities import Quantities
from policies.scopes import ScopeKind
from telemetry.summary import carried_w

__all__ = ["KINDS", "Ahead", "Update", "ahead_of", "places", "reachable_w", "updated"]

ByKind: TypeAlias = dict[ScopeKind, Floats]

#: The kinds of budgets in their order, with their tables in the inventory.
KINDS = {
    ScopeKind.SITE: "sites",
    ScopeKind.ZONE: "zones",
    ScopeKind.POWER_DOMAIN: "domains",
    ScopeKind.RACK: "racks",
}
#: Of a budget of which more than this share is not read nothing is claimed.
_SILENT_SHARE = 0.1
#: A claim is shown for so long without an update, s: then nobody looks after it.
_LOOKED_AFTER_S = 4 * UPDATE_S


def places(fleet: FleetArrays) -> dict[ScopeKind, slice]:
    """Return where the budgets of each kind stand."""
    found, first = {}, 0
    for kind, table in KINDS.items():
        found[kind] = slice(first, first + len(getattr(fleet, table)))
        first = found[kind].stop
    return found


def keys(fleet: FleetArrays) -> Ints:
    """Return a number for each budget that stays the same when the inventory changes."""
    ids = [getattr(fleet, table).ids + (each << 48) for each, table in enumerate(KINDS.values())]
    return np.concatenate(ids).astype(np.int64)


def _in_row(by_kind: Mapping[ScopeKind, Floats]) -> Floats:
    return np.concatenate([by_kind[kind] for kind in KINDS], axis=-1)


def _from_racks(fleet: FleetArrays, rack: Floats) -> ByKind:
    """Return a quantity of racks summed up for all budgets."""
    return {
        ScopeKind.SITE: sum_by(rack, fleet.racks.site, len(fleet.sites)),
        ScopeKind.ZONE: sum_by(rack, fleet.racks.zone, len(fleet.zones)),
        ScopeKind.POWER_DOMAIN: carried_w(fleet, rack),
        ScopeKind.RACK: rack,
    }


# --- Loads ---------------------------------------------------------------------------------------


def drawn_w(now: Quantities) -> ByKind:
    """Return what is drawn of each budget, W, without what is reserved and not drawn yet."""
    by_kind: ByKind = {
        kind: now.powers[kind].drawn_w for kind in KINDS if kind is not ScopeKind.ZONE
    }
    return {**by_kind, ScopeKind.ZONE: now.zone_drawn_w}


def budget_w(now: Quantities) -> ByKind:
    """Return all budgets, W."""
    by_kind: ByKind = {
        kind: now.powers[kind].budget_w for kind in KINDS if kind is not ScopeKind.ZONE
    }
    return {**by_kind, ScopeKind.ZONE: now.zone_capacity_w}


def reachable_w(now: Quantities) -> ByKind:
    """Return the most that each budget's load can become as things are enforced, W.

    Every GPU may rise to the limit that it reads back, and hosts along with their GPUs; one that is
    not read may rise by all of its rating. What a controller holds is in these limits.
    """
    fleet, gpus = now.fleet, now.summary.gpus
    room_w = np.maximum(np.minimum(gpus.limit_w, gpus.rated_w) - gpus.load_w, 0.0)
    room_w = np.where(gpus.read, room_w, gpus.rated_w)
    nodes_w = (1.0 + now.host_share) * sum_by(room_w, fleet.gpus.node, len(fleet.nodes))
    rise_w = _from_racks(fleet, sum_by(nodes_w, fleet.nodes.rack, len(fleet.racks)))
    return {kind: load_w + rise_w[kind] for kind, load_w in drawn_w(now).items()}


def _silent(now: Quantities) -> Floats:
    """Return how many nodes and GPUs of each budget are not read."""
    return _counted(now, now.summary.nodes.stale, ~now.summary.gpus.read)


def _counted(now: Quantities, nodes: Bools, gpus: Bools) -> Floats:
    fleet = now.fleet
    by_node = nodes + count_by(gpus, fleet.gpus.node, len(fleet.nodes))
    return _in_row(_from_racks(fleet, sum_by(by_node, fleet.nodes.rack, len(fleet.racks))))


def _changes_w(now: Quantities) -> list[ByKind]:
    """Return the changes of load that are known to come within each horizon, W."""
    steps, at = now.reservations.steps, now.readings.now
    if not len(steps.at):
        return [_from_racks(now.fleet, np.zeros(len(now.fleet.racks)))] * len(AHEAD)
    return [power.steps_by(now.fleet, steps, at, UPDATE_S * ahead) for ahead in AHEAD]


def _basis(now: Quantities, levels_w: Floats) -> Basis:
    loads = drawn_w(now)
    slopes = {kind: now.past.slope(kind, loads[kind].shape[-1]) for kind in KINDS}
    return Basis(
        now_w=_in_row(loads),
        slope_w=UPDATE_S * _in_row(slopes),
        levels_w=levels_w,
        changes_w=np.stack([_in_row(each) for each in _changes_w(now)]),
        most_w=_in_row(reachable_w(now)),
    )


# --- What is said now ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ahead:
    """What is said of the budgets of one kind.

    ``load_w`` has their loads so many updates ahead. Of a claim ``from_s`` and ``upto_s`` are the
    times until it, s, inf where there is none, and ``sure`` the share of loads that fell into the
    band that says so.
    """

    most_w: Floats
    load_w: dict[int, Floats]
    from_s: Floats
    upto_s: Floats
    sure: Floats


def ahead_of(now: Quantities) -> dict[ScopeKind, Ahead]:
    """Return what is said of the budgets of all kinds.

    Without an outlook loads stay as they are, but for changes that are known, and nothing is
    claimed.
    """
    known = now.past.outlook
    if known is None or np.ndim(now.readings.now):
        return _without_outlook(now)
    made = Forecast.of(known.record, _basis(now, known.record.levels_w))
    at = float(now.readings.now)
    stands = (known.claims.upto >= at) & (at - known.at <= _LOOKED_AFTER_S)
    if stands.any():
        stands &= _may_be_passed(now, made.basis, known)
    from_s = np.where(stands, np.maximum(known.claims.from_ - at, 0.0), np.inf)
    upto_s = np.where(stands, known.claims.upto - at, np.inf)
    sure = np.where(stands, known.claims.sure, np.nan)
    return {
        kind: Ahead(
            most_w=made.basis.most_w[here],
            load_w={ahead: each[here] for ahead, each in zip(AHEAD, made.said_w, strict=True)},
            from_s=from_s[here],
            upto_s=upto_s[here],
            sure=sure[here],
        )
        for kind, here in places(now.fleet).items()
    }


def _without_outlook(now: Quantities) -> dict[ScopeKind, Ahead]:
    changes_w, loads, most = _changes_w(now), drawn_w(now), reachable_w(now)
    found = {}
    for kind, load_w in loads.items():
        never = np.full(load_w.shape[-1], np.inf)
        most_w = np.maximum(most[kind], load_w)
        ahead_w = {
            ahead: np.clip(load_w + change_w[kind], 0.0, most_w)
            for ahead, change_w in zip(AHEAD, changes_w, strict=True)
        }
        found[kind] = Ahead(most[kind], ahead_w, never, never, np.full_like(never, np.nan))
    return found


def _may_be_passed(now: Quantities, basis: Basis, before: Outlook) -> Bools:
    """Say which budgets can be exceeded as things are enforced, and are read as they were before.

    When nodes fall silent or come back, loads jump that nobody has drawn.
    """
    fleet, silent = now.fleet, _silent(now)
    everything = _counted(now, np.ones(len(fleet.nodes), bool), np.ones(len(fleet.gpus), bool))
    possible: Bools = basis.most_w > _in_row(budget_w(now))
    possible &= (silent == before.silent) & (silent <= _SILENT_SHARE * everything)
    return possible


# --- What is learned -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Update:
    """What an update has brought: the outlook, what was said anew, and the loads that came, W.

    NaN in ``came_w``: not known.
    """

    outlook: Outlook
    made: Forecast
    came_w: Floats


def updated(now: Quantities, before: Outlook, due: Mapping[int, Forecast]) -> Update:
    """Return what an update brings, a minute after the one before.

    ``due`` has what was said for now, by the place of its horizon in ``AHEAD``. A load that rests
    on other nodes than a minute before is not known.
    """
    loads_w, silent = _in_row(drawn_w(now)), _silent(now)
    came_w = np.where(silent == before.silent, loads_w, np.nan)
    record = outlook.learned(before.record, due, came_w)
    basis = _basis(now, record.levels_w)
    made = Forecast.of(record, basis)
    budgets_w = _in_row(budget_w(now))
    found: Crossing = claims.crossing(record, made, loads_w, budgets_w)
    said = claims.said(
        before.claims,
        found,
        now=float(now.readings.now),
        over=loads_w > budgets_w,
        possible=_may_be_passed(now, basis, before),
    )
    return Update(Outlook(float(now.readings.now), record, said, silent), made, came_w)
