"""A catalogue as a value: looked up by name, changed by making another one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from physics.errors import UnknownKeyError
from physics.hardware import reading
from physics.hardware.entries import (
    UNMEASURED,
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
    Workload,
)
from physics.hardware.reading import SECTIONS

__all__ = ["Difference", "Profile"]

E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Difference:
    """A figure that two profiles both hold, and do not agree on."""

    address: str
    mine: float
    theirs: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Accelerators, links, racks, cooling, and reference values, by section and name.

    Names are found in any case, with or without spaces and punctuation, and by their aliases.
    """

    name: str
    accelerators: Mapping[str, Accelerator]
    power_curves: Mapping[str, PowerCurveReference]
    mig_profiles: Mapping[str, MigProfile]
    links: Mapping[str, Link]
    racks: Mapping[str, RackKind]
    cooling_kinds: Mapping[str, CoolingKind]
    pue_references: Mapping[str, PueReference]
    components: Mapping[str, Component]
    clusters: Mapping[str, Cluster]
    workloads: Mapping[str, Workload]
    references: Mapping[str, References]
    efficiency_tables: Mapping[str, EfficiencyReference]
    overhead_budgets: Mapping[str, BudgetReference]

    def accelerator(self, name: str) -> Accelerator:
        return _look_up("accelerators", self.accelerators, name)

    def accelerator_like(self, name: str) -> Accelerator | None:
        """Return the accelerator that an inventory means by ``name``; None: none is surely that.

        That of its name or model, or of an alias: a card of another form has other peaks.
        """
        wanted = _bare(name)
        return next(
            (
                entry
                for key, entry in self.accelerators.items()
                if wanted in map(_bare, (key, entry.model, *entry.aliases))
            ),
            None,
        )

    def power_curve(self, name: str) -> PowerCurveReference:
        """Return the power curve of a GPU by the name that an inventory gives it.

        The words of the entry's name, or of an alias, are among those of ``name``: "V100" is that
        of "Tesla V100-PCIE-16GB". Without one it is that of a GPU that nobody has measured.
        """
        words = _words(name)
        for key, entry in self.power_curves.items():
            if any(_words(each) <= words for each in (key, *entry.aliases)):
                return entry
        return self.power_curves[UNMEASURED]

    def mig_profiles_of(self, name: str) -> dict[str, MigProfile]:
        """Return what a GPU can be split into, by the name that an inventory gives it.

        Words are compared as in :meth:`power_curve`; empty where it cannot, or nobody knows.
        """
        words = _words(name)
        return {
            entry.profile: entry
            for entry in self.mig_profiles.values()
            if _words(entry.gpu) <= words
        }

    def link(self, name: str) -> Link:
        return _look_up("links", self.links, name)

    def rack(self, name: str) -> RackKind:
        return _look_up("racks", self.racks, name)

    def cooling_kind(self, name: str) -> CoolingKind:
        return _look_up("cooling_kinds", self.cooling_kinds, name)

    def pue_reference(self, name: str) -> PueReference:
        return _look_up("pue_references", self.pue_references, name)

    def component(self, name: str) -> Component:
        return _look_up("components", self.components, name)

    def cluster(self, name: str) -> Cluster:
        return _look_up("clusters", self.clusters, name)

    def workload(self, name: str) -> Workload:
        return _look_up("workloads", self.workloads, name)

    def reference(self, name: str) -> References:
        return _look_up("references", self.references, name)

    def efficiency_table(self, name: str) -> EfficiencyReference:
        return _look_up("efficiency_tables", self.efficiency_tables, name)

    def overhead_budget(self, name: str) -> BudgetReference:
        return _look_up("overhead_budgets", self.overhead_budgets, name)

    def section(self, name: str) -> Mapping[str, Entry]:
        """Return the entries of one section by name. Raises :class:`UnknownKeyError`."""
        if name not in SECTIONS:
            raise UnknownKeyError("section", name, SECTIONS)
        entries: Mapping[str, Entry] = getattr(self, name)
        return entries

    def entry(self, section: str, name: str) -> Entry:
        """Return one entry of a section. Raises :class:`UnknownKeyError`."""
        return _look_up(section, self.section(section), name)

    def find(self, name: str) -> Entry:
        """Return the entry of that name, of the first section that has one.

        Raises :class:`UnknownKeyError`.
        """
        for section in SECTIONS:
            key = _key_of(self.section(section), name)
            if key is not None:
                return self.section(section)[key]
        known = [each for section in SECTIONS for each in _names(self.section(section))]
        raise UnknownKeyError("the catalogue", name, known)

    def figure(self, address: str) -> float:
        """Return a figure by its address: ``accelerators.H100.tdp_w``.

        Raises :class:`UnknownKeyError`, also for a figure that the entry does not hold.
        """
        section, _, rest = address.partition(".")
        name, _, wanted = rest.rpartition(".")
        entry = self.entry(section, name)
        held = {figure.name: figure.value for figure in entry.figures()}
        if wanted not in held:
            raise UnknownKeyError(f"figure of {section}.{entry.name}", wanted, held)
        return held[wanted]

    def addresses(self) -> dict[str, float]:
        """Return every figure of the profile by its address."""
        return {
            f"{section}.{name}.{figure.name}": figure.value
            for section in SECTIONS
            for name, entry in self.section(section).items()
            for figure in entry.figures()
        }

    def differences(self, other: Profile) -> tuple[Difference, ...]:
        """Return the figures that both profiles hold with unlike values."""
        theirs = other.addresses()
        return tuple(
            Difference(address, mine, theirs[address])
            for address, mine in self.addresses().items()
            if address in theirs and theirs[address] != mine
        )

    def with_overrides(self, overrides: Mapping[str, Any], *, name: str | None = None) -> Profile:
        """Return a profile with other figures: ``{"accelerators": {"H100": {"tdp_w": 650}}}``.

        The figures changed have the source that the override gives (``source``: a mapping with
        ``document``, ``publisher`` and ``as_of``), or are marked as the user's own. An entry that
        the profile does not have is added if it brings a source; without one its name is taken for
        a mistake. Raises :class:`UnknownKeyError` and :class:`ImpossibleArgumentError`.
        """
        changed: dict[str, Any] = {
            section: dict(self.section(section)) | self._overridden(section, entries)
            for section, entries in reading.as_table("overrides", overrides).items()
        }
        return dataclasses.replace(self, name=name or self.name, **changed)

    def with_toml(self, text: str, *, name: str | None = None) -> Profile:
        """Return a profile with the overrides that a TOML text holds.

        Tables are named as the sections are: ``[accelerators.H100]`` and under it ``tdp_w = 650``.
        """
        return self.with_overrides(reading.document_of(text), name=name)

    def _overridden(self, section: str, entries: object) -> dict[str, Entry]:
        held = self.section(section)
        found: dict[str, Entry] = {}
        for key, value in reading.as_table(section, entries).items():
            table = reading.as_table(f"{section}.{key}", value)
            entry = (
                reading.new_entry(section, key, table)
                if "source" in table and _key_of(held, key) is None
                else reading.changed_entry(section, _look_up(section, held, key), table)
            )
            found[entry.name] = entry
        return found


def _look_up(section: str, entries: Mapping[str, E], name: str) -> E:
    key = _key_of(entries, name)
    if key is None:
        raise UnknownKeyError(section, name, _names(entries))
    return entries[key]


def _key_of(entries: Mapping[str, Entry], name: str) -> str | None:
    wanted = _bare(name)
    for key, entry in entries.items():
        if wanted in map(_bare, (key, *entry.aliases)):
            return key
    return None


def _names(entries: Mapping[str, Entry]) -> list[str]:
    return [name for key, entry in entries.items() for name in (key, *entry.aliases)]


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.casefold()))


def _bare(name: str) -> str:
    return "".join(each for each in name.casefold() if each.isalnum())
