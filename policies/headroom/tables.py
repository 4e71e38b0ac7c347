"""Headroom as tables: a row for each scope, the columns of ``FIELDS``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from fleet.groups import above, count_by, most_by, ratio, sum_by
from fleet.tables import FleetArrays
from policies.headroom import budgets, constraints, power, thermal
from policies.headroom.binding import Tightest
from policies.headroom.budgets import Ahead
from policies.headroom.columns import (
    BINDING,
    CHECKPOINTS,
    COOLING,
    COOLING_AHEAD,
    FAILOVER,
    HEALTH,
    HORIZONS,
    INLET,
    LINK,
    POWER,
    POWER_AHEAD,
    POWER_CLAIMS,
    STORAGE,
    THERMAL,
    Columns,
    ColumnsByGroup,
    Floats,
    Ints,
    Table,
    Texts,
)
from policies.headroom.outlook import UPDATE_S
from policies.headroom.quantities import Quantities
from policies.headroom.trend import exhausted_in_s
from policies.scopes import ScopeKind
from telemetry.summary import carried_w

#: A site, zone or power domain is stale when more than this share of its nodes is.
STALE_SHARE = 0.1

_KINDS_WITH_POWER = (
    ScopeKind.SITE, ScopeKind.POWER_DOMAIN, ScopeKind.RACK, ScopeKind.NODE, ScopeKind.GPU,
)  # fmt: skip
_KINDS_WITH_HEAT = (
    ScopeKind.SITE, ScopeKind.ZONE, ScopeKind.RACK, ScopeKind.NODE, ScopeKind.GPU,
)  # fmt: skip
_KINDS_WITH_INLET = {
    ScopeKind.SITE: "site_c", ScopeKind.ZONE: "zone_c", ScopeKind.RACK: "rack_c"
}  # fmt: skip
_KINDS_WITH_HEALTH = (ScopeKind.SITE, ScopeKind.RACK, ScopeKind.NODE)


class Tables(dict[ScopeKind, Table]):
    """The table of each kind, made when it is first asked for: few ask for that of GPUs."""

    def __init__(self, now: Quantities) -> None:
        super().__init__()
        self._now = now

    def __missing__(self, kind: ScopeKind) -> Table:
        fleet, names = self._now.fleet, names_of(self._now.fleet, kind)
        columns = ColumnsByGroup(self._groups(kind, names))
        if kind is ScopeKind.NODE:
            self[kind] = Table(kind, names, columns, lambda: fleet.node_labels)
        else:
            self[kind] = Table(kind, names, columns)
        return self[kind]

    @cached_property
    def tightest(self) -> dict[ScopeKind, Tightest]:
        """The tightest constraint of the scopes of each kind."""
        return constraints.of_all(self._now)

    @cached_property
    def _ahead(self) -> dict[ScopeKind, Ahead]:
        return budgets.ahead_of(self._now)

    @cached_property
    def _ages(self) -> dict[ScopeKind, dict[str, Any]]:
        return _ages(self._now)

    @cached_property
    def _health(self) -> dict[ScopeKind, dict[str, Any]]:
        return _health(self._now)

    def _groups(
        self, kind: ScopeKind, names: Texts
    ) -> Iterator[tuple[Iterable[str], Callable[[], Columns]]]:
        """Yield the columns of a kind in groups, each with the function that makes it."""
        now = self._now
        yield ("name", "site"), lambda: {"name": names, "site": _site_names(now.fleet, kind)}
        if kind is ScopeKind.LINK:
            yield ("age_s", "stale", *LINK), lambda: now.links
        elif kind is ScopeKind.STORAGE:
            yield ("age_s", "stale", *STORAGE), lambda: now.endpoints
        else:
            yield ("age_s", "stale"), lambda: self._ages[kind]
        if kind in _KINDS_WITH_POWER:
            yield POWER, lambda: power.columns(now.powers[kind])
        yield from self._groups_ahead(kind)
        if kind is ScopeKind.POWER_DOMAIN:
            yield FAILOVER, lambda: _failover_columns(now)
        if kind is ScopeKind.ZONE:
            yield COOLING, lambda: _zone_columns(now)
        if kind in _KINDS_WITH_HEAT:
            yield THERMAL, lambda: thermal.columns(now.heat[kind])
        if kind in _KINDS_WITH_INLET:
            yield INLET, lambda: {"inlet_c": getattr(now.inlets, _KINDS_WITH_INLET[kind])}
        if kind in _KINDS_WITH_HEALTH:
            yield HEALTH, lambda: self._health[kind]
        if kind is ScopeKind.SITE:
            yield CHECKPOINTS, lambda: now.replicas
        yield BINDING, lambda: self._binding_columns(kind)

    def _groups_ahead(
        self, kind: ScopeKind
    ) -> Iterator[tuple[Iterable[str], Callable[[], Columns]]]:
        """Yield the columns that say how loads of a kind go on."""
        if kind in budgets.KINDS:
            names = COOLING_AHEAD if kind is ScopeKind.ZONE else {**POWER_AHEAD, **POWER_CLAIMS}
            yield names, lambda: _ahead_columns(self._now, kind, self._ahead[kind])
        elif kind in _KINDS_WITH_POWER:
            yield POWER_AHEAD, lambda: _trend_columns(self._now, kind)

    def _binding_columns(self, kind: ScopeKind) -> Columns:
        tightest = self.tightest[kind]
        unseen = np.isnan(self[kind].columns["age_s"])
        return {"binding": tightest.tokens(unseen), "tightest": tightest.share}


def _trend_columns(now: Quantities, kind: ScopeKind) -> Columns:
    found = now.powers[kind]
    return power.trends(found, now.past.slope(kind, found.load_w.shape[-1]))


def _ahead_columns(now: Quantities, kind: ScopeKind, ahead: Ahead) -> Columns:
    """Return what is forecast and claimed of budgets of one kind."""
    is_zone = kind is ScopeKind.ZONE
    quantity = "cooling" if is_zone else "power"
    budget_w, load_w, reserved_w = _zone_power(now) if is_zone else _power(now, kind)
    slope = now.past.slope(kind, load_w.shape[-1])
    exhausted_s = exhausted_in_s(budget_w - load_w, slope)
    most_w = np.fmin(ahead.most_w, _within_racks_w(now)) if is_zone else ahead.most_w
    out_of_reach = (load_w < budget_w) & (most_w <= budget_w) & ~np.isnan(slope)
    return {
        f"{quantity}_slope_w_per_s": slope,
        f"{quantity}_exhausted_in_s": np.where(out_of_reach, np.inf, exhausted_s),
        **{
            f"{quantity}_load_{name}_w": np.maximum(
                ahead.load_w[round(ahead_s / UPDATE_S)], reserved_w
            )
            for name, ahead_s in HORIZONS.items()
        },
        f"{quantity}_over_from_s": ahead.from_s,
        f"{quantity}_over_upto_s": ahead.upto_s,
        f"{quantity}_over_sure": ahead.sure,
    }


def _power(now: Quantities, kind: ScopeKind) -> tuple[Floats, Floats, Floats]:
    """Return budget, load and what is reserved, W."""
    found = now.powers[kind]
    return found.budget_w, found.load_w, found.reserved_w


def _zone_power(now: Quantities) -> tuple[Floats, Floats, Floats]:
    racks, zones = now.powers[ScopeKind.RACK], len(now.fleet.zones)
    reserved_w = sum_by(racks.reserved_w, now.fleet.racks.zone, zones)
    return now.zone_capacity_w, now.zone_load_w, reserved_w


def _within_racks_w(now: Quantities) -> Floats:
    """Return the most that each zone has to carry off while racks keep to their budgets, W.

    One that does not counts with what it draws. NaN: some rack of it has no budget.
    """
    racks = now.powers[ScopeKind.RACK]
    most_w = np.maximum(racks.budget_w, racks.load_w)
    return sum_by(most_w, now.fleet.racks.zone, len(now.fleet.zones))


def _failover_columns(now: Quantities) -> Columns:
    found = now.failover
    return {"failover_load_w": found.load_w, "failover_headroom_w": found.headroom_w}


def _site_names(fleet: FleetArrays, kind: ScopeKind) -> Texts:
    if kind is ScopeKind.SITE:
        return fleet.sites.names
    node_site = fleet.racks.site[fleet.nodes.rack]
    if kind in (ScopeKind.NODE, ScopeKind.GPU):
        site = node_site if kind is ScopeKind.NODE else node_site[fleet.gpus.node]
        return np.asarray(fleet.sites.names[site])
    tables: dict[ScopeKind, Any] = {
        ScopeKind.ZONE: fleet.zones,
        ScopeKind.POWER_DOMAIN: fleet.domains,
        ScopeKind.RACK: fleet.racks,
        ScopeKind.LINK: fleet.links,
        ScopeKind.STORAGE: fleet.storage,
    }
    return np.asarray(fleet.sites.names[tables[kind].site])


def names_of(fleet: FleetArrays, kind: ScopeKind) -> Texts:
    """Return the names of all scopes of one kind. Raises KeyError for classes and jobs."""
    if kind is ScopeKind.GPU:
        return fleet.gpu_names
    return {
        ScopeKind.SITE: fleet.sites.names,
        ScopeKind.ZONE: fleet.zones.paths,
        ScopeKind.POWER_DOMAIN: fleet.domains.paths,
        ScopeKind.RACK: fleet.racks.paths,
        ScopeKind.NODE: fleet.nodes.names,
        ScopeKind.LINK: fleet.links.names,
        ScopeKind.STORAGE: fleet.storage.paths,
    }[kind]


def _zone_columns(now: Quantities) -> Columns:
    capacity_w, load_w, _ = _zone_power(now)
    return {
        "cooling_capacity_w": capacity_w,
        "cooling_load_w": load_w,
        "cooling_drawn_w": now.zone_drawn_w,
        "cooling_headroom_w": capacity_w - load_w,
        "cooling_use": ratio(load_w, capacity_w),
        "cooling_drawn_use": ratio(now.zone_drawn_w, capacity_w),
        "supply_c": now.fleet.zones.supply_c,
    }


def _ages(now: Quantities) -> dict[ScopeKind, dict[str, Any]]:
    """Return age and staleness. Of groups the age is that of the part heard longest ago."""
    fleet, summary = now.fleet, now.summary
    gpus, nodes, racks = summary.gpus, summary.nodes, summary.racks
    zones, sites = len(fleet.zones), len(fleet.sites)
    stale = count_by(nodes.stale, fleet.nodes.rack, len(fleet.racks))
    all_nodes = count_by(np.ones(len(fleet.nodes), dtype=bool), fleet.nodes.rack, len(fleet.racks))

    def group(age_s: Floats, stale: Floats, nodes: Floats) -> dict[str, Any]:
        return {"age_s": age_s, "stale": ratio(stale, nodes) > STALE_SHARE}

    zone, site = fleet.racks.zone, fleet.racks.site
    return {
        ScopeKind.GPU: {"age_s": gpus.age_s, "stale": ~gpus.read},
        ScopeKind.NODE: {"age_s": nodes.age_s, "stale": nodes.stale},
        ScopeKind.RACK: {"age_s": racks.age_s, "stale": racks.stale},
        ScopeKind.ZONE: group(
            most_by(racks.age_s, zone, zones),
            sum_by(stale, zone, zones),
            sum_by(all_nodes, zone, zones),
        ),
        ScopeKind.SITE: group(
            most_by(racks.age_s, site, sites),
            sum_by(stale, site, sites),
            sum_by(all_nodes, site, sites),
        ),
        ScopeKind.POWER_DOMAIN: group(
            _oldest_below(fleet, racks.age_s), carried_w(fleet, stale), carried_w(fleet, all_nodes)
        ),
    }


def _oldest_below(fleet: FleetArrays, rack_age_s: Floats) -> Floats:
    """Return the greatest age among the racks that hang on each power domain."""
    count = len(fleet.domains)
    levels = [*above(fleet, fleet.racks.feed_a), *above(fleet, fleet.racks.feed_b)]
    oldest = np.full((*rack_age_s.shape[:-1], count), np.nan)
    for level in levels:
        oldest = np.fmax(oldest, most_by(rack_age_s, level, count))
    return oldest


def _health(now: Quantities) -> dict[ScopeKind, dict[str, Any]]:
    """Return stale nodes, lemons and errors of nodes, racks and sites."""
    fleet, past = now.fleet, now.past
    counts = {
        "nodes": np.ones(len(fleet.nodes)),
        "stale_nodes": now.summary.nodes.lost.astype(np.float64),
        "lemon_gpus": past.lemon_gpus.astype(np.float64),
        "xid_recent": past.xids.astype(np.float64),
    }
    by_rack = _summed(counts, fleet.nodes.rack, len(fleet.racks))
    by_site = _summed(by_rack, fleet.racks.site, len(fleet.sites))
    found = {}
    for kind, each in (
        (ScopeKind.NODE, counts),
        (ScopeKind.RACK, by_rack),
        (ScopeKind.SITE, by_site),
    ):
        whole = each["nodes"]
        kept = {name: values for name, values in each.items() if name != "nodes"}
        found[kind] = {**kept, "stale_share": ratio(each["stale_nodes"], whole)}
    return found


def _summed(counts: dict[str, Floats], group: Ints, groups: int) -> dict[str, Floats]:
    return {name: sum_by(values, group, groups) for name, values in counts.items()}
