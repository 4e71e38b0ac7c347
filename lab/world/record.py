"""The record of a run of a world: series, jobs, decisions, and a digest of them all.

Budgets are counted against true watts, never against readings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headroom.contracts import ThrottleCause
from lab.twin import Twin

__all__ = ["Decision", "JobOutcome", "Ledger", "Record", "Series"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: What rounding may take of a budget, as a share.
_ROUNDING = 1e-6
#: Causes of throttling that count, by name.
CAUSES = {
    "sw_power_cap": int(ThrottleCause.SW_POWER_CAP),
    "sw_thermal": int(ThrottleCause.SW_THERMAL),
    "hw_thermal": int(ThrottleCause.HW_THERMAL),
    "hw_power_brake": int(ThrottleCause.HW_POWER_BRAKE),
}


@dataclass(frozen=True)
class Decision:
    """A decision, at a second of the twin."""

    at_s: float
    what: str
    whom: str
    how: str = ""


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """The outcome of a job. Times are seconds of the twin; None: it has not come to that."""

    key: str
    project: str
    state: str
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    #: that it asked for
    gpus: int
    #: useful work that is done, lost work, and time of GPUs that it held
    work_gpu_s: float
    lost_gpu_s: float
    held_gpu_s: float
    restarts: int
    pauses: int
    #: pauses without need: by true watts there was room enough
    false_pauses: int
    retries: float
    #: None: it trains by no specification, or has not ended
    checkpoint_ok: bool | None
    sync_delay_s: float
    final_loss: float | None
    #: its mean clock while it ran, as a share of the highest; None: it has not run
    speed: float | None
    #: of its speed, the share that it agreed to give up
    max_slowdown: float

    @property
    def wait_s(self) -> float | None:
        """Time from submission to its first start."""
        return None if self.started_s is None else self.started_s - self.submitted_s


@dataclass(frozen=True, eq=False)
class Series:
    """The samples of a run: one row for each of ``Record.times_s``."""

    #: true watts by site, feed and rack, in the order of the twin's
    site_w: Array
    feed_w: Array
    rack_w: Array
    #: the largest share of a budget that was drawn among racks, power domains and sites
    rack_use: Array
    domain_use: Array
    site_use: Array
    zone_use: Array
    inlet_c: Array
    gpu_c: Array
    #: GPUs that throttle: by cause, and of these all that nobody has asked for
    throttled: dict[str, Array]
    unexpected: Array
    queued: Array
    running_gpus: Array
    paused_gpus: Array
    firing: Array
    restrictions: Array
    silent_nodes: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """The record of a run."""

    seed: int
    policy: str
    sites: tuple[str, ...]
    until_s: float
    times_s: Array
    series: Series
    jobs: list[JobOutcome]
    decisions: list[Decision]
    #: seconds in which some rack, power domain, zone or site was over its budget, and any of them
    over_budget_s: dict[str, float]
    #: the most that was over, W, by the same kinds
    worst_over_w: dict[str, float]
    #: the most by which what was reserved, and what is drawn beside it, was over a budget when
    #: admission looked, as a share of it: what was full to the brim may drift by its noise
    reserved_over_share: float
    #: of the whole fleet: J by site; GPU·s throttled by cause, and unexpected
    energy_j: float
    site_energy_j: Array
    throttle_gpu_s: dict[str, float]
    unexpected_throttle_gpu_s: float
    #: GPU·s of work done, running and done jobs alike
    work_gpu_s: float
    lost_gpu_s: float
    busy_gpu_s: float
    #: GPU·s of work on nodes that another scheduler fills
    others_gpu_s: float
    trips: int
    digest: str


@dataclass(eq=False)
class Ledger:
    """The counts of a world while it goes on."""

    twin: Twin
    decisions: list[Decision] = field(default_factory=list)
    over_s: dict[str, float] = field(default_factory=dict)
    over_w: dict[str, float] = field(default_factory=dict)
    reserved_over_share: float = 0.0
    throttle_gpu_s: dict[str, float] = field(default_factory=dict)
    unexpected_gpu_s: float = 0.0
    busy_gpu_s: float = 0.0
    others_gpu_s: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        kinds = ("rack", "domain", "zone", "site", "any")
        self.over_s = dict.fromkeys(kinds, 0.0)
        self.over_w = dict.fromkeys(kinds, 0.0)
        self.throttle_gpu_s = dict.fromkeys(CAUSES, 0.0)
        gpus_per_node = self.twin.fleet.gpu_count // len(self.twin.queued)
        self._others = np.flatnonzero(np.repeat(~self.twin.queued, gpus_per_node))
        self._site_j: Array = np.zeros(len(self.twin.fleet.sites))

    def note(self, what: str, whom: str, how: str = "") -> None:
        """Write a decision down."""
        self.decisions.append(Decision(self.twin.now_s, what, whom, how))

    def count(self, dt_s: float, budgets: dict[str, Array], capped: Bools) -> None:
        """Count ``dt_s`` seconds. ``capped``: GPUs under a cap that policies have set."""
        twin = self.twin
        drawn = drawn_w(twin)
        over_any = False
        for kind, budget_w in budgets.items():
            over_w = float((drawn[kind] - budget_w * (1.0 + _ROUNDING)).max(initial=0.0))
            if over_w > 0.0:
                self.over_s[kind] += dt_s
                self.over_w[kind] = max(self.over_w[kind], over_w)
                over_any = True
        if over_any:
            self.over_s["any"] += dt_s
        self._site_j += drawn["site"] * dt_s
        self.busy_gpu_s += dt_s * np.count_nonzero(twin.busy)
        if len(self._others):
            theirs = self._others[twin.busy[self._others]]
            self.others_gpu_s += dt_s * float(twin.pace_by_slot[twin.job_of_gpu[theirs]].sum())
        self._count_throttling(dt_s, capped)

    def _count_throttling(self, dt_s: float, capped: Bools) -> None:
        throttle = self.twin.throttle
        if not (throttle > 1).any():
            return
        for cause, bit in CAUSES.items():
            self.throttle_gpu_s[cause] += dt_s * int(np.count_nonzero(throttle & bit))
        self.unexpected_gpu_s += dt_s * np.count_nonzero(unexpected(self.twin, capped))

    @property
    def site_j(self) -> Array:
        """Energy by site since the beginning, J."""
        return self._site_j

    def digest(self) -> str:
        """Return a checksum over all decisions and the state of the twin."""
        found = hashlib.sha256()
        for each in self.decisions:
            found.update(f"{each.at_s!r}|{each.what}|{each.whom}|{each.how}\n".encode())
        twin = self.twin
        state: Iterable[NDArray[Any]] = (
            twin.power_w, twin.temp_c, twin.temp_mem_c, twin.clock, twin.energy_j, twin.rack_w,
            twin.inlet_c, twin.throttle, twin.job_of_gpu,
        )  # fmt: skip
        for array in state:
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()


def unexpected(twin: Twin, capped: Bools) -> Bools:
    """Say which GPUs throttle for no limit that anybody has set, by heat, brakes, or after them.

    ``capped``: GPUs under a cap that policies have set. At the limit that a GPU is sold with, or
    that somebody has lowered, it throttles as is meant; not at one that a brake has left behind.
    """
    throttle = twin.throttle
    by_cap = (throttle & CAUSES["sw_power_cap"]) > 0
    others = CAUSES["sw_thermal"] | CAUSES["hw_thermal"] | CAUSES["hw_power_brake"]
    meant_w = twin.parts.power_limit_w * twin.conditions.power_limit_share
    braked = twin.own_limit_w < (1.0 - _ROUNDING) * meant_w
    found: Bools = ((throttle & others) > 0) | (by_cap & braked & ~capped)
    return found


def drawn_w(twin: Twin) -> dict[str, Array]:
    """Return the true watts of racks, power domains, zones and sites."""
    site_w = np.bincount(twin.fleet.site_of_rack, twin.rack_w, len(twin.fleet.sites))
    return {
        "rack": twin.rack_w,
        "domain": twin.domain_w,
        "zone": twin.zone_heat_w,
        "site": site_w.astype(np.float64),
    }
