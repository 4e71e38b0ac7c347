"""Samples of a world: rows of true values, one for each sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.twin import Twin
from lab.world.record import CAUSES, Series, drawn_w, unexpected

__all__ = ["Sampling"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Sampling:
    """The samples of ``twin`` so far."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin
        self._times: list[float] = []
        self._rows: dict[str, list[Any]] = {}

    def take(
        self,
        budgets: dict[str, Array],
        capped: Bools,
        *,
        queued: int,
        paused_gpus: int,
        firing: int,
        restrictions: int,
    ) -> None:
        """Take one sample."""
        twin, drawn = self._twin, drawn_w(self._twin)
        throttle = twin.throttle
        self._times.append(twin.now_s)
        values: dict[str, Any] = {
            "site_w": drawn["site"],
            "feed_w": twin.feed_w.copy(),
            "rack_w": twin.rack_w.copy(),
            "rack_use": (drawn["rack"] / budgets["rack"]).max(),
            "domain_use": (drawn["domain"] / budgets["domain"]).max(),
            "site_use": (drawn["site"] / budgets["site"]).max(),
            "zone_use": (drawn["zone"] / budgets["zone"]).max(),
            "inlet_c": twin.inlet_c.max(),
            "gpu_c": twin.temp_c.max(),
            "unexpected": np.count_nonzero(unexpected(twin, capped)),
            "queued": queued,
            "running_gpus": np.count_nonzero(twin.busy),
            "paused_gpus": paused_gpus,
            "firing": firing,
            "restrictions": restrictions,
            "silent_nodes": np.count_nonzero(twin.silent),
        }
        values |= {name: np.count_nonzero(throttle & bit) for name, bit in CAUSES.items()}
        for name, value in values.items():
            self._rows.setdefault(name, []).append(value)

    def times(self) -> Array:
        """Return the seconds of the twin at which samples were taken."""
        return np.array(self._times)

    def series(self) -> Series:
        """Return all samples as series."""
        found = {name: np.array(rows, dtype=np.float64) for name, rows in self._rows.items()}
        throttled = {name: found.pop(name, np.zeros(0)) for name in CAUSES}
        names = [name for name in Series.__dataclass_fields__ if name != "throttled"]
        return Series(**{name: found.get(name, np.zeros(0)) for name in names}, throttled=throttled)
