"""Scopes: the things that rules are about, restrictions hold for, and headroom is counted of."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fleet.feeds import carried_share
from fleet.tables import FleetArrays

Bools: TypeAlias = NDArray[np.bool_]

#: A name has no more characters: of a rack it is that of its site, a slash and its own.
MOST_NAME = 420


class ScopeKind(enum.StrEnum):
    """The kinds of scopes. A scope's name is unique within its kind."""

    SITE = "site"
    ZONE = "zone"
    POWER_DOMAIN = "power_domain"
    RACK = "rack"
    NODE = "node"
    GPU = "gpu"
    LINK = "link"
    STORAGE = "storage"
    CLASS = "class"
    JOB = "job"


@dataclass(frozen=True, order=True)
class Scope:
    """One thing of the fleet, or of the queue.

    Names are the inventory's: "site/name" for zones, power domains, racks and storage endpoints,
    "node/index" for GPUs, the plain name for the rest.
    """

    kind: ScopeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class UnknownScope(LookupError):
    """No such thing is in the inventory."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"there is no {scope.kind.replace('_', ' ')} {scope.name!r}")
        self.scope = scope


def row_of(fleet: FleetArrays, scope: Scope) -> int:
    """Return the row of ``scope`` in its table. Raises :class:`UnknownScope`.

    Classes and jobs are not of the inventory, and never found.
    """
    row = _rows_by_name(fleet, scope.kind).get(scope.name)
    if scope.kind is ScopeKind.GPU:
        row = _gpu_row(fleet, scope.name)
    if row is None:
        raise UnknownScope(scope)
    return row


def _rows_by_name(fleet: FleetArrays, kind: ScopeKind) -> dict[str, int]:
    by_path = {
        ScopeKind.ZONE: fleet.zones,
        ScopeKind.POWER_DOMAIN: fleet.domains,
        ScopeKind.RACK: fleet.racks,
        ScopeKind.STORAGE: fleet.storage,
    }
    by_name = {
        ScopeKind.SITE: fleet.sites,
        ScopeKind.NODE: fleet.nodes,
        ScopeKind.LINK: fleet.links,
    }
    if kind in by_path:
        return by_path[kind].index_by_path
    return by_name[kind].index_by_name if kind in by_name else {}


def _gpu_row(fleet: FleetArrays, name: str) -> int | None:
    node, _, index = name.rpartition("/")
    row = fleet.nodes.index_by_name.get(node)
    if row is None:
        return None
    first, last = fleet.gpu_bounds[row], fleet.gpu_bounds[row + 1]
    # As texts: what else may stand for a number is no name of a GPU.
    found = np.flatnonzero(fleet.gpus.index[first:last].astype(str) == index)
    return int(first + found[0]) if len(found) else None


def racks_in(fleet: FleetArrays, scope: Scope) -> Bools:
    """Say of each rack whether it, or a part of it, is in ``scope``. Raises UnknownScope."""
    if scope.kind in (ScopeKind.CLASS, ScopeKind.JOB, ScopeKind.STORAGE):
        return np.zeros(len(fleet.racks), dtype=bool)
    row = row_of(fleet, scope)
    if scope.kind is ScopeKind.SITE:
        return np.asarray(fleet.racks.site == row)
    if scope.kind is ScopeKind.ZONE:
        return np.asarray(fleet.racks.zone == row)
    if scope.kind is ScopeKind.POWER_DOMAIN:
        return np.asarray(carried_share(fleet, row) > 0.0)
    return _only(fleet.racks, _rack_of(fleet, scope.kind, row))


def _rack_of(fleet: FleetArrays, kind: ScopeKind, row: int) -> int:
    """Return the row of the rack that a rack, node, GPU or link is in, or -1."""
    if kind is ScopeKind.NODE:
        return int(fleet.nodes.rack[row])
    if kind is ScopeKind.GPU:
        return int(fleet.nodes.rack[fleet.gpus.node[row]])
    return int(fleet.links.rack[row]) if kind is ScopeKind.LINK else row


def nodes_in(fleet: FleetArrays, scope: Scope) -> Bools:
    """Say of each node whether it, or a GPU of it, is in ``scope``. Raises UnknownScope."""
    if scope.kind is ScopeKind.NODE:
        return _only(fleet.nodes, row_of(fleet, scope))
    if scope.kind is ScopeKind.GPU:
        return _only(fleet.nodes, fleet.gpus.node[row_of(fleet, scope)])
    return racks_in(fleet, scope)[fleet.nodes.rack]


def _only(table: Any, row: int) -> Bools:
    found = np.zeros(len(table), dtype=bool)
    if row >= 0:
        found[row] = True
    return found
