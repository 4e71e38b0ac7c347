"""Fleets, frames and headroom for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fleet.snapshot import FleetArrays
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.inputs import Mounts, Past, ThermalFits
from policies.scopes import ScopeKind
from telemetry.frame import LiveFrame
from telemetry.live_frame import Frame
from tests.builders.arrays import make_frame

NOW = 1_000_000.0
#: A part like an H100 in a good chassis.
RESISTANCE, CAPACITANCE, AMBIENT_C = 0.052, 480.0, 22.0


def all_read(fleet: FleetArrays, **gpu: Any) -> LiveFrame:
    """Return a frame in which every GPU was just read, and draws 400 W unless ``gpu`` says else."""
    values = {"power_w": 400.0, "temp_c": 50.0, "temp_mem_c": 55.0, "throttle": 0, **gpu}
    return make_frame(fleet, now=NOW, gpu=values)


def fitted(
    fleet: FleetArrays, resistance: Any = RESISTANCE, capacitance: Any = CAPACITANCE
) -> Past:
    """Return a past in which every GPU has a fit."""
    ones = np.ones(len(fleet.gpus))
    fits = ThermalFits(resistance * ones, capacitance * ones, AMBIENT_C * ones, 0.9 * ones)
    return replace(Past.none(fleet), thermal=fits)


def with_mounts(fleet: FleetArrays, past: Past | None = None) -> Past:
    """Return a past that knows a mount of each node, as ``make_frame`` has them."""
    mounts = Mounts(fleet.nodes.ids, fleet.nodes.storage)
    return replace(past or Past.none(fleet), mounts=mounts)


def headroom_of(fleet: FleetArrays, frame: Frame, **given: Any) -> Headroom:
    """Evaluate at ``NOW``."""
    return evaluate(fleet, frame, now=NOW, **given)


def column(headroom: Headroom, kind: ScopeKind, name: str) -> Any:
    """Return a column as a list."""
    return headroom.table(kind).columns[name].tolist()
