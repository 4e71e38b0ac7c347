"""Which constraints there are on the scopes of each kind, and how much each leaves."""

from __future__ import annotations

import numpy as np

from fleet.groups import above, at, least_by, ratio, row_of_most_by, sum_by
from policies.headroom.binding import (
    Constraint,
    Tightest,
    Token,
    heat_share,
    least_of,
    tightest,
)
from policies.headroom.columns import Floats, Ints
from policies.headroom.quantities import Quantities
from policies.scopes import ScopeKind


def of_all(now: Quantities) -> dict[ScopeKind, Tightest]:
    """Return the tightest constraint of the scopes of each kind."""
    fleet = now.fleet
    thermal = {kind: _thermal(now, kind) for kind in now.heat}
    domain_rows = np.arange(len(fleet.domains))
    domains = [
        Constraint(token, share, ScopeKind.POWER_DOMAIN, domain_rows)
        for token, share in _domain_shares(now).items()
    ]
    racks = tightest([*_of_racks(now), *_from_above(now)])
    nodes = racks.of(fleet.nodes.rack)
    return {
        ScopeKind.SITE: tightest([_site_power(now), _whole_site_cooling(now)]),
        ScopeKind.ZONE: tightest([_cooling(now), thermal[ScopeKind.ZONE]]),
        ScopeKind.POWER_DOMAIN: tightest(domains),
        ScopeKind.RACK: racks.beside(thermal[ScopeKind.RACK]),
        ScopeKind.NODE: nodes.beside(thermal[ScopeKind.NODE]),
        ScopeKind.GPU: nodes.of(fleet.gpus.node).beside(thermal[ScopeKind.GPU]),
        ScopeKind.LINK: tightest([_links(now)]),
        ScopeKind.STORAGE: tightest([_storage(now)]),
    }


def _domain_shares(now: Quantities) -> dict[Token, Floats]:
    domains = now.powers[ScopeKind.POWER_DOMAIN]
    return {
        Token.FEED_POWER: ratio(domains.headroom_w, domains.budget_w),
        Token.FEED_REDUNDANCY: ratio(now.failover.headroom_w, domains.budget_w),
    }


def _of_racks(now: Quantities) -> list[Constraint]:
    """Return the constraints of racks themselves: their power, and the links that start in them."""
    fleet, racks = now.fleet, now.powers[ScopeKind.RACK]
    power_share = ratio(racks.headroom_w, racks.budget_w)
    rows = np.arange(len(fleet.racks))
    links = _links(now)
    worst = least_by(links.share, fleet.links.rack, len(fleet.racks))
    row = row_of_most_by(-links.share, fleet.links.rack, len(fleet.racks))
    return [
        Constraint(Token.RACK_POWER, power_share, ScopeKind.RACK, rows),
        Constraint(Token.LINK, worst, ScopeKind.LINK, row),
    ]


def _from_above(now: Quantities) -> list[Constraint]:
    """Return the constraints that racks share with others: feeds, site, and cooling zone."""
    fleet = now.fleet
    feeds = np.concatenate([above(fleet, fleet.racks.feed_a), above(fleet, fleet.racks.feed_b)])
    found = []
    for token, share in _domain_shares(now).items():
        least, row = least_of(share, feeds)
        found.append(Constraint(token, least, ScopeKind.POWER_DOMAIN, row))
    return [
        *found,
        _shared(_site_power(now), fleet.racks.site),
        _shared(_cooling(now), fleet.racks.zone),
    ]


def _shared(constraint: Constraint, wholes: Ints) -> Constraint:
    share = at(constraint.share, wholes)
    return Constraint(constraint.token, share, constraint.where, wholes)


def _site_power(now: Quantities) -> Constraint:
    sites = now.powers[ScopeKind.SITE]
    share = ratio(sites.headroom_w, sites.budget_w)
    return Constraint(Token.SITE_POWER, share, ScopeKind.SITE, np.arange(share.shape[-1]))


def _cooling(now: Quantities) -> Constraint:
    capacity_w = now.zone_capacity_w
    share = ratio(capacity_w - now.zone_load_w, capacity_w)
    return Constraint(Token.COOLING, share, ScopeKind.ZONE, np.arange(share.shape[-1]))


def site_cooling_w(now: Quantities) -> tuple[Floats, Floats]:
    """Return capacity and load of all cooling zones of each site, W."""
    zones, count = now.fleet.zones, len(now.fleet.sites)
    capacity_w = sum_by(now.zone_capacity_w, zones.site, count)
    return capacity_w, sum_by(now.zone_load_w, zones.site, count)


def _whole_site_cooling(now: Quantities) -> Constraint:
    capacity_w, load_w = site_cooling_w(now)
    share = ratio(capacity_w - load_w, capacity_w)
    return Constraint(Token.COOLING, share, ScopeKind.SITE, np.arange(share.shape[-1]))


def _thermal(now: Quantities, kind: ScopeKind) -> Constraint:
    share = heat_share(now.heat[kind].margin_c)
    return Constraint(Token.THERMAL, share, kind, np.arange(share.shape[-1]))


def _links(now: Quantities) -> Constraint:
    links = now.links
    share = ratio(links["link_headroom_bits_per_s"], links["link_capacity_bits_per_s"])
    return Constraint(Token.LINK, share, ScopeKind.LINK, np.arange(share.shape[-1]))


def _storage(now: Quantities) -> Constraint:
    share = 1.0 - now.endpoints["storage_use"]
    return Constraint(Token.STORAGE, share, ScopeKind.STORAGE, np.arange(share.shape[-1]))
