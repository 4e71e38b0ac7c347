"""The sites as tiles and sentences, and the power tree as lines: values for the Fleet page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dashboard import scopes, units
from dashboard.state import View
from dashboard.tightest import Soonest, Tightest, at_site, domain_of, soonest_at, zones_at
from fleet.snapshot import DOMAIN_KINDS
from policies.scopes import Scope, ScopeKind


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
    #: what forecasts claim to be exceeded next
    soonest: Soonest | None
    #: the cooling zones with the least left, and how many there are
    zones: list[Tightest]
    zones_all: int
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
    def is_read(self) -> bool:
        """Whether anything of it is read now: else nobody knows what throttles."""
        return not math.isnan(self.measured_w)

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
                tightest=at_site(view, row),
                soonest=soonest_at(view, row),
                zones=zones_at(view, row),
                zones_all=int((fleet.zones.site == row).sum()),
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


@dataclass(frozen=True)
class Total:
    """All sites together. W."""

    sites: int
    racks: int
    load_w: float
    budget_w: float
    #: the site with the tightest place of all
    tightest: SiteTile | None
    #: sites at which something is claimed to be exceeded soon
    soon: list[SiteTile]
    throttling_racks: int
    unexpected_racks: int
    stale_agents: int
    #: whether any site is read now
    is_read: bool

    @property
    def share(self) -> float:
        return self.load_w / self.budget_w if self.budget_w > 0 else math.nan

    @property
    def is_over(self) -> bool:
        return self.share > 1


def total(shown: list[SiteTile]) -> Total:
    """Add up the tiles."""
    budgeted = [tile for tile in shown if tile.has_budget]
    return Total(
        sites=len(shown),
        racks=sum(tile.racks for tile in shown),
        load_w=sum(tile.load_w for tile in shown),
        budget_w=sum(tile.budget_w for tile in budgeted),
        tightest=min(
            (tile for tile in shown if tile.tightest),
            key=lambda tile: tile.tightest.rank if tile.tightest else (True, math.inf),
            default=None,
        ),
        soon=[tile for tile in shown if tile.soonest],
        throttling_racks=sum(tile.throttling_racks for tile in shown),
        unexpected_racks=sum(tile.unexpected_racks for tile in shown),
        stale_agents=sum(tile.stale_agents for tile in shown),
        is_read=any(tile.is_read for tile in shown),
    )


# --- Power tree ----------------------------------------------------------------------------------


#: Where more power domains than this would be shown, those below the topmost are told in a line.
MOST_DOMAINS = 60


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
    #: how many power domains below it are not shown, and which of them has the least left
    hidden: int = 0
    tightest: Tightest | None = None

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


def power_trees(view: View, rows: Sequence[int]) -> list[tuple[Branch, ...]]:
    """Return the topmost power domains of sites, by row, by name, with those below them.

    Of more than ``MOST_DOMAINS`` in all, those below the topmost are counted, and the tightest of
    them is told.
    """
    is_large = int(np.isin(view.fleet.domains.site, rows).sum()) > MOST_DOMAINS
    return [_tree(view, row, is_large=is_large) for row in rows]


def _tree(view: View, site: int, *, is_large: bool) -> tuple[Branch, ...]:
    domains = view.fleet.domains
    below: dict[int, list[int]] = {}
    for row in np.flatnonzero(domains.site == site).tolist():
        below.setdefault(int(domains.parent[row]), []).append(row)
    return _topmost(view, below) if is_large else _branches(view, below, -1)


def _topmost(view: View, below: Mapping[int, list[int]]) -> tuple[Branch, ...]:
    return tuple(_collapsed(view, row, _all_below(below, row)) for row in below.get(-1, []))


def _collapsed(view: View, row: int, hidden: list[int]) -> Branch:
    found = _branch(view, row, ())
    return replace(found, hidden=len(hidden), tightest=domain_of(view, hidden))


def _all_below(below: Mapping[int, list[int]], parent: int) -> list[int]:
    return [each for row in below.get(parent, []) for each in (row, *_all_below(below, row))]


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
