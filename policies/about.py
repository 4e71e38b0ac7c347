"""Whether rows with scopes are about a place, its parts, or what it is a part of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from django.db.models import QuerySet

from fleet.tables import FleetArrays
from policies.incidents.models import Incident, IncidentMember
from policies.incidents.places import Places
from policies.scopes import Bools, Scope, ScopeKind, racks_in

__all__ = ["RELIED_ON", "About", "AboutPlace"]

#: What has no racks: jobs rely on it.
RELIED_ON = (ScopeKind.LINK, ScopeKind.STORAGE)
_WITHIN_RACKS = (ScopeKind.NODE, ScopeKind.GPU)


class About(ABC):
    """Says of the scopes of rows whether they belong to something."""

    @abstractmethod
    def has(self, scope: Scope) -> bool:
        """Say whether a row about ``scope`` belongs there."""

    def of(self, rows: QuerySet[Any], key: str = "pk") -> set[int]:
        """Return ``key`` of the rows that are about it. One query."""
        found = rows.order_by().values_list(key, "scope_kind", "scope_name")
        return {pk for pk, kind, name in found if self.has(Scope(ScopeKind(kind), name))}

    def of_incidents(self, incidents: QuerySet[Incident], *, firing: bool = False) -> set[int]:
        """Return the keys of the incidents that are about it, or of which a firing is. Two queries.

        ``firing``: only what fires still counts as one.
        """
        members = IncidentMember.objects.filter(incident__in=incidents.order_by())
        members = members.filter(cleared_at=None) if firing else members
        return self.of(incidents) | self.of(members, "incident_id")


class AboutPlace(About):
    """A place, its parts, and what it is a part of. Its racks raise UnknownScope."""

    def __init__(self, fleet: FleetArrays, scope: Scope) -> None:
        self.fleet, self.scope = fleet, scope
        self._places = Places(fleet)
        self.above = self._places.above(scope)
        self._own = {scope, *self.above}

    @cached_property
    def racks(self) -> Bools:
        """Say of each rack whether it is in the place."""
        if self.scope.kind in RELIED_ON:
            return np.zeros(len(self.fleet.racks), dtype=bool)
        return racks_in(self.fleet, self.scope)

    @property
    def rack_names(self) -> list[str]:
        """The paths of the racks in the place."""
        found: list[str] = self.fleet.racks.paths[self.racks].tolist()
        return found

    def has(self, scope: Scope) -> bool:
        """Say whether a row about ``scope`` belongs there."""
        if scope in self._own:
            return True
        if scope.kind is ScopeKind.GPU:
            return self._has_node(scope.name.rpartition("/")[0])
        if scope.kind is ScopeKind.NODE:
            return self._has_node(scope.name)
        return self.scope in self._places.above(scope)

    def _has_node(self, name: str) -> bool:
        if self.scope.kind in _WITHIN_RACKS:
            return self.scope == Scope(ScopeKind.NODE, name)
        row = self.fleet.nodes.index_by_name.get(name)
        return row is not None and bool(self.racks[self.fleet.nodes.rack[row]])
