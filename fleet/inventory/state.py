"""The inventory that there is, as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.inventory.kinds import KINDS, Kind, Row, Rows
from fleet.models import InventoryGeneration
from fleet.reading import one_view_of_the_database


@dataclass(frozen=True)
class State:
    """All rows by kind and key, with their database ids and their generation."""

    rows: Rows = field(default_factory=lambda: {name: {} for name in KINDS})
    ids: Mapping[str, Mapping[str, int]] = field(
        default_factory=lambda: {name: {} for name in KINDS}
    )
    generation: int = 0


def read_state() -> State:
    """Read the whole inventory: one query for each kind, in one view of the database."""
    rows: Rows = {}
    keys: dict[str, dict[int, str]] = {}
    with one_view_of_the_database():
        generation = InventoryGeneration.current()
        for kind in KINDS.values():
            rows[kind.name], keys[kind.name] = _read(kind, keys)
    ids = {name: {key: pk for pk, key in of.items()} for name, of in keys.items()}
    return State(rows, ids, generation)


def _read(kind: Kind, keys: dict[str, dict[int, str]]) -> tuple[dict[str, Row], dict[int, str]]:
    """Return the rows of ``kind`` by key, and their keys by id.

    ``keys`` holds those of the kinds before, for the references.
    """
    fields = (*kind.values, *kind.refs)
    columns = (*kind.values, *(f"{ref}_id" for ref in kind.refs))
    own: dict[int, str] = {}
    found: dict[str, Row] = {}
    known = {**keys, kind.name: own}
    backward = [ref for ref, target in kind.refs.items() if target != kind.name]
    for pk, *values in kind.model._default_manager.order_by("pk").values_list("pk", *columns):
        row = dict(zip(fields, values, strict=True))
        for ref in backward:
            if row[ref] is not None:
                row[ref] = known[kind.refs[ref]][row[ref]]
        own[pk] = key = kind.key_of(row)
        found[key] = row
    # References within the kind, whose keys are all known only now.
    for ref in kind.refs.keys() - set(backward):
        for row in found.values():
            if row[ref] is not None:
                row[ref] = own[row[ref]]
    return found, own
