"""The figures of a run: the numbers that approaches are compared by."""

from __future__ import annotations

import msgspec

__all__ = ["Anchor", "Figures", "Seen"]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run of one approach. Unfinished jobs count as they stood at its end."""

    approach: str
    seed: int
    gpus: int
    hours: float
    jobs: int
    started: int
    finished: int
    #: work of jobs, in hours of a GPU at full speed, without what was lost again
    work_gpu_h: float
    #: of all jobs; one that never began has waited until the end
    wait_p50_s: float
    wait_p95_s: float
    #: GPUs that were slowed though nobody had asked for it, or more than that
    unexpected_throttle_gpu_h: float
    #: GPUs that were slowed by power caps, by heat and by power brakes, at times by several of them
    cap_throttle_gpu_h: float
    thermal_gpu_h: float
    brake_gpu_h: float
    #: seconds in which some budget was exceeded, all of them and by kind
    over_budget_s: float
    over_by_kind_s: dict[str, float]
    energy_kwh: float
    carbon_kg: float
    lost_gpu_h: float
    restarts: int
    pauses: int
    #: largest power of a site as a share of its budget, and of a rack, as sampled
    site_peak_share: float
    rack_peak_share: float
    #: mean wait of gangs for the slowest of their gradients, s per step
    sync_delay_s: float
    #: of jobs that agreed to no slowdown the lowest mean speed, as a share of full; and of the
    #: others the share that were slower than they agreed to, by more than half a percent
    firm_speed_least: float = 1.0
    slower_than_agreed: float = 0.0
    #: work on nodes that another scheduler fills
    others_work_gpu_h: float = 0.0
    #: digest of the run: the same seed gives the same
    digest: str

    @property
    def all_work_gpu_h(self) -> float:
        """Work of jobs and on nodes that another scheduler fills."""
        return self.work_gpu_h + self.others_work_gpu_h

    @property
    def work_per_kwh(self) -> float:
        """Hours of a GPU at full speed for each kWh."""
        return self.work_gpu_h / self.energy_kwh if self.energy_kwh else 0.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Series of a run, for plots: a value for each time. Shares of budgets, by kind of budget."""

    t_s: list[float]
    shares: dict[str, list[float]]
    unexpected_gpus: list[float]
    running_gpus: list[float]


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A published result, and the comparable figure of the twin."""

    name: str
    source: str
    published: str
    here: str
    differs: str
