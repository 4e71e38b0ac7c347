"""Training jobs on a few racks, with a network and a storage, and clocks as a test sets them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lab.training import Checkpoint, JobTable, Progress, TrainingSpec, Workload
from lab.twin.network import Network
from lab.twin.storage import Storage
from tests.unit.lab.twin.placed import PlacedTwin, make_racks


def make_training(**changes: Any) -> TrainingSpec:
    """Return a job of steps of one second that neither exchanges nor saves anything."""
    return TrainingSpec(**({"base_step_s": 1.0, "total_steps": 1000} | changes))


class Run:
    """A run of training jobs. ``pace`` is the clock of each gang's slowest GPU, by slot."""

    def __init__(self, *, sites: int = 1, seed: int = 1, repeat: int = 0) -> None:
        fleet = make_racks(sites=sites, racks=2)
        self.twin = PlacedTwin(fleet)
        self.twin.workload = Workload(
            [], len(fleet.nodes), np.random.default_rng(seed), tasks=64, seed=seed, repeat=repeat
        )
        self.network = Network(self.twin, seed=seed)
        self.storage = Storage(fleet, self.twin.conditions)
        self.pace = np.ones(len(self.twin.workload.names))

    @property
    def jobs(self) -> JobTable:
        return self.twin.workload.jobs

    def begin(
        self,
        spec: TrainingSpec,
        *racks: int,
        nodes: int = 4,
        name: str = "job",
        resume: Checkpoint | None = None,
    ) -> int:
        """Begin a job on ``nodes`` nodes in each of ``racks`` (rack 0 if there are none)."""
        racks = racks or (0,)
        count = nodes * len(racks)
        slot = self.twin.workload.begin_training(
            name, spec, self.twin.now_s, nodes=count, resume=resume
        )
        assert slot is not None
        self.twin.hold(np.concatenate([self.twin.free(rack, nodes) for rack in racks]), slot)
        return slot

    def end(self, slot: int) -> None:
        self.twin.let_go(slot)
        self.twin.workload.end_task(slot)

    def go(self, seconds: float, *, dt_s: float = 1.0) -> None:
        for _ in range(round(seconds / dt_s)):
            self.twin.now_s += dt_s
            self.twin.workload.train(dt_s, self.pace, network=self.network, storage=self.storage)

    def finish(self, slot: int, *, dt_s: float = 1.0, within_s: float = 1e5) -> float:
        """Go on until a job is done; return how long it took."""
        began_s = self.twin.now_s
        while slot not in self.jobs.finished():
            assert self.twin.now_s < began_s + within_s, self.jobs.progress(slot)
            self.go(dt_s, dt_s=dt_s)
        return self.twin.now_s - began_s

    def progress(self, slot: int) -> Progress:
        return self.jobs.progress(slot)
