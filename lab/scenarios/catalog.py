"""The standard scenarios: one YAML file each, in ``lab/scenarios/standard``."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

from headroom.errors import HeadroomError
from lab.matrix.reading import load
from lab.matrix.scenario import Scenario

__all__ = ["QUICK", "UnknownScenario", "by_name", "standard"]

FOLDER = Path(__file__).parent / "standard"
#: The order of the matrix: the six that every release meets, then what else goes wrong in fleets.
NAMES = (
    "normal",
    "mild-power-restriction",
    "severe-thermal-restriction",
    "high-latency-cross-site-path",
    "packet-loss-on-artifact-storage",
    "throttled-clock-mode",
    "reduced-power-limits",
    "elevated-inlet",
    "limited-bandwidth",
    "storage-contention",
    "node-loss",
    "feed-loss",
    "site-isolation",
    "stale-telemetry",
    "lying-sensors",
    "clock-skew",
    "storm",
)
#: Those that find most, for a first look.
QUICK = ("normal", "mild-power-restriction", "severe-thermal-restriction", "feed-loss")


class UnknownScenario(HeadroomError, ValueError):
    """There is no standard scenario of that name."""


@cache
def _read(name: str) -> Scenario:
    return load(FOLDER / f"{name}.yaml")


def standard() -> list[Scenario]:
    """Return the standard scenarios, in the order of the matrix."""
    return [_read(name) for name in NAMES]


def by_name(name: str) -> Scenario:
    """Return a standard scenario. Raises :class:`UnknownScenario`."""
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        way_out = f"do you mean {close[0]}?" if close else f"one of: {', '.join(NAMES)}"
        raise UnknownScenario(f"there is no standard scenario {name} ({way_out})")
    return _read(name)
