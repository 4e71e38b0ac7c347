"""Which budget leaves the least: at a site in words, and to each rack of those that it shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dashboard import conditions, scopes, units
from dashboard.state import View
from fleet.groups import above, at, ratio, sum_by
from fleet.snapshot import DOMAIN_KINDS
from policies.headroom.binding import Constraint, Token, least_of, quantity, tightest
from policies.headroom.binding import Tightest as Least
from policies.headroom.columns import Bools, Floats
from policies.headroom.conditions import claimed
from policies.headroom.evaluate import Headroom
from policies.headroom.tables import names_of
from policies.scopes import Scope, ScopeKind
from telemetry.summary import DIMENSIONS

__all__ = ["Soonest", "Tightest", "at_site", "domain_of", "shared", "soonest_at", "zones_at"]

#: So many cooling zones of a site are told of.
_FEW_ZONES = 3


@dataclass(frozen=True)
class Tightest:
    """The place with the least left at a site, of all that have a budget."""

    #: share left, below 0 when over
    share: float
    #: "feed b2", "feed b2 if b1 fails", "rack A04"
    name: str
    #: "3.1 kW left", "4 °C over its slowdown limit"
    left: str
    #: its page
    href: str
    #: whether it is so only once the other half of its pair fails
    is_if: bool = False

    @property
    def is_over(self) -> bool:
        return self.share < 0

    @property
    def rank(self) -> tuple[bool, float]:
        """The least first; but what is over now before what would be, if a half failed."""
        return not self.is_over or self.is_if, self.share


@dataclass(frozen=True)
class Soonest:
    """The place whose budget is claimed to be exceeded first at a site."""

    name: str
    href: str
    #: "between 14:20 and 14:50 UTC (8 of 10)"
    claim: str


# --- Of racks ------------------------------------------------------------------------------------


def shared(view: View) -> Least:
    """Return, of each rack, the tightest of the budgets that it shares with others.

    The limits are those of its feeds, of its feeds when the other half of a pair fails, of its
    site, and of its cooling zone, in the order of ``live.SHARED``.
    """
    return view.once(("shared",), lambda: _shared(view))


def _shared(view: View) -> Least:
    racks = view.fleet.racks
    feeds = np.concatenate([above(view.fleet, racks.feed_a), above(view.fleet, racks.feed_b)])
    power, alone = (least_of(share, feeds) for share in (_power_share(view), _alone_share(view)))
    return tightest(
        [
            Constraint(Token.FEED_POWER, power[0], ScopeKind.POWER_DOMAIN, power[1]),
            Constraint(Token.FEED_REDUNDANCY, alone[0], ScopeKind.POWER_DOMAIN, alone[1]),
            Constraint(
                Token.SITE_POWER, at(_site_share(view), racks.site), ScopeKind.SITE, racks.site
            ),
            Constraint(
                Token.COOLING, at(_cooling(view)[1], racks.zone), ScopeKind.ZONE, racks.zone
            ),
        ]
    )


def _power_share(view: View) -> Floats:
    domains = view.summary.domains
    return ratio(domains.headroom_w, domains.usable_w)


def _alone_share(view: View) -> Floats:
    """Return what each half of a pair has left, as a share, when it carries both; NaN: no pair."""
    usable_w = view.summary.domains.usable_w
    return ratio(usable_w - view.alone_w, usable_w)


def _site_share(view: View) -> Floats:
    sites = view.summary.sites
    return ratio(sites.budget_w - sites.load_w, sites.budget_w)


def _cooling(view: View) -> tuple[Floats, Floats]:
    """Return what each cooling zone has left, W, and that as a share of its capacity."""
    zones = view.fleet.zones
    load_w = sum_by(view.summary.racks.load_w, view.fleet.racks.zone, len(zones))
    capacity_w = view.limits.budget_of(ScopeKind.ZONE, zones.capacity_w)
    left_w = capacity_w - load_w
    return left_w, ratio(left_w, capacity_w)


# --- Of a site -----------------------------------------------------------------------------------


def at_site(view: View, site: int) -> Tightest | None:
    """Return what has the least share left at a site, by row; None where nothing is known.

    What is over now comes before what would be over if half of a pair failed.

    Of the site, its power domains, its pairs when one half fails, its cooling zones, its racks
    (power, heat and links), the links that are of no rack, and its storage endpoints.
    """
    return min(_candidates(view, site), key=lambda each: each.rank, default=None)


def _candidates(view: View, site: int) -> Iterator[Tightest]:
    fleet = view.fleet
    yield from _site(view, site)
    yield from _domains(view, fleet.domains.site == site)
    yield from _least(view, _cooling(view)[1], fleet.zones.site == site, _zone)
    yield from _least(view, view.summary.racks.tightest, fleet.racks.site == site, _rack)
    if view.headroom is not None:
        yield from _of_headroom(view, view.headroom, site)


def _least(
    view: View, share: Floats, here: Bools, told: Callable[[View, int, float], Tightest]
) -> Iterator[Tightest]:
    """Yield the one of ``here`` with the least known share."""
    known = np.where(here & ~np.isnan(share), share, np.inf)
    if len(known) and np.isfinite(least := float(known.min())):
        yield told(view, int(known.argmin()), least)


def _site(view: View, site: int) -> Iterator[Tightest]:
    share, sites = float(_site_share(view)[site]), view.summary.sites
    if not np.isnan(share):
        left_w = float(sites.budget_w[site] - sites.load_w[site])
        yield _told(view, ScopeKind.SITE, site, share, "the site", _watts(left_w))


def _domain(view: View, row: int, share: float) -> Tightest:
    left_w = float(view.summary.domains.headroom_w[row])
    name = _domain_name(view, row)
    return _told(view, ScopeKind.POWER_DOMAIN, row, share, name, _watts(left_w))


def _half(view: View, row: int, share: float) -> Tightest:
    domains = view.fleet.domains
    left_w = float(view.summary.domains.usable_w[row] - view.alone_w[row])
    name = f"{_domain_name(view, row)} if {domains.names[domains.pair[row]]} fails"
    found = _told(view, ScopeKind.POWER_DOMAIN, row, share, name, _watts(left_w))
    return replace(found, is_if=True)


def _domain_name(view: View, row: int) -> str:
    domains = view.fleet.domains
    name, kind = str(domains.names[row]), DOMAIN_KINDS[domains.kind[row]]
    return name if name.startswith(kind) else f"{kind} {name}"


def _zone(view: View, row: int, share: float) -> Tightest:
    name = f"cooling of zone {view.fleet.zones.names[row]}"
    return _told(view, ScopeKind.ZONE, row, share, name, _watts(float(_cooling(view)[0][row])))


def _rack(view: View, row: int, share: float) -> Tightest:
    racks = view.summary.racks
    dimension = DIMENSIONS[int(racks.tightest_dimension[row])]
    if dimension == "heat":
        left = _degrees(float(racks.heat_margin_c[row]))
    elif dimension == "links":
        left = f"{units.percent(1.0 - float(racks.link_use[row]))} of its busiest link left"
    else:
        left = _watts(float(racks.budget_w[row] - racks.load_w[row]))
    return _told(view, ScopeKind.RACK, row, share, f"rack {view.fleet.racks.names[row]}", left)


def _of_headroom(view: View, headroom: Headroom, site: int) -> Iterator[Tightest]:
    """Yield what readings of racks do not have: links between racks and sites, and storage."""
    links, storage = view.fleet.links, view.fleet.storage
    for kind, share, here in (
        (
            ScopeKind.LINK,
            1.0 - headroom.links["link_use"],
            (links.site == site) & (links.rack < 0),
        ),
        (ScopeKind.STORAGE, 1.0 - headroom.endpoints["storage_use"], storage.site == site),
    ):
        yield from _least(view, share, here, partial(_carrier, headroom, kind))


def domain_of(view: View, rows: Sequence[int]) -> Tightest | None:
    """Return the tightest of power domains, by row, also when the other half of a pair fails."""
    here = np.zeros(len(view.fleet.domains), dtype=bool)
    here[list(rows)] = True
    return min(_domains(view, here), key=lambda each: each.rank, default=None)


def _domains(view: View, here: Bools) -> Iterator[Tightest]:
    yield from _least(view, _power_share(view), here, _domain)
    yield from _least(view, _alone_share(view), here, _half)


def zones_at(view: View, site: int) -> list[Tightest]:
    """Return the cooling zones of a site whose load is known, those with the least left first."""
    share = _cooling(view)[1]
    here = np.flatnonzero((view.fleet.zones.site == site) & ~np.isnan(share))
    few = here[np.argsort(share[here], kind="stable")][:_FEW_ZONES].tolist()
    return [
        replace(_zone(view, row, float(share[row])), name=str(view.fleet.zones.names[row]))
        for row in few
    ]


def _carrier(headroom: Headroom, kind: ScopeKind, view: View, row: int, share: float) -> Tightest:
    if kind is ScopeKind.LINK:
        name = f"link {view.fleet.links.names[row]}"
        left = quantity(abs(float(headroom.links["link_headroom_bits_per_s"][row])), "bit/s")
    else:
        name = f"storage {view.fleet.storage.names[row]}"
        left_per_s = float(headroom.endpoints["storage_headroom_bytes_per_s"][row])
        left = quantity(abs(left_per_s), "byte/s")
    return _told(view, kind, row, share, name, f"{left} {'over' if share < 0 else 'left'}")


def _told(view: View, kind: ScopeKind, row: int, share: float, name: str, left: str) -> Tightest:
    scope = Scope(kind, str(names_of(view.fleet, kind)[row]))
    return Tightest(share, name, left, conditions.place_url(view.fleet, scope))


def _watts(left_w: float) -> str:
    return f"{units.kilowatts(abs(left_w))} kW {'over' if left_w < 0 else 'left'}"


def _degrees(left_c: float) -> str:
    return f"{units.celsius(abs(left_c))} {'over its' if left_c < 0 else 'to'} slowdown limit"


# --- About to be ---------------------------------------------------------------------------------

#: What is claimed to be exceeded, by kind of place, and what it is called.
_CLAIMED = (
    (ScopeKind.SITE, "power"),
    (ScopeKind.POWER_DOMAIN, "power"),
    (ScopeKind.ZONE, "cooling"),
    (ScopeKind.RACK, "power"),
)


def soonest_at(view: View, site: int) -> Soonest | None:
    """Return the budget at a site that forecasts with a good record claim to be exceeded first.

    None where none is claimed, or all that are claimed are exceeded already.
    """
    if view.headroom is None:
        return None
    found = [each for each in _claims(view.headroom, site) if each[0] < np.inf]
    if not found:
        return None
    from_s, kind, quantity_of, row = min(found, key=lambda each: each[0])
    columns = view.headroom.table(kind).columns
    scope = Scope(kind, str(names_of(view.fleet, kind)[row]))
    words = claimed(
        view.headroom.at,
        from_s,
        float(columns[f"{quantity_of}_over_upto_s"][row]),
        float(columns[f"{quantity_of}_over_sure"][row]),
    )
    return Soonest(
        "the site" if kind is ScopeKind.SITE else _kind_and_name(scope),
        conditions.place_url(view.fleet, scope),
        words,
    )


def _claims(headroom: Headroom, site: int) -> Iterator[tuple[float, ScopeKind, str, int]]:
    """Yield when the first budget of each kind would be exceeded, s from now, and its row."""
    name = str(headroom.fleet.sites.names[site])
    for kind, quantity_of in _CLAIMED:
        columns, here = headroom.table(kind).columns, conditions.of_site(headroom, kind, name)
        is_over = columns[f"{quantity_of}_headroom_w"][here] < 0
        from_s = np.where(is_over, np.inf, columns[f"{quantity_of}_over_from_s"][here])
        if len(here):
            place = int(from_s.argmin())
            yield float(from_s[place]), kind, quantity_of, int(here[place])


def _kind_and_name(scope: Scope) -> str:
    return scopes.words(Scope(scope.kind, conditions.short_name(scope)))
