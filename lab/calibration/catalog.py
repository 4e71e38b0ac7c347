"""All calibrations, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.calibration import caps, cluster, heat, node_power, single, sources, swings, unseen
from lab.calibration.result import Comparison
from lab.spread import Part, Work

__all__ = ["CALIBRATIONS", "COMPARE", "Asked", "Calibration"]


@dataclass(frozen=True)
class Calibration:
    """A calibration: what it compares, given the folder of the data sets, and which it reads."""

    compare: Callable[[Path], Iterator[Comparison]]
    #: beside what lies in this repository
    reads: tuple[str, ...] = ()


CALIBRATIONS: dict[str, Calibration] = {
    node_power.NAME: Calibration(node_power.compare, (sources.NODE_POWER,)),
    swings.SWINGS: Calibration(swings.compare_swings, (sources.NODE_POWER,)),
    swings.LOADS: Calibration(swings.compare_loads, (sources.NODE_POWER,)),
    swings.DIPS: Calibration(swings.compare_dips, (sources.NODE_POWER,)),
    caps.NAME: Calibration(caps.compare, (sources.POWER_LIMITS,)),
    cluster.NAME: Calibration(cluster.compare, (sources.FLEET,)),
    heat.NAME: Calibration(heat.compare, (sources.FAST_POWER,)),
    single.NAME: Calibration(single.compare, (sources.CAPTURES, sources.WALL_POWER)),
    single.CAPPED: Calibration(single.compare_capped),
    single.STEPS: Calibration(single.compare_steps, (sources.STEPS,)),
    unseen.KINDS: Calibration(unseen.compare_kinds, (sources.NODE_POWER,)),
    unseen.GPUS: Calibration(unseen.compare_gpus, (sources.POWER_LIMITS,)),
    unseen.CLUSTER: Calibration(unseen.compare_cluster, (sources.FLEET,)),
}


@dataclass(frozen=True)
class Asked:
    """A calibration by name, and the data sets that it reads."""

    name: str
    data: Part


def _compared(asked: Asked) -> list[Comparison]:
    return list(CALIBRATIONS[asked.name].compare(asked.data.folder))


COMPARE = Work(f"{__name__}:COMPARE", _compared, Asked, list[Comparison])
