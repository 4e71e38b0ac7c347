"""A fleet with gangs where a test wants them, for what looks at a twin's placement only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lab.fleet import COMFORTABLE, GPUS_PER_NODE, NODES_PER_RACK, SITE_NAMES, Fleet, Rack
from lab.training import JOB_KINDS, Load, Workload
from lab.twin.conditions import Conditions

GPUS_PER_RACK = NODES_PER_RACK * GPUS_PER_NODE


def make_racks(*, sites: int = 1, racks: int = 4) -> Fleet:
    """Return ``racks`` full racks of H100 at each of ``sites`` sites."""
    return Fleet(
        tuple(
            Rack(site=site, row="A", position=i, kind=COMFORTABLE, nodes=NODES_PER_RACK)
            for site in SITE_NAMES[:sites]
            for i in range(racks)
        )
    )


class PlacedTwin:
    """What a network wants to know of a twin."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        nodes = len(fleet.nodes)
        rng = np.random.default_rng(1)
        self.workload = Workload([], nodes, rng, tasks=fleet.gpu_count, seed=1)
        self.conditions = Conditions(fleet)
        self.placement_version = 0
        self.now_s = 0.0
        self.job_of_gpu = np.zeros(fleet.gpu_count, dtype=np.int64)
        self.activity = np.full(fleet.gpu_count, 0.8)

    @property
    def load(self) -> Load:
        return self.workload.load(self.now_s)

    def hold(self, gpus: NDArray[np.intp], slot: int) -> None:
        self.job_of_gpu[gpus] = slot
        self.placement_version += 1

    def let_go(self, slot: int) -> None:
        self.job_of_gpu[self.job_of_gpu == slot] = 0
        self.placement_version += 1

    def gang(self, *racks: int, nodes: int = 4) -> int:
        """Place a gang with ``nodes`` free nodes in each of ``racks``; return its slot."""
        slot = self.workload.begin_task("gang", JOB_KINDS["train"], 0.0, nodes=nodes * len(racks))
        assert slot is not None
        self.hold(np.concatenate([self.free(rack, nodes) for rack in racks]), slot)
        return slot

    def free(self, rack: int, nodes: int) -> NDArray[np.intp]:
        """Return the GPUs of the first free nodes of a rack."""
        here = np.flatnonzero(self.job_of_gpu == 0)
        first, last = rack * GPUS_PER_RACK, (rack + 1) * GPUS_PER_RACK
        return here[(here >= first) & (here < last)][: nodes * GPUS_PER_NODE]
