"""Evidence of a firing: links to the series of its scope."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import urlencode

from fleet.tables import FleetArrays
from policies.incidents.models import IncidentMember
from policies.scopes import Scope, ScopeKind, UnknownScope, row_of

__all__ = ["series_of"]

#: Shown before and after the firing.
_BEFORE = timedelta(minutes=15)
_AFTER = timedelta(minutes=5)


def series_of(member: IncidentMember, fleet: FleetArrays) -> list[dict[str, str]]:
    """Return links to the readings around the firing; none where its scope has no series."""
    scope = Scope(ScopeKind(member.scope_kind), member.scope_name)
    try:
        found = _series(scope, fleet)
    except UnknownScope:
        return []
    if found is None:
        return []
    kind, row_id = found
    query: dict[str, str] = {"kind": kind, "id": str(row_id)}
    query["from"] = _iso(member.since - _BEFORE)
    if member.cleared_at is not None:
        query["to"] = _iso(member.cleared_at + _AFTER)
    text = f"Readings of {scope} around it"
    return [{"kind": "series", "text": text, "href": f"/api/v1/series?{urlencode(query)}"}]


def _iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _series(scope: Scope, fleet: FleetArrays) -> tuple[str, int] | None:
    if scope.kind is ScopeKind.GPU:
        return "gpu", int(fleet.gpus.ids[row_of(fleet, scope)])
    if scope.kind is ScopeKind.NODE:
        return "host", int(fleet.nodes.ids[row_of(fleet, scope)])
    if scope.kind is ScopeKind.LINK:
        return "link", int(fleet.links.ids[row_of(fleet, scope)])
    if scope.kind is ScopeKind.RACK:
        return "rack", int(fleet.racks.ids[row_of(fleet, scope)])
    return None
