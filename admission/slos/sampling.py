"""The facts of all sites at a moment, and how they are kept."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from admission.slos.facts import FACTS, Floats, Samples
from admission.slos.models import ConditionSample
from fleet.groups import ratio
from fleet.snapshot import DOMAIN_KINDS
from policies.headroom.constraints import site_cooling_w
from policies.headroom.evaluate import Headroom
from policies.scopes import ScopeKind

__all__ = ["facts_of", "keep", "load"]

EVERY_S = 60.0
#: Feeds and what is above them: a row's PDU that is full says little of its site.
_LARGE_DOMAINS = [DOMAIN_KINDS.index(kind) for kind in ("utility", "feed")]


def facts_of(headroom: Headroom) -> dict[str, Floats]:
    """Return each of ``FACTS`` for each site, in the order of the inventory. Pure."""
    capacity_w, load_w = site_cooling_w(headroom)
    return {
        "power_headroom": _power_headroom(headroom),
        "cooling_headroom": 1.0 - ratio(load_w, capacity_w),
        "uplink_use": _uplink_use(headroom),
        "stale_share": headroom.table(ScopeKind.SITE).columns["stale_share"],
    }


def _power_headroom(headroom: Headroom) -> Floats:
    domains = headroom.fleet.domains
    left = 1.0 - headroom.table(ScopeKind.SITE).columns["power_use"]
    large = np.isin(domains.kind, _LARGE_DOMAINS)
    use = headroom.table(ScopeKind.POWER_DOMAIN).columns["power_use"]
    # Of those that are not known nothing is said, as long as another is.
    np.fmin.at(left, domains.site[large], 1.0 - use[large])
    return np.asarray(left)


def _uplink_use(headroom: Headroom) -> Floats:
    links, table = headroom.fleet.links, headroom.table(ScopeKind.LINK)
    found = np.full(len(headroom.fleet.sites), np.nan)
    for ends in (links.site, links.peer_site):
        here = table.columns["is_wan"] & (ends >= 0)
        np.fmax.at(found, ends[here], table.columns["link_use"][here])
    return found


def keep(headroom: Headroom) -> None:
    """Keep the facts of the minute that ``headroom`` is of, where nobody has yet. One query."""
    at = datetime.fromtimestamp(headroom.at // EVERY_S * EVERY_S, UTC)
    facts = facts_of(headroom)
    rows = [
        ConditionSample(
            at=at,
            site=site,
            **{
                name: None if np.isnan(v := values[row]) else float(v)
                for name, values in facts.items()
            },
        )
        for row, site in enumerate(headroom.fleet.sites.names.tolist())
    ]
    ConditionSample.objects.bulk_create(rows, ignore_conflicts=True)


def load(start: datetime, end: datetime) -> Samples:
    """Return the samples from the minute of ``start`` until ``end``. One query."""
    first = datetime.fromtimestamp(start.timestamp() // EVERY_S * EVERY_S, UTC)
    found = ConditionSample.objects.filter(at__gte=first, at__lte=end).order_by("at", "site")
    rows = list(found.values_list("at", "site", *FACTS))
    if not rows:
        return Samples.none()
    times = sorted({row[0] for row in rows})
    sites = sorted({row[1] for row in rows})
    time_of = {at: place for place, at in enumerate(times)}
    site_of = {site: place for place, site in enumerate(sites)}
    table = np.full((len(FACTS), len(times), len(sites)), np.nan)
    at = [time_of[row[0]] for row in rows]
    where = [site_of[row[1]] for row in rows]
    table[:, at, where] = np.array([row[2:] for row in rows], dtype=np.float64).T
    moments = np.array([each.timestamp() for each in times])
    return Samples(moments, tuple(sites), dict(zip(FACTS, table, strict=True)))
