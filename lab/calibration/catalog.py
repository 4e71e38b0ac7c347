"""All calibrations, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from lab.calibration import caps, cluster, heat, node_power, single, swings
from lab.calibration.result import Comparison

#: Takes the folder that holds the data sets.
Calibration = Callable[[Path], Iterator[Comparison]]

CALIBRATIONS: dict[str, Calibration] = {
    node_power.NAME: node_power.compare,
    swings.SWINGS: swings.compare_swings,
    swings.DIPS: swings.compare_dips,
    caps.NAME: caps.compare,
    cluster.NAME: cluster.compare,
    heat.NAME: heat.compare,
    single.NAME: single.compare,
    single.CAPPED: single.compare_capped,
    single.STEPS: single.compare_steps,
}
