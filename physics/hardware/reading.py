"""Reads entries of the catalogue from tables, and checks every figure of them."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from physics.errors import ImpossibleArgumentError, PhysicsError, UnknownKeyError
from physics.hardware.entries import (
    Accelerator,
    BudgetReference,
    Cluster,
    Component,
    CoolingKind,
    EfficiencyReference,
    Entry,
    Link,
    MigProfile,
    PowerCurveReference,
    PueReference,
    RackKind,
    References,
    Source,
    Workload,
)

__all__ = [
    "SECTIONS",
    "as_table",
    "changed_entry",
    "document_of",
    "kinds_of",
    "new_entry",
    "source_of",
    "texts",
]

#: Section of a profile → what its entries are.
SECTIONS: dict[str, type[Entry]] = {
    "accelerators": Accelerator,
    "power_curves": PowerCurveReference,
    "mig_profiles": MigProfile,
    "links": Link,
    "racks": RackKind,
    "cooling_kinds": CoolingKind,
    "pue_references": PueReference,
    "components": Component,
    "clusters": Cluster,
    "workloads": Workload,
    "references": References,
    "efficiency_tables": EfficiencyReference,
    "overhead_budgets": BudgetReference,
}
#: Whose figures they are where a user gives none.
OVERRIDE = Source(document="override", publisher="the user", as_of="")


def document_of(text: str) -> dict[str, Any]:
    """Return what a TOML text holds. Raises :class:`PhysicsError`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise PhysicsError(f"not a profile in TOML: {exc}") from exc


def as_table(address: str, value: object) -> Mapping[str, Any]:
    """Return ``value`` if it is a table, else raise :class:`ImpossibleArgumentError`."""
    if not isinstance(value, Mapping):
        raise ImpossibleArgumentError(address, "a table")
    return value


def texts(address: str, value: object) -> tuple[str, ...]:
    """Return ``value`` if it is a list of texts, else raise :class:`ImpossibleArgumentError`."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ImpossibleArgumentError(address, "a list of texts")
    return tuple(value)


def changed_entry(section: str, entry: Entry, given: Mapping[str, Any]) -> Entry:
    """Return ``entry`` with the figures given, which have the source given or the user's."""
    values = _values(section, entry.name, given)
    source = _source_in(f"{section}.{entry.name}", given)
    sources = {**entry.sources, **dict.fromkeys(values, source)}
    return dataclasses.replace(entry, **values, sources=sources)


def new_entry(section: str, name: str, given: Mapping[str, Any], **more: Any) -> Entry:
    """Return the entry that ``given`` describes; ``more`` are fields that are no figures."""
    values = _values(section, name, given)
    _require_all(f"{section}.{name}", SECTIONS[section], values)
    source = more.pop("source", None) or _source_in(f"{section}.{name}", given)
    return SECTIONS[section](name=name, source=source, **more, **values)


@functools.cache
def kinds_of(section: str) -> dict[str, Any]:
    """Return the type of each field that an entry of a section has of its own."""
    hints = get_type_hints(SECTIONS[section])
    return {name: hint for name, hint in hints.items() if name not in Entry.__annotations__}


def source_of(address: str, value: object) -> Source:
    """Return the source that a table describes."""
    given = as_table(address, value)
    known = [each.name for each in dataclasses.fields(Source)]
    for key in given:
        if key not in known:
            raise UnknownKeyError(address, key, known)
    for key in ("document", "publisher", "as_of"):
        if not isinstance(given.get(key), str):
            raise ImpossibleArgumentError(f"{address}.{key}", "a text")
    return Source(**given)


def _source_in(address: str, given: Mapping[str, Any]) -> Source:
    return source_of(f"{address}.source", given["source"]) if "source" in given else OVERRIDE


def _require_all(address: str, kind: type[Entry], values: Iterable[str]) -> None:
    given = {"name", "source", *values}
    for each in dataclasses.fields(kind):
        optional = (
            each.default is not dataclasses.MISSING
            or each.default_factory is not dataclasses.MISSING
        )
        if not optional and each.name not in given:
            raise ImpossibleArgumentError(f"{address}.{each.name}", "given for a new entry")


def _values(section: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that ``given`` sets, checked."""
    kinds = kinds_of(section)
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key == "source":
            continue
        if key not in kinds:
            raise UnknownKeyError(f"{section}.{name}", key, kinds)
        values[key] = _checked(f"{section}.{name}.{key}", kinds[key], value)
    return values


def _checked(address: str, hint: Any, value: object) -> object:
    kinds = get_args(hint) or (hint,)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ImpossibleArgumentError(address, "a list of numbers")
        return tuple(_checked_number(address, kinds, each) for each in value)
    if int in kinds or float in kinds:
        return _checked_number(address, kinds, value)
    return _checked_text(address, kinds, value)


def _checked_number(address: str, kinds: tuple[Any, ...], value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ImpossibleArgumentError(address, "a number")
    # A share of nothing is a figure; a link or a rack of nothing is not.
    if not (0.0 < value < float("inf") or (value == 0.0 and address.endswith("_share"))):
        raise ImpossibleArgumentError(address, "finite and above 0")
    if float in kinds:
        return float(value)
    if value != int(value):
        raise ImpossibleArgumentError(address, "a whole number")
    return int(value)


def _checked_text(address: str, kinds: tuple[Any, ...], value: object) -> str:
    if not isinstance(value, str):
        raise ImpossibleArgumentError(address, "a text")
    if str not in kinds and value not in kinds:
        raise ImpossibleArgumentError(address, f"one of {', '.join(map(repr, kinds))}")
    return value
