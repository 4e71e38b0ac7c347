"""Fleets by seed, and what their readings are over windows of a day."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from telemetry.lemons.find import Array, Window

RATED_W = 700.0
MAX_MHZ = 1980.0
#: What healthy GPUs differ by, as those of the twin do: thermal resistance, leakage, clocks.
RESISTANCE = 0.055
RESISTANCE_SPREAD = 0.05
CLOCK_SPREAD = 0.006


@dataclass
class Fleet:
    """Racks of eight nodes of eight GPUs, with a job on every four nodes."""

    gpus: int
    seed: int = 1
    #: thermal resistance and clock of each GPU over those of a healthy one
    hotter: Array = field(init=False)
    slower: Array = field(init=False)

    def __post_init__(self) -> None:
        self.rng = rng = np.random.default_rng(self.seed)
        number = np.arange(self.gpus)
        self.index, self.node = number % 8, number // 8
        self.rack, self.zone = self.node // 8, self.node // 32
        self.hotter, self.slower = np.ones(self.gpus), np.ones(self.gpus)
        self._resistance = RESISTANCE * rng.normal(1.0, RESISTANCE_SPREAD, self.gpus)
        self._memory = rng.normal(14.0, 1.5, self.gpus)
        self._clock = rng.normal(0.9, CLOCK_SPREAD, self.gpus)
        self._inlet_c = rng.normal(28.0, 2.0, self.rack.max() + 1)
        self._wander_c = np.zeros(self.gpus)

    def window(self) -> Window:
        """Return the means of the next window: jobs change now and then, temperatures wander."""
        rng, count = self.rng, self.gpus
        jobs = self.node // 4
        if not hasattr(self, "_work") or rng.random() < 0.1:
            self._work = rng.choice([0.0, 0.55, 0.8, 0.97], jobs.max() + 1, p=[0.1, 0.2, 0.3, 0.4])
        work = self._work[jobs]
        self._wander_c = 0.9 * self._wander_c + rng.normal(0.0, 0.4, count)
        clock = self._clock * self.slower + rng.normal(0.0, 0.002, count)
        power_w = 90.0 + 560.0 * work * (clock / 0.9) ** 3 * rng.normal(1.0, 0.02, count)
        rear_c = np.where(self.index >= 4, 3.0, 0.0)
        ambient_c = self._inlet_c[self.rack] + rear_c + self._wander_c
        temp_c = ambient_c + self._resistance * self.hotter * power_w
        return Window(
            gpu_id=np.arange(1, count + 1),
            model=np.zeros(count, np.int64),
            index=self.index,
            node=self.node,
            rack=self.rack,
            zone=self.zone,
            site=np.zeros(count, np.int64),
            job=np.where(work > 0, jobs, -1),
            rated_w=np.full(count, RATED_W),
            readings=np.full(count, 30),
            power_w=power_w,
            power_limit_w=np.full(count, RATED_W),
            # A sensor shows whole degrees; of 30 readings half of the grain is left.
            temp_c=temp_c + rng.uniform(-0.2, 0.2, count),
            temp_mem_c=temp_c + self._memory,
            sm_mhz=np.where(work > 0, clock * MAX_MHZ, 345.0),
            util=np.where(work > 0, 98.0, 0.0),
        )
