"""What two runs were given that differs: place, image, inputs, limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Difference", "Given", "differences"]

#: So many names stand in a value; of the others their number.
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class Given:
    """What one run was given. ``phase`` is that of its specification as it was when it began.

    ``models`` are those of its GPUs. ``told`` are limits that were in force meanwhile, in words.
    """

    placement: Mapping[str, Any]
    phase: Mapping[str, Any]
    models: Sequence[str]
    told: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that differs: of ``kind`` place, image, inputs or limits. Empty: it had none."""

    kind: str
    what: str
    this: str
    other: str


def differences(this: Given, other: Given) -> list[Difference]:
    """Return what differs between two runs, by kind."""
    ours, theirs = _facts(this), _facts(other)
    return [
        Difference(*key, ours.get(key, ""), theirs.get(key, ""))
        for key in dict.fromkeys([*ours, *theirs])
        if ours.get(key, "") != theirs.get(key, "")
    ]


def _facts(given: Given) -> dict[tuple[str, str], str]:
    """Return what a run was given as words, by kind and what it is."""
    placed, phase = given.placement, given.phase
    artifacts = phase.get("artifacts") or {}
    gpus = sum(map(len, placed.get("gpus", {}).values()))
    found = {
        ("place", "sites"): _named(placed.get("sites", ())),
        ("place", "racks"): _named(placed.get("racks", ())),
        ("place", "nodes"): _named(placed.get("nodes", ())),
        ("place", "GPUs"): str(gpus),
        ("place", "GPU models"): _named(sorted(set(given.models))),
        ("place", "storage"): str(placed.get("storage") or ""),
        ("image", "image"): str(artifacts.get("image") or ""),
        ("image", "code revision"): str(artifacts.get("code_revision") or ""),
        **{
            ("inputs", str(name)): str(checksum)
            for name, checksum in sorted((artifacts.get("data") or {}).items())
        },
        ("limits", "power cap of its placement"): _watts(placed.get("power_cap_w")),
        ("limits", "in force meanwhile"): "; ".join(sorted(set(given.told))),
    }
    for name in ("power", "throttling", "checkpoint", "walltime_s", "gang"):
        for what, value in _flat(name, phase.get(name)):
            found["limits", what] = value
    return {key: value for key, value in found.items() if value}


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """Return the fields below a field of a specification, each with its path and its value."""
    if isinstance(value, Mapping):
        return [pair for key, each in value.items() for pair in _flat(f"{name}.{key}", each)]
    return [] if value is None else [(name, str(value))]


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _watts(cap_w: float | None) -> str:
    return "" if cap_w is None else f"{cap_w:g} W per GPU"
