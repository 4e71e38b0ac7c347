"""The sites as tiles and sentences, and the power tree as lines: values for the Fleet page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from django.urls import reverse

from dashboard import live, scopes, units
from dashboard.state import View
from fleet.groups import sum_by
from fleet.snapshot import DOMAIN_KINDS
from policies.scopes import Scope, ScopeKind


@dataclass(frozen=True)
class Tightest:
    """The site, power domain, cooling zone or rack with the least left at a site."""

    #: share left, below 0 when over
    share: float
    #: "feed b2", "rack A04"
    name: str
    #: "3.1 kW", "4 °C over slowdown"
    left: str
    #: its page
    href: str

    @property
    def is_over(self) -> bool:
        return self.share < 0


@dataclass(frozen=True)
class SiteTile:
    """One site now. W throughout; NaN is unknown."""

    id: int
    name: str
    load_w: float
    measured_w: float
    enforced_w: float
    budget_w: float
    #: whether a restriction leaves less than the inventory says
    is_lowered: bool
    #: (database id, name, °C) of the rack with the hottest GPU
    hottest: tuple[int, str, float] | None
    tightest: Tightest | None
    racks: int
    throttling_gpus: int
    throttling_racks: int
    #: racks with GPUs that throttle though nobody asked for it
    unexpected_racks: int
    stale_nodes: int
    stale_agents: int

    @property
    def has_budget(self) -> bool:
        return self.budget_w > 0

    @property
    def share(self) -> float:
        """Load as share of the budget."""
        return self.load_w / self.budget_w if self.has_budget else math.nan

    @property
    def is_over(self) -> bool:
        return self.share > 1


def tiles(view: View, stale_agents: Mapping[int, int]) -> list[SiteTile]:
    """Return a tile for each site, in the inventory's order. ``stale_agents``: count by site id."""
    fleet, sites = view.fleet, view.summary.sites
    no_limit_w = np.full(len(fleet.sites), np.inf)
    lowered_w = view.limits.budget_w.get(ScopeKind.SITE, no_limit_w)
    made = []
    for row, (key, name) in enumerate(
        zip(fleet.sites.ids.tolist(), fleet.sites.names.tolist(), strict=True)
    ):
        made.append(
            SiteTile(
                id=key,
                name=name,
                load_w=float(sites.load_w[row]),
                measured_w=float(sites.measured_w[row]) if _is_heard(view, row) else math.nan,
                enforced_w=float(sites.enforced_w[row]),
                budget_w=float(sites.budget_w[row]),
                is_lowered=bool(lowered_w[row] <= sites.budget_w[row]),
                hottest=_hottest(view, int(sites.hottest_rack[row])),
                tightest=_tightest(view, row),
                racks=int(sites.racks[row]),
                throttling_gpus=int(sites.throttling[row]),
                throttling_racks=int(sites.throttling_racks[row]),
                unexpected_racks=int(sites.unexpected_racks[row]),
                stale_nodes=int(sites.stale_nodes[row]),
                stale_agents=stale_agents.get(key, 0),
            )
        )
    return made


def _is_heard(view: View, site: int) -> bool:
    first, last = view.fleet.rack_bounds[site : site + 2].tolist()
    return bool(view.summary.racks.seen[first:last].any())


def _hottest(view: View, rack: int) -> tuple[int, str, float] | None:
    if rack < 0:
        return None
    racks = view.fleet.racks
    hottest_c = float(view.summary.racks.hottest_c[rack])
    return int(racks.ids[rack]), str(racks.names[rack]), hottest_c


def _tightest(view: View, site: int) -> Tightest | None:
    """Return what has the least share left: the site, a power domain, cooling zone or rack."""
    candidates = (
        *_tightest_site(view, site),
        *_tightest_domains(view, site),
        *_tightest_zones(view, site),
        *_tightest_rack(view, site),
    )
    known = [c for c in candidates if not math.isnan(c.share)]
    return min(known, key=lambda c: c.share, default=None)


def _tightest_site(view: View, site: int) -> Iterator[Tightest]:
    sites = view.summary.sites
    budget_w, load_w = float(sites.budget_w[site]), float(sites.load_w[site])
    if budget_w > 0:
        href = reverse("site-conditions", args=[str(view.fleet.sites.names[site])])
        yield Tightest(1.0 - load_w / budget_w, "the site", _watts(budget_w - load_w), href)


def _tightest_domains(view: View, site: int) -> Iterator[Tightest]:
    domains, now = view.fleet.domains, view.summary.domains
    for row in np.flatnonzero(domains.site == site).tolist():
        name, kind = str(domains.names[row]), DOMAIN_KINDS[domains.kind[row]]
        usable_w, left_w = float(now.usable_w[row]), float(now.headroom_w[row])
        share = left_w / usable_w if usable_w > 0 else math.nan
        words = name if name.startswith(kind) else f"{kind} {name}"
        scope = Scope(ScopeKind.POWER_DOMAIN, str(domains.paths[row]))
        yield Tightest(share, words, _watts(left_w), scopes.href(view.fleet, scope))


def _tightest_zones(view: View, site: int) -> Iterator[Tightest]:
    fleet = view.fleet
    load_w = sum_by(view.summary.racks.load_w, fleet.racks.zone, len(fleet.zones))
    capacities_w = view.limits.budget_of(ScopeKind.ZONE, fleet.zones.capacity_w)
    for row in np.flatnonzero(fleet.zones.site == site).tolist():
        capacity_w = float(capacities_w[row])
        left_w = capacity_w - float(load_w[row])
        share = left_w / capacity_w if capacity_w > 0 else math.nan
        name = f"cooling of zone {fleet.zones.names[row]}"
        scope = Scope(ScopeKind.ZONE, str(fleet.zones.paths[row]))
        yield Tightest(share, name, _watts(left_w), scopes.href(fleet, scope))


def _tightest_rack(view: View, site: int) -> Iterator[Tightest]:
    first, last = view.fleet.rack_bounds[site : site + 2].tolist()
    racks, shares = view.summary.racks, view.summary.racks.tightest[first:last]
    if np.isnan(shares).all():
        return
    row = first + int(np.nanargmin(shares))
    dimension = live.dimension_name(int(racks.tightest_dimension[row]))
    if dimension == "heat":
        left = _degrees(float(racks.heat_margin_c[row]))
    elif dimension == "links":
        left = f"{units.percent(1.0 - float(racks.link_use[row]))} of its busiest link left"
    else:
        left = _watts(float(racks.budget_w[row] - racks.load_w[row]))
    href = reverse("rack", args=[int(view.fleet.racks.ids[row])])
    yield Tightest(float(racks.tightest[row]), f"rack {view.fleet.racks.names[row]}", left, href)


def _watts(left_w: float) -> str:
    return f"{units.kilowatts(abs(left_w))} kW {'over' if left_w < 0 else 'left'}"


def _degrees(left_c: float) -> str:
    return f"{units.celsius(abs(left_c))} {'over its' if left_c < 0 else 'to'} slowdown limit"


@dataclass(frozen=True)
class Total:
    """All sites together. W."""

    sites: int
    racks: int
    load_w: float
    budget_w: float
    #: the site with the least share left
    fullest: SiteTile | None
    throttling_racks: int
    unexpected_racks: int
    stale_agents: int

    @property
    def share(self) -> float:
        return self.load_w / self.budget_w if self.budget_w > 0 else math.nan


def total(shown: list[SiteTile]) -> Total:
    """Add up the tiles."""
    budgeted = [tile for tile in shown if tile.has_budget]
    return Total(
        sites=len(shown),
        racks=sum(tile.racks for tile in shown),
        load_w=sum(tile.load_w for tile in shown),
        budget_w=sum(tile.budget_w for tile in budgeted),
        fullest=max(budgeted, key=lambda tile: tile.share, default=None),
        throttling_racks=sum(tile.throttling_racks for tile in shown),
        unexpected_racks=sum(tile.unexpected_racks for tile in shown),
        stale_agents=sum(tile.stale_agents for tile in shown),
    )


# --- Power tree ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Branch:
    """One power domain with those that it feeds."""

    name: str
    href: str
    kind: str
    load_w: float
    usable_w: float
    left_w: float
    #: what it would carry if the other half of its pair failed, W; NaN where it has none
    alone_w: float
    other: str
    children: tuple[Branch, ...]

    @property
    def is_over(self) -> bool:
        return self.left_w < 0

    @property
    def has_pair(self) -> bool:
        return bool(self.other)

    @property
    def alone_left_w(self) -> float:
        """The power left when it carries both halves, W."""
        return self.usable_w - self.alone_w

    @property
    def alone_is_over(self) -> bool:
        return self.alone_left_w < 0

    @property
    def bar_label(self) -> str:
        return (
            f"{self.name}: {units.kilowatts(self.load_w)} kW"
            f" of {units.kilowatts(self.usable_w)} kW usable"
        )


def power_tree(view: View, site: int) -> tuple[Branch, ...]:
    """Return the topmost power domains of a site, by name, with those below them."""
    domains = view.fleet.domains
    below: dict[int, list[int]] = {}
    for row in np.flatnonzero(domains.site == site).tolist():
        below.setdefault(int(domains.parent[row]), []).append(row)
    return _branches(view, below, -1)


def _branches(view: View, below: Mapping[int, list[int]], parent: int) -> tuple[Branch, ...]:
    return tuple(_branch(view, row, _branches(view, below, row)) for row in below.get(parent, []))


def _branch(view: View, row: int, children: tuple[Branch, ...]) -> Branch:
    domains, now = view.fleet.domains, view.summary.domains
    mate = int(domains.pair[row])
    return Branch(
        name=str(domains.names[row]),
        href=scopes.href(view.fleet, Scope(ScopeKind.POWER_DOMAIN, str(domains.paths[row]))),
        kind=DOMAIN_KINDS[domains.kind[row]],
        load_w=float(now.load_w[row]),
        usable_w=float(now.usable_w[row]),
        left_w=float(now.headroom_w[row]),
        alone_w=float(view.alone_w[row]),
        other=str(domains.names[mate]) if mate >= 0 else "",
        children=children,
    )
