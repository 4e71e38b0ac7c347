"""Site conditions as lines of tables: pure functions from headroom to values for pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlencode

import numpy as np
from django.urls import reverse

from dashboard import outages, scale, scopes
from fleet.snapshot import DOMAIN_KINDS, FleetArrays
from policies.headroom.columns import HORIZONS, Floats, Ints
from policies.headroom.conditions import Consequence, claimed
from policies.headroom.evaluate import Headroom
from policies.headroom.forecasts import Claimed, Score
from policies.restrictions.kinds import KINDS, RestrictionKind
from policies.scopes import Scope, ScopeKind
from telemetry.summary import carried_w

#: A scope by the names of its columns (policies.headroom.columns), and what is added here.
Line: TypeAlias = dict[str, Any]


# --- Lines ---------------------------------------------------------------------------------------


def lines(headroom: Headroom, kind: ScopeKind, rows: Sequence[int]) -> list[Line]:
    """Return scopes of one kind, given by row, with their binding constraint and enforced limit."""
    table = headroom.table(kind)
    chosen = np.asarray(rows, dtype=np.int64)
    columns = {name: values[chosen].tolist() for name, values in table.columns.items()}
    enforced_w = _enforced_w(headroom, kind)[chosen].tolist()
    levels = scale.levels(table.columns["tightest"][chosen]).tolist()
    made = []
    for place, row in enumerate(chosen.tolist()):
        scope = Scope(kind, str(table.names[row]))
        line = {name: values[place] for name, values in columns.items()}
        line |= {
            "row": row,
            "short_name": short_name(scope),
            "href": place_url(headroom.fleet, scope),
            "enforced_w": enforced_w[place],
            "bound": headroom.binding(scope),
            "level": levels[place],
            "fails": outages.asking(scope),
        }
        line["claim"] = _claim(headroom.at, line)
        if math.isnan(line["age_s"]) and "power_measured_w" in line:
            line["power_measured_w"] = math.nan  # nobody has measured anything
        made.append(line)
    return made


def _claim(at: float, line: Line) -> str:
    """Return when a budget is claimed to be exceeded; empty where nothing is claimed."""
    quantity = "cooling" if "cooling_over_from_s" in line else "power"
    from_s = line.get(f"{quantity}_over_from_s", math.inf)
    if math.isinf(from_s):
        return ""
    return claimed(at, from_s, line[f"{quantity}_over_upto_s"], line[f"{quantity}_over_sure"])


def short_name(scope: Scope) -> str:
    """Return the name of a scope within its site."""
    has_site = scope.kind in (
        ScopeKind.ZONE, ScopeKind.POWER_DOMAIN, ScopeKind.RACK, ScopeKind.STORAGE,
    )  # fmt: skip
    return scope.name.partition("/")[2] if has_site else scope.name


def place_url(fleet: FleetArrays, scope: Scope) -> str:
    """Return the page of a scope, of a site that of its conditions; empty where it has none."""
    if scope.kind is ScopeKind.SITE and scope.name in fleet.sites.index_by_name:
        return reverse("site-conditions", args=[scope.name])
    return scopes.href(fleet, scope)


def _enforced_w(headroom: Headroom, kind: ScopeKind) -> Floats:
    """Return the sum of the limits that GPUs and hosts have set, W; NaN where there is none."""
    summary = headroom.summary
    if kind is ScopeKind.SITE:
        return summary.sites.enforced_w
    if kind is ScopeKind.RACK:
        return summary.racks.enforced_w
    if kind is ScopeKind.POWER_DOMAIN:
        return carried_w(headroom.fleet, summary.racks.enforced_w)
    return np.full(len(headroom.table(kind)), np.nan)


def of_site(headroom: Headroom, kind: ScopeKind, site: str) -> Ints:
    """Return the rows of the scopes of one kind at ``site``."""
    return np.flatnonzero(headroom.table(kind).columns["site"] == site)


def tightest_first(headroom: Headroom, kind: ScopeKind, rows: Ints) -> Ints:
    """Return ``rows``, those with the least left first and unknown ones last."""
    left = headroom.table(kind).columns["tightest"][rows]
    return rows[np.argsort(np.where(np.isnan(left), np.inf, left), kind="stable")]


# --- Sites ---------------------------------------------------------------------------------------


def site_lines(headroom: Headroom) -> list[Line]:
    """Return a line for each site: its power, cooling, heat and links, and its tightest rack."""
    made = lines(headroom, ScopeKind.SITE, range(len(headroom.fleet.sites)))
    cooling_w = _cooling_left_w(headroom)
    for line in made:
        line["cooling_left_w"] = cooling_w[line["row"]]
        line["link"] = _worst(headroom, ScopeKind.LINK, line["name"], "link_use", most=True)
        line["rack"] = _worst(headroom, ScopeKind.RACK, line["name"], "tightest")
        line["over"] = over_count(headroom, line["name"])
    return made


def _cooling_left_w(headroom: Headroom) -> list[float]:
    """Return the cooling left in all zones of each site, W; NaN where it has none."""
    zones, count = headroom.fleet.zones, len(headroom.fleet.sites)
    left_w = headroom.zone_capacity_w - headroom.zone_load_w
    total_w = np.bincount(zones.site, weights=np.nan_to_num(left_w), minlength=count)
    has_some = np.bincount(zones.site, minlength=count) > 0
    found: list[float] = np.where(has_some, total_w, np.nan).tolist()
    return found


def _worst(
    headroom: Headroom, kind: ScopeKind, site: str, column: str, *, most: bool = False
) -> Line | None:
    """Return the name and value of the scope of a site with the least (or most) of a column."""
    table, rows = headroom.table(kind), of_site(headroom, kind, site)
    values = table.columns[column][rows]
    if not len(values) or np.isnan(values).all():
        return None
    place = int(np.nanargmax(values) if most else np.nanargmin(values))
    name = str(table.names[rows[place]])
    scope = Scope(kind, name)
    return {
        "name": short_name(scope),
        "value": float(values[place]),
        "token": str(table.columns["binding"][rows[place]]),
        "href": place_url(headroom.fleet, scope),
    }


#: What is left of each limit that can be exceeded, by the kind of scope that it is on.
_LIMITS = (
    (ScopeKind.SITE, "power_headroom_w"),
    (ScopeKind.ZONE, "cooling_headroom_w"),
    (ScopeKind.POWER_DOMAIN, "power_headroom_w"),
    (ScopeKind.POWER_DOMAIN, "failover_headroom_w"),
    (ScopeKind.RACK, "power_headroom_w"),
    (ScopeKind.RACK, "thermal_margin_c"),
    (ScopeKind.LINK, "link_headroom_bits_per_s"),
)


def over_count(headroom: Headroom, site: str) -> int:
    """Return how many limits are exceeded at ``site``."""
    return sum(
        int((headroom.table(kind).columns[left][of_site(headroom, kind, site)] < 0).sum())
        for kind, left in _LIMITS
    )


@dataclass(frozen=True)
class Whole:
    """All sites in numbers. W."""

    sites: int
    load_w: float
    budget_w: float
    over: int
    #: the line with the least share left
    fullest: Line | None
    #: the one whose budget is claimed to be exceeded first
    soonest: Line | None
    stale_nodes: int


def whole(found: Sequence[Line]) -> Whole:
    """Add up lines of sites."""
    budgeted = [line for line in found if not math.isnan(line["power_use"])]
    claimed_of = [line for line in found if line["claim"]]
    return Whole(
        sites=len(found),
        load_w=sum(line["power_load_w"] for line in found),
        budget_w=sum(line["power_budget_w"] for line in budgeted),
        over=sum(line["over"] for line in found),
        fullest=max(budgeted, key=lambda line: line["power_use"], default=None),
        soonest=min(claimed_of, key=lambda line: line["power_over_from_s"], default=None),
        stale_nodes=int(sum(line["stale_nodes"] for line in found)),
    )


# --- Power domains -------------------------------------------------------------------------------


#: A power domain by row, and how deep it is shown in its tree.
Placed: TypeAlias = tuple[int, int]


def domain_tree(headroom: Headroom, site: str) -> list[Placed]:
    """Return the power domains of a site, parents before children."""
    order: list[Placed] = []
    here = of_site(headroom, ScopeKind.POWER_DOMAIN, site)
    _descend(headroom.fleet.domains.parent, here, -1, 0, order)
    return order


def domain_lines(headroom: Headroom, placed: Sequence[Placed]) -> list[Line]:
    """Return power domains with their depth, their kind, and the other half of their pair."""
    domains = headroom.fleet.domains
    made = lines(headroom, ScopeKind.POWER_DOMAIN, [row for row, _ in placed])
    for line, (row, depth) in zip(made, placed, strict=True):
        mate = int(domains.pair[row])
        line["depth"] = min(depth, 4)
        line["kind"] = DOMAIN_KINDS[domains.kind[row]]
        line["mate"] = str(domains.names[mate]) if mate >= 0 else ""
    return made


def _descend(parent: Ints, here: Ints, above: int, depth: int, order: list[Placed]) -> None:
    for row in here[parent[here] == above].tolist():
        order.append((row, depth))
        _descend(parent, here, row, depth + 1, order)


def worst_failover(headroom: Headroom, site: str) -> Line | None:
    """Return the domain with the least left, as a share, when the other half of its pair fails."""
    columns = headroom.table(ScopeKind.POWER_DOMAIN).columns
    here = of_site(headroom, ScopeKind.POWER_DOMAIN, site)
    share = columns["failover_headroom_w"][here] / np.maximum(columns["power_budget_w"][here], 1.0)
    if not len(here) or np.isnan(share).all():
        return None
    row = int(here[np.nanargmin(share)])
    return domain_lines(headroom, [(row, 0)])[0]


# --- What follows --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """A consequence with links: to its place, and to the form that would mend it."""

    consequence: Consequence
    #: where it is shown
    href: str
    #: the form that restricts as its way out says, filled in; empty where there is none
    restrict: str


def told(fleet: FleetArrays, found: Sequence[Consequence]) -> list[Told]:
    """Return consequences with their links."""
    return [
        Told(each, "" if each.scope is None else place_url(fleet, each.scope), _restrict(each))
        for each in found
    ]


def _restrict(found: Consequence) -> str:
    scope, kind = found.scope, RestrictionKind.POWER_CAP_W
    caps = [way.cap_w for way in found.ways if way.cap_w is not None]
    if scope is None or not caps or scope.kind not in KINDS[kind].scopes:
        return ""
    query = {
        "kind": kind.value,
        "scope_kind": scope.kind.value,
        "scope": scope.name,
        "value": f"{caps[0]:g}",
        "reason": found.sentence[:500],
    }
    return f"{reverse('issue-restriction')}?{urlencode(query)}"


# --- Forecast ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ahead:
    """A forecast of a site's load, W, with the errors of such forecasts."""

    minutes: int
    load_w: float
    left_w: float
    #: half, and nearly all, were off by at most this; None: none has been compared yet
    p50_w: float | None
    p95_w: float | None
    bias_w: float | None
    count: int


def ahead(site: Line, scores: Sequence[Score]) -> list[Ahead]:
    """Return the forecasts of a site's load. Their errors are those at all sites."""
    errors = {each.horizon_s: each.errors for each in scores if each.kind is ScopeKind.SITE}
    made = []
    for name, ahead_s in HORIZONS.items():
        known = errors.get(round(ahead_s))
        load_w = site[f"power_load_{name}_w"]
        made.append(
            Ahead(
                minutes=round(ahead_s / 60),
                load_w=load_w,
                left_w=site["power_budget_w"] - load_w,
                p50_w=None if known is None else known.percentile_w(0.5),
                p95_w=None if known is None else known.percentile_w(0.95),
                bias_w=None if known is None else known.bias_w,
                count=0 if known is None else known.count,
            )
        )
    return made


@dataclass(frozen=True)
class Measured:
    """The errors of forecasts of one kind and horizon."""

    kind: str
    minutes: int
    count: int
    p50_w: float | None
    p95_w: float | None
    bias_w: float | None
    #: of the mean load, by p95
    share: float | None
    #: mean error over that of "as now", share of loads within their band, and of forecasts shown
    of_as_now: float | None
    coverage: float | None
    shown: float | None


def measured(scores: Sequence[Score]) -> list[Measured]:
    """Return the errors of all kinds of scopes."""
    return [
        Measured(
            kind=each.kind.replace("_", " "),
            minutes=round(each.horizon_s / 60),
            count=each.errors.count,
            p50_w=each.errors.percentile_w(0.5),
            p95_w=each.errors.percentile_w(0.95),
            bias_w=each.errors.bias_w,
            share=_share(each.errors.percentile_w(0.95), each.errors.mean_load_w),
            of_as_now=each.errors.of_as_now,
            coverage=each.errors.coverage,
            shown=each.errors.shown_share,
        )
        for each in scores
        if each.errors.count
    ]


@dataclass(frozen=True)
class ClaimsMade:
    """Claims that budgets would be exceeded, of all kinds of scopes."""

    made: int
    came_true: int
    prevented: int


def claims_made(found: Sequence[Claimed]) -> ClaimsMade:
    """Add up the claims of all kinds."""
    return ClaimsMade(
        sum(each.made for each in found),
        sum(each.came_true for each in found),
        sum(each.prevented for each in found),
    )


def _share(error_w: float | None, load_w: float | None) -> float | None:
    return error_w / load_w if error_w is not None and load_w else None
