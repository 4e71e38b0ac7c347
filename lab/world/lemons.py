"""GPUs of a world that are worse than their peers, found as on the server, window by window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays
from policies.headroom.evaluate import Headroom
from telemetry.lemons.evidence import Finding, Memory, weigh
from telemetry.lemons.find import Window, find
from telemetry.lemons.rules import WINDOW_S, Metric

__all__ = ["Lemons"]

Array = NDArray[np.float64]

_MEANS = ("power_w", "power_limit_w", "temp_c", "temp_mem_c", "sm_mhz", "util")


class Lemons:
    """The findings that hold, and the readings since the last window that was looked at."""

    def __init__(self, fleet: FleetArrays) -> None:
        self._fleet = fleet
        self._memory = {metric: Memory() for metric in Metric}
        self.found: dict[tuple[int, Metric], Finding] = {}
        self._begin()

    def _begin(self) -> None:
        gpus = len(self._fleet.gpus)
        self._since = np.inf
        self._readings: Array = np.zeros(gpus)
        self._sums: Mapping[str, Array] = {name: np.zeros(gpus) for name in _MEANS}
        self._first_job = np.full(gpus, -1, dtype=np.int64)
        self._changed = np.zeros(gpus, dtype=np.bool_)

    def note(self, measured: Headroom, now: float) -> bool:
        """Take in what GPUs read at ``now`` (Unix s); say whether a window was looked at."""
        ended = now - self._since >= WINDOW_S
        if ended:
            self._judge(now)
            self._begin()
        self._since = min(self._since, now)
        fresh = measured.summary.gpus.fresh
        read = measured.frame.fields("gpu", self._fleet.gpus.ids, *_MEANS, "job_id")
        for name in _MEANS:
            self._sums[name][fresh] += read[name][fresh]
        job = read["job_id"].astype(np.int64)
        new = fresh & (self._readings == 0)
        self._first_job[new] = job[new]
        self._changed |= fresh & (job != self._first_job)
        self._readings[fresh] += 1
        return ended

    @property
    def by_node(self) -> NDArray[np.int64]:
        """How many GPUs of each node are worse than their peers."""
        rows = [gpu - 1 for gpu in {gpu for gpu, _ in self.found}]
        node = self._fleet.gpus.node[np.array(rows, dtype=np.int64)]
        return np.bincount(node, minlength=len(self._fleet.nodes))

    def _judge(self, now: float) -> None:
        for metric, scores in find(self._window()).items():
            self._memory[metric].take(scores)
            known = list(self.found.values())
            for each in weigh(known, metric, scores, self._memory[metric], self._since, now):
                self.found[each.key] = each
        self.found = {key: each for key, each in self.found.items() if each.ended_at is None}

    def _window(self) -> Window:
        fleet, rows = self._fleet, np.flatnonzero(self._readings)
        node = fleet.gpus.node[rows]
        rack = fleet.nodes.rack[node]
        job = np.where(self._changed | (self._first_job <= 0), -1, self._first_job)
        means: dict[str, Any] = {
            name: self._sums[name][rows] / self._readings[rows] for name in _MEANS
        }
        return Window(
            gpu_id=fleet.gpus.ids[rows],
            model=fleet.gpus.model[rows],
            index=fleet.gpus.index[rows],
            node=node,
            rack=rack,
            zone=fleet.racks.zone[rack],
            site=fleet.racks.site[rack],
            job=job[rows],
            rated_w=fleet.gpus.rated_w[rows],
            readings=self._readings[rows],
            **means,
        )
