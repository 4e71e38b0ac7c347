"""Properties of scopes that rules see besides headroom: their kind, and the scopes above them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fleet.tables import COOLING_KINDS, DOMAIN_KINDS, LINK_KINDS, FleetArrays
from policies.headroom.columns import Table
from policies.headroom.evaluate import Headroom
from policies.rules.document import Related
from policies.rules.engine import Scopes
from policies.scopes import Scope, ScopeKind, row_of

Texts = NDArray[np.object_]


def scopes_of(headroom: Headroom, kinds: Iterable[ScopeKind]) -> dict[ScopeKind, Scopes]:
    """Return the scopes of ``kinds`` as the engine wants them."""
    places = _places(headroom.fleet)
    return {kind: places.scopes(headroom.table(kind)) for kind in kinds}


class _Places:
    """Kinds and places of an inventory's scopes, kept from one evaluation to the next."""

    def __init__(self, fleet: FleetArrays) -> None:
        self._kinds: dict[ScopeKind, Texts] = {
            ScopeKind.POWER_DOMAIN: _coded(fleet.domains.kind, DOMAIN_KINDS),
            ScopeKind.ZONE: _coded(fleet.zones.kind, COOLING_KINDS),
            ScopeKind.LINK: _coded(fleet.links.kind, LINK_KINDS),
        }
        racks = fleet.racks.paths
        node_racks = racks[fleet.nodes.rack]
        self._groups: Mapping[ScopeKind, Texts] = {
            ScopeKind.NODE: node_racks,
            ScopeKind.GPU: node_racks[fleet.gpus.node],
        }
        self._names: dict[ScopeKind, Texts] = {}

    def scopes(self, table: Table) -> Scopes:
        # The same array each time: the engine then knows that no scope has come or gone.
        names = self._names.setdefault(table.kind, table.names)
        if names is not table.names and (names == table.names).all():
            table = Table(table.kind, names, table.columns, table.labels_of)
        nothing = _blank(len(table))
        groups = self._groups.get(table.kind, table.names)
        return Scopes(table, self._kinds.get(table.kind, nothing), groups)


_KNOWN: WeakKeyDictionary[FleetArrays, _Places] = WeakKeyDictionary()


def _places(fleet: FleetArrays) -> _Places:
    found = _KNOWN.get(fleet)
    if found is None:
        found = _KNOWN[fleet] = _Places(fleet)
    return found


def _coded(codes: NDArray[np.int64], words: list[str]) -> Texts:
    # -1 takes the last one.
    return _frozen(np.array([*words, ""], dtype=object)[codes])


def _blank(count: int) -> Texts:
    return _frozen(np.full(count, "", dtype=object))


def _frozen(texts: Texts) -> Texts:
    texts.flags.writeable = False
    return texts


def related(fleet: FleetArrays, scope: Scope, wanted: Related) -> list[Scope]:
    """Return the scopes that ``scope`` is part of, in the way that ``wanted`` says; else none.

    Two for a power domain of what hangs on two feeds. Raises UnknownScope.
    """
    if wanted is Related.SELF:
        return [scope]
    if scope.kind is ScopeKind.STORAGE:  # its name is "site/name"
        return [Scope(ScopeKind.SITE, scope.name.partition("/")[0])]
    row = row_of(fleet, scope)
    if scope.kind is ScopeKind.LINK:
        return _of_link(fleet, row, wanted)
    if scope.kind is ScopeKind.POWER_DOMAIN:
        return _of_domain(fleet, row, wanted)
    if scope.kind is ScopeKind.ZONE:
        return [Scope(ScopeKind.SITE, str(fleet.sites.names[fleet.zones.site[row]]))]
    return _of_placed(fleet, scope.kind, row, wanted)


def _of_placed(fleet: FleetArrays, kind: ScopeKind, row: int, wanted: Related) -> list[Scope]:
    """Return :func:`related` of a GPU, a node or a rack."""
    node = int(fleet.gpus.node[row]) if kind is ScopeKind.GPU else row
    rack = row if kind is ScopeKind.RACK else int(fleet.nodes.rack[node])
    if wanted is Related.NODE:
        return [Scope(ScopeKind.NODE, str(fleet.nodes.names[node]))]
    if wanted is Related.RACK:
        return [Scope(ScopeKind.RACK, str(fleet.racks.paths[rack]))]
    if wanted is Related.SITE:
        return [Scope(ScopeKind.SITE, str(fleet.sites.names[fleet.racks.site[rack]]))]
    if wanted is Related.ZONE:
        return _named(ScopeKind.ZONE, fleet.zones.paths, [int(fleet.racks.zone[rack])])
    feeds = [int(fleet.racks.feed_a[rack]), int(fleet.racks.feed_b[rack])]
    return _named(ScopeKind.POWER_DOMAIN, fleet.domains.paths, feeds)


def _of_domain(fleet: FleetArrays, row: int, wanted: Related) -> list[Scope]:
    if wanted is Related.SITE:
        return [Scope(ScopeKind.SITE, str(fleet.sites.names[fleet.domains.site[row]]))]
    return _named(ScopeKind.POWER_DOMAIN, fleet.domains.paths, [int(fleet.domains.parent[row])])


def _of_link(fleet: FleetArrays, row: int, wanted: Related) -> list[Scope]:
    if wanted is Related.RACK:
        return _named(ScopeKind.RACK, fleet.racks.paths, [int(fleet.links.rack[row])])
    site = fleet.links.peer_site if wanted is Related.PEER_SITE else fleet.links.site
    return _named(ScopeKind.SITE, fleet.sites.names, [int(site[row])])


def _named(kind: ScopeKind, names: Texts, rows: list[int]) -> list[Scope]:
    return [Scope(kind, str(names[row])) for row in dict.fromkeys(rows) if row >= 0]
