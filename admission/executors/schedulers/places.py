"""Where nodes stand: what their scheduler says of it, against the inventory. Pure.

The inventory is what is believed. What a scheduler's labels say otherwise is told, not taken: one
of the two is wrong, and a person knows which.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.snapshot import FleetArrays
from headroom.schedulers.contract import SchedulerNode

__all__ = ["disagreements"]

#: So many are told of.
_MOST = 100


def disagreements(fleet: FleetArrays, told: Sequence[SchedulerNode]) -> list[str]:
    """Return a sentence for each thing that a scheduler says otherwise of its nodes."""
    found: list[str] = []
    rows = fleet.nodes.index_by_name
    for each in told:
        row = rows.get(each.node)
        if row is not None and len(found) < _MOST:
            found += _of_node(fleet, each, fleet.nodes.rack[row])
    return found[:_MOST]


def _of_node(fleet: FleetArrays, told: SchedulerNode, rack: int) -> list[str]:
    racks = fleet.racks
    site = str(fleet.sites.names[racks.site[rack]])
    zone, feed_a, feed_b = (int(rows[rack]) for rows in (racks.zone, racks.feed_a, racks.feed_b))
    known = {
        "rack": (told.rack, str(racks.names[rack])),
        "cooling zone": (told.zone, str(fleet.zones.names[zone]) if zone >= 0 else ""),
        "feed A": (told.feed_a, str(fleet.domains.names[feed_a]) if feed_a >= 0 else ""),
        "feed B": (told.feed_b, str(fleet.domains.names[feed_b]) if feed_b >= 0 else ""),
    }
    return [
        f"{told.node}: its labels say {what} {said}, the inventory says {name or 'none'}"
        for what, (said, name) in known.items()
        if said and not _is_same(said, name, site)
    ]


def _is_same(said: str, name: str, site: str) -> bool:
    """Compare without case, and without what a label cannot have: "/" between site and name."""
    plain = said.casefold().replace("_", "/").replace(".", "/")
    short = name.casefold().removeprefix(f"{site.casefold()}/").replace("_", "/").replace(".", "/")
    return bool(name) and plain in (short, f"{site.casefold()}/{short}")
