"""Where a scope is shown."""

from __future__ import annotations

from urllib.parse import urlencode

from django.urls import reverse

from fleet.snapshot import FleetArrays
from policies.scopes import Scope, ScopeKind, UnknownScope, row_of

_PAGES = {ScopeKind.RACK: "rack", ScopeKind.NODE: "node", ScopeKind.GPU: "gpu"}
#: The kinds of places with a page of dashboard.places.
PLACES = (ScopeKind.ZONE, ScopeKind.POWER_DOMAIN, ScopeKind.LINK, ScopeKind.STORAGE)
_WORDS = {ScopeKind.POWER_DOMAIN: "power domain", ScopeKind.GPU: "GPU"}


def words(scope: Scope) -> str:
    """Return a scope in words: ``rack oslo/A01``."""
    return f"{_WORDS.get(scope.kind, scope.kind.value)} {scope.name}"


def href(fleet: FleetArrays, scope: Scope, query: str = "") -> str:
    """Return the page of ``scope``; empty where it has none, or is not in the inventory.

    ``query`` is for pages of readings: the span that they are to show.
    """
    if scope.kind is ScopeKind.SITE:
        return _fleet(scope.name) if scope.name in fleet.sites.index_by_name else ""
    if scope.kind not in _PAGES and scope.kind not in PLACES:
        return ""
    try:
        row = row_of(fleet, scope)
    except UnknownScope:
        return ""
    if scope.kind in PLACES:
        return reverse("place", args=[scope.kind.value, scope.name])
    table = {"rack": fleet.racks, "node": fleet.nodes, "gpu": fleet.gpus}[_PAGES[scope.kind]]
    url = reverse(_PAGES[scope.kind], args=[int(table.ids[row])])
    return f"{url}?{query}" if query and scope.kind is not ScopeKind.RACK else url


def _fleet(site: str) -> str:
    return f"{reverse('fleet')}?{urlencode({'site': site})}"
