"""Headroom of every scope: a pure function of inventory, live frame, promises, limits and clock.

Nothing that falls silent ever makes it larger: loads are committed (``telemetry.summary``), heat
that is not read is that of rated power, and links that are not read are full.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleet.tables import FleetArrays
from policies.headroom import binding, constraints, tables, thermal
from policies.headroom.binding import Binding, Tightest, Token
from policies.headroom.columns import Floats, Ints, Table
from policies.headroom.inputs import Limits, Past, Reservations
from policies.headroom.quantities import Quantities
from policies.scopes import Scope, ScopeKind
from telemetry.live_frame import Frame
from telemetry.summary import summarize


def evaluate(
    fleet: FleetArrays,
    frame: Frame,
    *,
    now: float | Floats,
    reservations: Reservations | None = None,
    restrictions: Limits | None = None,
    past: Past | None = None,
    stale_after_s: float = 30.0,
) -> Headroom:
    """Return the headroom of every scope at ``now`` (Unix seconds), or at many moments at once.

    For many, ``now`` is (times, 1) and ``frame`` has as many; what else is given has the times
    before its last axis, or none where it is the same at all of them.
    """
    past = past or Past.none(fleet)
    summary = summarize(fleet, frame, now=now, stale_after_s=stale_after_s, hosts=past.hosts)
    return Headroom(
        readings=summary.gpus.readings,
        reservations=reservations or Reservations.none(fleet),
        limits=restrictions or Limits.none(fleet),
        past=past,
        summary=summary,
        sources=thermal.Sources(summary.gpus, past),
    )


@dataclass(frozen=True, eq=False)
class Headroom(Quantities):
    """Headroom of the whole fleet at one moment, or at many: arrays are (times, scopes) then.

    Tables are made when they are first asked for. What is asked of a single scope is asked of one
    moment.
    """

    def table(self, kind: ScopeKind) -> Table:
        """Return the scopes of one kind. Raises KeyError for classes and jobs."""
        return self._tables[kind]

    def binding(self, scope: Scope) -> Binding | None:
        """Return the constraint that binds ``scope``, with its numbers; None: nothing is known.

        Raises KeyError for a scope that is not in its table.
        """
        row = self.table(scope.kind).index_by_name[scope.name]
        found = self.tightest[scope.kind]
        if found.choice[row] < 0:
            return None
        token, where = found.limits[found.choice[row]]
        return self._numbers(token, where, int(found.row[row]), float(found.share[row]))

    @property
    def tightest(self) -> dict[ScopeKind, Tightest]:
        """The tightest constraint of the scopes of each kind."""
        return self._tables.tightest

    @cached_property
    def _tables(self) -> tables.Tables:
        return tables.Tables(self)

    def _numbers(self, token: Token, kind: ScopeKind, row: int, share: float) -> Binding:
        where = Scope(kind, str(tables.names_of(self.fleet, kind)[row]))
        numbers = {
            Token.COOLING: self._cooling_numbers,
            Token.THERMAL: self._thermal_numbers,
            Token.LINK: self._link_numbers,
            Token.STORAGE: self._storage_numbers,
            Token.FEED_REDUNDANCY: self._failover_numbers,
        }.get(token, self._power_numbers)
        budget, load, unit = numbers(kind, row)
        mate = ""
        if token is Token.FEED_REDUNDANCY:
            mate = str(self.fleet.domains.paths[self.fleet.domains.pair[row]])
        text = binding.sentence(token, where, budget, load, unit, mate)
        return Binding(token, where, budget, load, budget - load, unit, share, text)

    def _power_numbers(self, kind: ScopeKind, row: int) -> tuple[float, float, str]:
        found = self.powers[kind]
        return float(found.budget_w[row]), float(found.load_w[row]), "W"

    def _failover_numbers(self, _kind: ScopeKind, row: int) -> tuple[float, float, str]:
        budget_w = self.powers[ScopeKind.POWER_DOMAIN].budget_w[row]
        return float(budget_w), float(self.failover.load_w[row]), "W"

    def _cooling_numbers(self, kind: ScopeKind, row: int) -> tuple[float, float, str]:
        if kind is ScopeKind.SITE:
            capacity_w, load_w = constraints.site_cooling_w(self)
            return float(capacity_w[row]), float(load_w[row]), "W"
        return float(self.zone_capacity_w[row]), float(self.zone_load_w[row]), "W"

    def _thermal_numbers(self, kind: ScopeKind, row: int) -> tuple[float, float, str]:
        # Of a group the limit of its tightest GPU: what it leaves is the margin.
        margin_c = float(self.heat[kind].margin_c[row])
        limit_c = float(self.parts.limit_c[self._tightest_gpu(kind, row)])
        return limit_c, limit_c - margin_c, "°C"

    def _tightest_gpu(self, kind: ScopeKind, row: int) -> int:
        mine = self._gpus_of(kind, row)
        return int(mine[np.nanargmin(self.gpu_heat.margin_c[mine])])

    def _gpus_of(self, kind: ScopeKind, row: int) -> Ints:
        """Return the rows of the GPUs in a scope. Pages ask this of a hundred racks at once."""
        if kind is ScopeKind.RACK:
            nodes = self.fleet.node_bounds[row : row + 2]
            return np.arange(*self.fleet.gpu_bounds[nodes].tolist())
        return np.flatnonzero(self.gpus_in(kind, row))

    def _link_numbers(self, _kind: ScopeKind, row: int) -> tuple[float, float, str]:
        capacity = float(self.links["link_capacity_bits_per_s"][row])
        left = float(self.links["link_headroom_bits_per_s"][row])
        return capacity, capacity - left, "bit/s"

    def _storage_numbers(self, _kind: ScopeKind, row: int) -> tuple[float, float, str]:
        capacity = float(self.endpoints["storage_capacity_bytes_per_s"][row])
        return capacity, float(self.endpoints["storage_load_bytes_per_s"][row]), "byte/s"
