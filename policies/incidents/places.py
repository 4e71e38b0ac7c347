"""Where a scope is: its site, its feed, and all that it is a part of."""

from __future__ import annotations

from fleet.tables import DOMAIN_KINDS, FleetArrays
from policies.scopes import Scope, ScopeKind, UnknownScope, row_of

__all__ = ["Places"]

_FEED = DOMAIN_KINDS.index("feed")
#: Kinds whose names begin with the site's.
_WITH_SITE = (ScopeKind.ZONE, ScopeKind.POWER_DOMAIN, ScopeKind.RACK, ScopeKind.STORAGE)


class Places:
    """The places of one inventory. Results are kept: make one for each round."""

    def __init__(self, fleet: FleetArrays) -> None:
        self._fleet = fleet
        self._above: dict[Scope, tuple[Scope, ...]] = {}

    def above(self, scope: Scope) -> tuple[Scope, ...]:
        """Return all scopes that ``scope`` is a part of, the nearest first and its site last.

        A rack is a part of its cooling zone and of both its feeds. What is not of the inventory is
        a part of nothing but the site in its name.
        """
        if scope not in self._above:
            self._above[scope] = self._find_above(scope)
        return self._above[scope]

    def site(self, scope: Scope) -> str:
        """Return the name of the site that ``scope`` is in, or ""."""
        if scope.kind is ScopeKind.SITE:
            return scope.name
        last = self.above(scope)[-1:]
        return last[0].name if last and last[0].kind is ScopeKind.SITE else ""

    def feed(self, scope: Scope) -> Scope | None:
        """Return the feed that ``scope`` hangs on, of an A/B pair the A side; None without one."""
        chain = (scope, *self.above(scope))
        domains = [each for each in chain if each.kind is ScopeKind.POWER_DOMAIN]
        return next((each for each in domains if self._is_feed(each)), None)

    def nearest(self, scope: Scope, kind: ScopeKind) -> Scope | None:
        """Return ``scope`` itself, or the nearest scope above it, that is of ``kind``."""
        return next((each for each in (scope, *self.above(scope)) if each.kind is kind), None)

    def _is_feed(self, domain: Scope) -> bool:
        row = self._fleet.domains.index_by_path.get(domain.name)
        return row is not None and int(self._fleet.domains.kind[row]) == _FEED

    def _find_above(self, scope: Scope) -> tuple[Scope, ...]:
        if scope.kind in (ScopeKind.SITE, ScopeKind.CLASS, ScopeKind.JOB):
            return ()
        try:
            row = -1 if scope.kind is ScopeKind.STORAGE else row_of(self._fleet, scope)
        except UnknownScope:
            row = -1
        if row < 0:
            return self._site_in_name(scope)
        return self._of_row(scope.kind, row)

    def _site_in_name(self, scope: Scope) -> tuple[Scope, ...]:
        site, separator, _ = scope.name.partition("/")
        return (_site(site),) if separator and scope.kind in _WITH_SITE else ()

    def _of_row(self, kind: ScopeKind, row: int) -> tuple[Scope, ...]:
        fleet = self._fleet
        if kind is ScopeKind.GPU:
            return self._and_above(ScopeKind.NODE, str(fleet.nodes.names[fleet.gpus.node[row]]))
        if kind is ScopeKind.NODE:
            return self._and_above(ScopeKind.RACK, str(fleet.racks.paths[fleet.nodes.rack[row]]))
        if kind is ScopeKind.RACK:
            return self._above_rack(row)
        if kind is ScopeKind.POWER_DOMAIN:
            return self._above_domain(row)
        if kind is ScopeKind.LINK:
            return self._above_link(row)
        return (_site(str(fleet.sites.names[fleet.zones.site[row]])),)

    def _and_above(self, kind: ScopeKind, name: str) -> tuple[Scope, ...]:
        scope = Scope(kind, name)
        return (scope, *self.above(scope))

    def _above_rack(self, row: int) -> tuple[Scope, ...]:
        fleet, found = self._fleet, {}
        for feed in (int(fleet.racks.feed_a[row]), int(fleet.racks.feed_b[row])):
            if feed >= 0:
                path = str(fleet.domains.paths[feed])
                # A dict keeps the order and what both feeds share once.
                found.update(dict.fromkeys(self._and_above(ScopeKind.POWER_DOMAIN, path)))
        if (zone := int(fleet.racks.zone[row])) >= 0:
            found[Scope(ScopeKind.ZONE, str(fleet.zones.paths[zone]))] = None
        return _site_last(found, str(fleet.sites.names[fleet.racks.site[row]]))

    def _above_domain(self, row: int) -> tuple[Scope, ...]:
        fleet = self._fleet
        parent = int(fleet.domains.parent[row])
        if parent >= 0:
            return self._and_above(ScopeKind.POWER_DOMAIN, str(fleet.domains.paths[parent]))
        return (_site(str(fleet.sites.names[fleet.domains.site[row]])),)

    def _above_link(self, row: int) -> tuple[Scope, ...]:
        fleet = self._fleet
        if (node := int(fleet.links.node[row])) >= 0:
            return self._and_above(ScopeKind.NODE, str(fleet.nodes.names[node]))
        if (rack := int(fleet.links.rack[row])) >= 0:
            return self._and_above(ScopeKind.RACK, str(fleet.racks.paths[rack]))
        site = int(fleet.links.site[row])
        return (_site(str(fleet.sites.names[site])),) if site >= 0 else ()


def _site(name: str) -> Scope:
    return Scope(ScopeKind.SITE, name)


def _site_last(found: dict[Scope, None], site: str) -> tuple[Scope, ...]:
    last = _site(site)
    return (*(each for each in found if each != last), last)
