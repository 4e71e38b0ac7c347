"""Readings of a fleet with the grain of real sensors, step by step, for stores to be compared on.

The twin makes them. What differs from what the twin's own agents send is what is finer in NVML, so
that no store has it easier than with real cards: power in whole milliwatts, and NVLink and PCIe
rates that are never twice the same. Rates have the seven digits that a float of 32 bits holds, so
that no store keeps more of them than another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.fleet import GPUS_PER_NODE, Fleet, make_load_fleet
from lab.readings import Frame
from lab.twin import Twin
from lab.twin.network import Network

Array = NDArray[Any]

STEP_S = 10.0
#: The twin's jobs need a while until phases, heat and caps are as they will be.
_WARM_UP_S = 900.0
_RATE_NOISE = 0.03
_RATE_DIGITS = 7
_RATES = ("nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx")


@dataclass(frozen=True)
class Step:
    """One reading of every GPU. ``values`` has an array for each field, NaN where a part lacks it.

    ``ts`` is Unix seconds, whole milliseconds: nodes are read at moments of their own, but GPUs of
    one node at the same.
    """

    ts: Array
    values: Mapping[str, Array]

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(int(np.count_nonzero(~np.isnan(each))) for each in self.values.values())


class Readings:
    """Readings of ``gpus`` GPUs each ten seconds from ``start_s`` on. The same each time."""

    def __init__(self, gpus: int, *, start_s: float, seed: int = 7) -> None:
        self.fleet: Fleet = make_load_fleet(gpus=gpus)
        self._twin = Twin(self.fleet, seed=seed)
        self._twin.advance(_WARM_UP_S)
        self._network = Network(self._twin, seed=seed)
        self._rng = np.random.default_rng(seed)
        offsets_ms = self._rng.integers(0, int(STEP_S * 1000), len(self.fleet.nodes))
        self._offset_s = np.repeat(offsets_ms / 1000, GPUS_PER_NODE)
        self._start_s = round(start_s)
        self._taken = 0

    def steps(self, count: int) -> Iterator[Step]:
        """Yield the next ``count`` steps."""
        for _ in range(count):
            self._twin.advance(STEP_S)
            ts = self._start_s + self._taken * STEP_S + self._offset_s
            self._taken += 1
            yield Step(np.round(ts, 3), self._values())

    def _values(self) -> dict[str, Array]:
        values = {
            name: np.asarray(column, dtype=np.float64)
            for name, column in Frame(self._twin, self._network).gpus.items()
        }
        values["power_w"] = self._twin.power_w.round(3)
        for name in _RATES:
            noisy = values[name] * self._rng.normal(1.0, _RATE_NOISE, len(values[name]))
            values[name] = _rounded(noisy.clip(0.0))
        return values


def _rounded(values: Array) -> Array:
    """Return whole numbers of at most seven digits that count."""
    digits = np.ceil(np.log10(np.maximum(values, 1.0)))
    step = 10.0 ** np.maximum(digits - _RATE_DIGITS, 0.0)
    rounded: Array = np.round(values / step) * step
    return rounded
