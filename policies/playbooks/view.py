"""Conditions as a playbook on one scope sees them. Pure: headroom and inventory in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fleet.tables import FleetArrays
from physics.hardware.drivers import LEAST_POWER_SHARE
from policies.headroom.columns import FIELDS, Floats, Table
from policies.headroom.evaluate import Headroom
from policies.playbooks import parse
from policies.playbooks.document import Branch, PlannedStep, Program, Related, Restrict, WaitUntil
from policies.restrictions.kinds import gpus_in
from policies.rules import cel, words
from policies.scopes import Scope, ScopeKind, UnknownScope, nodes_in, row_of


class OneMoment(ABC):
    """The headroom of one moment, for all who look at it."""

    @property
    @abstractmethod
    def fleet(self) -> FleetArrays: ...

    @property
    @abstractmethod
    def headroom(self) -> Headroom: ...

    def of(self, scope: Scope, inputs: Mapping[str, float]) -> Table | None:
        """Return the one row of ``scope``, with inputs as columns; None: it is not known."""
        if scope.kind not in FIELDS:
            return None
        table = self.headroom.table(scope.kind)
        row = table.index_by_name.get(scope.name)
        if row is None:
            return None
        columns = {name: values[row : row + 1] for name, values in table.columns.items()}
        columns |= {name: np.array([value]) for name, value in inputs.items()}
        return Table(scope.kind, table.names[row : row + 1], columns, lambda: [table.labels[row]])

    def sums(self, scope: Scope) -> dict[str, Floats]:
        """Return sums over all that is in a place, each as a column of one row."""
        fleet, summary = self.fleet, self.headroom.summary
        gpus, nodes = gpus_in(fleet, scope), nodes_in(fleet, scope)
        rated_w = fleet.gpus.rated_w[gpus]
        floors_w = np.fmax(fleet.gpus.idle_w[gpus], LEAST_POWER_SHARE * rated_w)
        found = {
            "scope_gpus": np.count_nonzero(gpus),
            "scope_gpu_w": summary.gpus.load_w[gpus].sum(),
            "scope_load_w": summary.nodes.load_w[nodes].sum(),
            "scope_rated_w": np.max(rated_w, initial=-np.inf),
            "scope_max_mhz": np.max(
                np.nan_to_num(fleet.gpus.sm_max_mhz[gpus], nan=-np.inf), initial=-np.inf
            ),
            "scope_least_cap_w": np.max(np.nan_to_num(floors_w), initial=0.0),
        }
        return {name: np.array([value], dtype=np.float64) for name, value in found.items()}


def related(fleet: FleetArrays, scope: Scope, to: Related) -> Scope:
    """Return the scope that is ``to`` one of ``scope``. Raises UnknownScope where there is none."""
    if to is Related.SELF or to.value == scope.kind.value:
        return scope
    if scope.kind is ScopeKind.STORAGE:
        return Scope(ScopeKind.SITE, scope.name.partition("/")[0])
    row = row_of(fleet, scope)
    if to is Related.SITE and scope.kind is ScopeKind.LINK:
        return Scope(ScopeKind.SITE, str(fleet.sites.names[fleet.links.site[row]]))
    if to is Related.SITE and scope.kind in (ScopeKind.ZONE, ScopeKind.POWER_DOMAIN):
        table = fleet.zones if scope.kind is ScopeKind.ZONE else fleet.domains
        return Scope(ScopeKind.SITE, str(fleet.sites.names[table.site[row]]))
    return _around(fleet, _rack_of(fleet, scope.kind, row), to, scope)


def _rack_of(fleet: FleetArrays, kind: ScopeKind, row: int) -> int:
    node = int(fleet.gpus.node[row]) if kind is ScopeKind.GPU else row
    return row if kind is ScopeKind.RACK else int(fleet.nodes.rack[node])


def _around(fleet: FleetArrays, rack: int, to: Related, scope: Scope) -> Scope:
    if to is Related.RACK:
        return Scope(ScopeKind.RACK, str(fleet.racks.paths[rack]))
    if to is Related.SITE:
        return Scope(ScopeKind.SITE, str(fleet.sites.names[fleet.racks.site[rack]]))
    zone = int(fleet.racks.zone[rack])
    if zone < 0:
        raise UnknownScope(Scope(ScopeKind.ZONE, f"of {scope}"))
    return Scope(ScopeKind.ZONE, str(fleet.zones.paths[zone]))


@dataclass(frozen=True)
class View:
    """Conditions as a playbook on one scope sees them."""

    program: Program
    scope: Scope
    inputs: Mapping[str, float]
    conditions: OneMoment

    def truth(self, step: PlannedStep) -> bool | None:
        """Say whether the condition of a branch or of a wait holds; None: unknown."""
        action = step.action
        if isinstance(action, WaitUntil):
            return self.holds(action.condition, action.scope)
        return self.holds(action.when, Related.SELF) if isinstance(action, Branch) else None

    def holds(self, expression: str, to: Related) -> bool | None:
        """Say whether a condition holds; None where a field that it needs is unknown."""
        table = self.table(to)
        if table is None:
            return None
        condition = cel.compile(expression, parse.fields_of(self.program.playbook, table.kind))
        verdict = condition.verdict(cel.columns_of(table))
        if verdict.status is not None and verdict.status[0]:
            return None
        return bool(verdict.holds[0])

    def number(self, step: PlannedStep) -> float | None:
        """Return the value of a restriction; None: it takes none, or it is unknown."""
        action = step.action
        if not isinstance(action, Restrict) or action.value is None:
            return None
        if not isinstance(action.value, str):
            return action.value
        table = self.table(Related.SELF)
        # Classes and jobs have inputs and no columns.
        if table is None:
            table = self._inputs_alone()
        fields = parse.value_fields(self.program.playbook, self.scope.kind)
        quantity = cel.compile_quantity(action.value, fields)
        if quantity.fields & parse.PLACE.keys():
            sums = self.conditions.sums(self.scope)
            table = replace(table, columns={**table.columns, **sums})
        value = float(quantity.over(table)[0])
        return value if math.isfinite(value) else None

    def table(self, to: Related) -> Table | None:
        """Return the one row of the scope that is ``to`` this one; None: it is not known."""
        try:
            scope = related(self.conditions.fleet, self.scope, to)
        except UnknownScope:
            return None
        return self.conditions.of(scope, self.inputs)

    def _inputs_alone(self) -> Table:
        names = np.array([self.scope.name], dtype=np.object_)
        columns = {name: np.array([value]) for name, value in self.inputs.items()}
        unknown = {
            name: np.array([np.nan])
            for name, field in FIELDS.get(self.scope.kind, {}).items()
            if field.type == "double"
        }
        return Table(self.scope.kind, names, {**unknown, **columns})

    def filled(self, text: str, **more: str) -> str:
        """Return ``text`` with its placeholders replaced by their values now."""
        table = self.table(Related.SELF)
        row = {} if table is None else table.row(str(table.names[0]))
        fields = parse.fields_of(self.program.playbook, self.scope.kind)
        about = {"scope": str(self.scope), "playbook": self.program.playbook.name}
        return words.filled(text, {**self.inputs, **row, **about, **more}, fields)
