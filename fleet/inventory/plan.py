"""The changes that bring the fleet to the state of an inventory. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from fleet.density import excess
from fleet.inventory.checks import problems_of
from fleet.inventory.document import Inventory
from fleet.inventory.exceptions import MAX_PROBLEMS
from fleet.inventory.kinds import KINDS, Row, Rows, sites_of
from fleet.inventory.rows import rows_of
from fleet.inventory.state import State

__all__ = ["Change", "KindPlan", "Plan", "plan"]


@dataclass(frozen=True)
class Change:
    """A row that stays, and its fields change."""

    before: Row
    after: Row

    @property
    def fields(self) -> dict[str, tuple[Any, Any]]:
        """Old and new value of each field that differs."""
        return {
            name: (self.before[name], value)
            for name, value in self.after.items()
            if self.before[name] != value
        }


@dataclass(frozen=True)
class KindPlan:
    """The changes of the rows of one kind, by key."""

    created: dict[str, Row] = field(default_factory=dict)
    changed: dict[str, Change] = field(default_factory=dict)
    removed: dict[str, Row] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        return {
            "created": len(self.created),
            "changed": len(self.changed),
            "removed": len(self.removed),
        }

    def __bool__(self) -> bool:
        return bool(self.created or self.changed or self.removed)


@dataclass(frozen=True)
class Plan:
    """The changes from ``state`` to an inventory. False when there is nothing to do."""

    state: State
    #: the sites that the inventory speaks for
    sites: tuple[str, ...]
    kinds: Mapping[str, KindPlan]
    #: what is allowed and not wise, each in a sentence that begins with what it is about
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Numbers of rows by kind, and by kind of change."""
        return {name: kind.counts for name, kind in self.kinds.items() if kind}

    @property
    def rows(self) -> int:
        """How many rows it creates, changes or removes in all."""
        return sum(sum(kind.values()) for kind in self.counts.values())

    def __bool__(self) -> bool:
        return any(self.kinds.values())


def plan(inventory: Inventory, state: State, *, prune_sites: bool = False) -> Plan:
    """Compare ``inventory`` with ``state``, or raise InventoryError.

    What the inventory does not list at the sites that it names is removed. With ``prune_sites``
    all other sites are too, and hardware models that nothing uses.
    """
    document = inventory.document
    found = problems_of(document, state.rows, prune_sites=prune_sites)
    if problems := list(islice(found, MAX_PROBLEMS)):
        inventory.refuse(problems)
    wanted = rows_of(document)
    sites = tuple(site.name for site in document.sites)
    doomed = _doomed(wanted, state.rows, frozenset(sites), prune_sites)
    kinds = {name: _compare(wanted[name], state.rows[name], doomed[name]) for name in KINDS}
    return Plan(state, sites, kinds, tuple(_too_dense(wanted, state.rows)))


def _too_dense(wanted: Rows, have: Rows) -> Iterator[str]:
    """Yield the racks that may give off more heat than their kind of cooling carries."""
    models = {**have["hardware_models"], **wanted["hardware_models"]}
    rated_w: dict[str, float] = defaultdict(float)
    for node in wanted["nodes"].values():
        # A node may have no model: then nothing is known of its host.
        rated_w[node["rack"]] += models[node["model"]]["rated_w"] if node["model"] else 0.0
    for gpu in wanted["gpus"].values():
        rated_w[wanted["nodes"][gpu["node"]]["rack"]] += models[gpu["model"]]["rated_w"]
    for key, rack in wanted["racks"].items():
        if rack["cooling_zone"] is None:
            continue
        kind = wanted["cooling_zones"][rack["cooling_zone"]]["kind"]
        found = excess(kind, rated_w=rated_w[key], budget_w=rack["budget_w"])
        if found is not None:
            yield f"rack {key} {found.sentence}"


def _compare(wanted: dict[str, Row], have: dict[str, Row], removed: dict[str, Row]) -> KindPlan:
    return KindPlan(
        created={key: row for key, row in wanted.items() if key not in have},
        changed={
            key: Change(have[key], row)
            for key, row in wanted.items()
            if key in have and have[key] != row
        },
        removed=removed,
    )


def _doomed(wanted: Rows, have: Rows, sites: frozenset[str], prune_sites: bool) -> Rows:
    """Return the rows that are not wanted and in reach of the inventory."""
    site_of = sites_of(have)
    doomed = {
        kind: {
            key: row
            for key, row in have[kind].items()
            if key not in wanted[kind] and (prune_sites or site_of[kind][key] in sites)
        }
        for kind in site_of
    }
    used = {row["model"] for kind in ("nodes", "gpus") for row in wanted[kind].values()}
    doomed["hardware_models"] = {
        name: row
        for name, row in have["hardware_models"].items()
        if prune_sites and name not in wanted["hardware_models"] and name not in used
    }
    return doomed
