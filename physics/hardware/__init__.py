"""A dated, sourced catalogue of accelerators, links, racks, cooling and reference values.

Two profiles stand side by side: :data:`TEXTBOOK`, what the appendix Fleet Foundations of a textbook
states, and :data:`CURRENT`, what vendors and other primary sources state. Their figures are data:
``textbook.toml`` and ``current.toml``. A profile is a value. Laws take numbers, never a profile:
the catalogue is kept apart from the formulas.
"""

from __future__ import annotations

from physics.hardware.catalog import CURRENT, TEXTBOOK
from physics.hardware.entries import (
    Accelerator,
    BudgetReference,
    Cluster,
    Component,
    CoolingKind,
    EfficiencyReference,
    Entry,
    Figure,
    Link,
    MigProfile,
    PowerCurveReference,
    PueReference,
    RackKind,
    References,
    Source,
    Workload,
)
from physics.hardware.profile import Difference, Profile

__all__ = [
    "CURRENT",
    "PROFILES",
    "TEXTBOOK",
    "Accelerator",
    "BudgetReference",
    "Cluster",
    "Component",
    "CoolingKind",
    "Difference",
    "EfficiencyReference",
    "Entry",
    "Figure",
    "Link",
    "MigProfile",
    "PowerCurveReference",
    "Profile",
    "PueReference",
    "RackKind",
    "References",
    "Source",
    "Workload",
]

PROFILES: dict[str, Profile] = {each.name: each for each in (TEXTBOOK, CURRENT)}
