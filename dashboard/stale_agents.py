"""Stale agents by site, for tiles and sentences."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from telemetry.models import Agent


def by_site(now: float, after_s: float) -> Counter[int]:
    """Return how many agents that speak for each site (by id) are stale at ``now``. Two queries."""
    stale = Agent.objects.stale(datetime.fromtimestamp(now, UTC), after_s).order_by()
    for_sites = stale.filter(sites__isnull=False).values_list("pk", "sites__pk")
    for_nodes = stale.filter(nodes__isnull=False).values_list("pk", "nodes__rack__site_id")
    pairs = {*for_sites, *for_nodes.distinct()}
    return Counter(site for _, site in pairs)
