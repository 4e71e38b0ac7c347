"""Restrictions in force, combined: the strictest counts, and all are shown. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays
from policies.restrictions.kinds import HELD_BEFORE, KINDS, RestrictionKind, gpus_in
from policies.scopes import Scope, ScopeKind, UnknownScope, nodes_in, racks_in, row_of

__all__ = ["ActiveRestriction", "Effective", "InForce"]

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
_Find: TypeAlias = Callable[[FleetArrays, Scope], Bools]

#: Scopes that are whole racks.
_OF_RACKS = frozenset({ScopeKind.SITE, ScopeKind.ZONE, ScopeKind.POWER_DOMAIN, ScopeKind.RACK})
_OF_NODES = _OF_RACKS | {ScopeKind.NODE}
_OF_GPUS = _OF_NODES | {ScopeKind.GPU}


def limit_id(restriction_id: int) -> str:
    """Return the id under which agents have a restriction and report on it."""
    return f"restriction-{restriction_id}"


@dataclass(frozen=True)
class ActiveRestriction:
    """A restriction as decisions see it."""

    id: int
    kind: RestrictionKind
    scope: Scope
    #: None where the kind takes none
    value: float | None
    reason: str
    owner: str
    cause: str
    issued_at: datetime
    expires_at: datetime
    #: when it has to be met, where it was announced; None: since it was issued
    starts_at: datetime | None = None

    @property
    def held_from(self) -> datetime:
        """The moment from which on decisions hold it: a little before it has to be met."""
        return self.issued_at if self.starts_at is None else self.starts_at - HELD_BEFORE

    def is_due(self, now: datetime) -> bool:
        """Say whether it has to be met at ``now``."""
        return self.starts_at is None or self.starts_at <= now

    @property
    def number(self) -> float:
        """Its value. Raises ValueError where the kind takes none."""
        if self.value is None:
            raise ValueError(f"{self.kind} takes no value")
        return self.value

    @property
    def limit_id(self) -> str:
        """The id by which agents know it."""
        return limit_id(self.id)

    @property
    def strictness(self) -> tuple[float, float, int]:
        """Sort key of restrictions of one kind: the strictest first, then the longest."""
        value = -math.inf if self.value is None else self.value
        return value, -self.expires_at.timestamp(), self.id


@dataclass(frozen=True)
class Effective:
    """All restrictions of one kind that hold for a scope, the strictest first."""

    kind: RestrictionKind
    all: tuple[ActiveRestriction, ...]

    @property
    def strictest(self) -> ActiveRestriction:
        return self.all[0]

    @property
    def value(self) -> float | None:
        return self.all[0].value


@dataclass(eq=False)
class InForce:
    """The restrictions in force at a moment. Not to be changed.

    ``restrictions`` has what is held at that moment, ``announced`` what is to be met later.
    Arrays are aligned with the inventory's tables. Where nothing holds, a value is +inf and a flag
    is False. What is on a thing that the inventory no longer has holds for nothing.
    """

    at: datetime
    restrictions: tuple[ActiveRestriction, ...] = ()
    announced: tuple[ActiveRestriction, ...] = ()
    #: What is in which scope of the fleet that was asked of last.
    _found: dict[tuple[str, Scope], Ints] = field(default_factory=dict, repr=False)
    _found_in: FleetArrays | None = field(default=None, repr=False)

    @staticmethod
    def standing(now: datetime, found: Iterable[ActiveRestriction]) -> InForce:
        """Return those of ``found`` that have not ended at ``now``, held and announced."""
        left = [each for each in found if each.expires_at > now]
        return InForce(
            now,
            tuple(each for each in left if each.starts_at is None or each.held_from <= now),
            tuple(each for each in left if each.starts_at is not None and each.held_from > now),
        )

    def later(self, now: datetime) -> InForce:
        """Return the restrictions in force at ``now``: leases end by themselves."""
        return InForce.standing(now, (*self.restrictions, *self.announced))

    def of(self, kind: RestrictionKind) -> list[ActiveRestriction]:
        """Return the restrictions of a kind, the strictest first."""
        found = [each for each in self.restrictions if each.kind is kind]
        return sorted(found, key=lambda each: each.strictness)

    def met_at(self, now: datetime, kind: RestrictionKind) -> list[ActiveRestriction]:
        """Return the restrictions of a kind that have to be met at ``now``."""
        return [each for each in self.of(kind) if each.is_due(now) and each.expires_at > now]

    def on(self, scope: Scope) -> tuple[Effective, ...]:
        """Return the restrictions on this very scope, by kind."""
        return _effective(each for each in self.restrictions if each.scope == scope)

    def covering(self, fleet: FleetArrays, scope: Scope) -> tuple[Effective, ...]:
        """Return the restrictions that hold for all of ``scope``, also from a wider one, by kind.

        Raises UnknownScope.
        """
        if scope.kind not in (ScopeKind.CLASS, ScopeKind.JOB):
            row_of(fleet, scope)
        return _effective(
            each for each in self.restrictions if self._covers(fleet, each.scope, scope)
        )

    # --- Arrays -----------------------------------------------------------------------------------

    def power_cap_w_by_gpu(self, fleet: FleetArrays) -> Floats:
        """Return the lowest power cap of each GPU, W."""
        return self.by_gpu(fleet, RestrictionKind.POWER_CAP_W)

    def power_cap_w_by_node(self, fleet: FleetArrays) -> Floats:
        """Return the lowest power cap that all GPUs of each node have, W."""
        return self.by_node(fleet, RestrictionKind.POWER_CAP_W)

    def by_gpu(self, fleet: FleetArrays, kind: RestrictionKind) -> Floats:
        """Return the strictest value for each GPU."""
        lowest: Floats = self.by_node(fleet, kind)[fleet.gpus.node]
        for each in self.of(kind):
            if each.scope.kind is ScopeKind.GPU:
                here = self._rows("gpu", gpus_in, fleet, each.scope)
                lowest[here] = np.minimum(lowest[here], each.number)
        return lowest

    def by_node(self, fleet: FleetArrays, kind: RestrictionKind) -> Floats:
        """Return the strictest value for each node as a whole."""
        return self._lowest(fleet, kind, _OF_NODES, self.node_rows, len(fleet.nodes))

    def by_rack(self, fleet: FleetArrays, kind: RestrictionKind) -> Floats:
        """Return the strictest value for each rack as a whole."""
        return self._lowest(fleet, kind, _OF_RACKS, self.rack_rows, len(fleet.racks))

    def nodes_under(self, fleet: FleetArrays, kind: RestrictionKind) -> Bools:
        """Say of each node whether some restriction of ``kind`` holds for it as a whole."""
        return self._any(fleet, kind, _OF_NODES, self.node_rows, len(fleet.nodes))

    def racks_under(self, fleet: FleetArrays, kind: RestrictionKind) -> Bools:
        """Say of each rack whether some restriction of ``kind`` holds for it as a whole."""
        return self._any(fleet, kind, _OF_RACKS, self.rack_rows, len(fleet.racks))

    def node_rows(self, fleet: FleetArrays, scope: Scope) -> Ints:
        """Return the rows of the nodes that are, or a GPU of which is, in ``scope``."""
        return self._rows("node", nodes_in, fleet, scope)

    def rack_rows(self, fleet: FleetArrays, scope: Scope) -> Ints:
        """Return the rows of the racks that are, or a part of which is, in ``scope``."""
        return self._rows("rack", racks_in, fleet, scope)

    def _rows(self, table: str, find: _Find, fleet: FleetArrays, scope: Scope) -> Ints:
        # Rows and not flags: of a thousand racks of 100,000 GPUs these would take 100 MB.
        if self._found_in is not fleet:
            self._found.clear()
            self._found_in = fleet
        found = self._found.get((table, scope))
        if found is None:
            try:
                found = np.flatnonzero(find(fleet, scope))
            except UnknownScope:
                found = np.zeros(0, dtype=np.int64)
            self._found[table, scope] = found
        return found

    def _lowest(
        self,
        fleet: FleetArrays,
        kind: RestrictionKind,
        scopes: frozenset[ScopeKind],
        rows: Callable[[FleetArrays, Scope], Ints],
        count: int,
    ) -> Floats:
        if not KINDS[kind].takes_value:
            raise ValueError(f"{kind} takes no value: ask which places are under it")
        lowest = np.full(count, np.inf)
        for each in reversed(self.of(kind)):  # the strictest last, over all others
            if each.scope.kind in scopes:
                lowest[rows(fleet, each.scope)] = each.number
        return lowest

    def _any(
        self,
        fleet: FleetArrays,
        kind: RestrictionKind,
        scopes: frozenset[ScopeKind],
        rows: Callable[[FleetArrays, Scope], Ints],
        count: int,
    ) -> Bools:
        under = np.zeros(count, dtype=bool)
        for scope in {each.scope for each in self.restrictions if each.kind is kind}:
            if scope.kind in scopes:
                under[rows(fleet, scope)] = True
        return under

    def _covers(self, fleet: FleetArrays, wide: Scope, scope: Scope) -> bool:
        if wide == scope:
            return True
        if wide.kind not in _OF_NODES or scope.kind not in _OF_GPUS:
            return False
        if scope.kind in _OF_RACKS:
            inside = self.rack_rows(fleet, scope)
            is_whole = wide.kind in _OF_RACKS and len(inside) > 0
            return is_whole and bool(np.isin(inside, self.rack_rows(fleet, wide)).all())
        inside = self.node_rows(fleet, scope)
        return bool(np.isin(inside, self.node_rows(fleet, wide)).all())


def _effective(found: Iterable[ActiveRestriction]) -> tuple[Effective, ...]:
    by_kind: dict[RestrictionKind, list[ActiveRestriction]] = {}
    for each in found:
        by_kind.setdefault(each.kind, []).append(each)
    return tuple(
        Effective(kind, tuple(sorted(by_kind[kind], key=lambda each: each.strictness)))
        for kind in KINDS
        if kind in by_kind
    )
