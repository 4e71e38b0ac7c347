"""The jobs of a scenario: drawn by the seed, the same whatever policy they meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from admission.core.request import Locality, Request
from admission.core.response.respond import Throttling
from headroom.errors import HeadroomError
from lab.fleet import GPUS_PER_NODE, Fleet
from lab.matrix.scenario import Load, Scenario, seconds
from lab.training import TrainingSpec, make_spec
from lab.world.arrival import Arrival

__all__ = ["LoadError", "arrivals_of"]

#: Margins of a budget under which jobs shrink their batch, and pause.
SHRINK_BELOW, PAUSE_BELOW = 0.05, 0.01
BATCH_SCALE = 0.5
#: What an elastic job gives up of its speed for a cap, and how low that may be, of a GPU's rating.
MAX_SLOWDOWN, LOWEST_CAP_SHARE = 0.25, 0.6
#: Users ask for so many times what a job runs.
WALLTIME_TIMES = 3.0
#: What the jobs draw at most, as a share of what GPUs are rated for.
ACTIVITY = (0.75, 1.0)


class LoadError(HeadroomError, ValueError):
    """The jobs of a scenario do not suit its fleet."""


def arrivals_of(scenario: Scenario, fleet: Fleet, *, seed: int) -> list[Arrival]:
    """Return the jobs in the order in which they come. Raises :class:`LoadError`."""
    load, largest = scenario.load, max(scenario.load.gpus)
    on_site = int(np.bincount(fleet.site_of_rack[fleet.rack_of_node]).max()) * GPUS_PER_NODE
    if largest > on_site:
        raise LoadError(
            f"load.gpus: a job of {largest} GPUs fits on no site, the largest has {on_site}:"
            " give smaller jobs, more GPUs, or fewer sites"
        )
    rng = np.random.default_rng([seed, 11])
    drawn = list(_drawn(load, load.demand * fleet.gpu_count * scenario.duration_s, rng))
    at_start = round(load.at_once * len(drawn))
    later_s = np.sort(rng.uniform(0.0, scenario.duration_s, len(drawn) - at_start))
    at_s = [0.0] * at_start + later_s.tolist()
    rated_w = max(rack.kind.gpu.rated_w for rack in fleet.racks)
    return [
        _arrival(_Job(f"job-{number:03d}", begins_s, gpus, runs_s, seed), rated_w, load, rng)
        for number, ((gpus, runs_s), begins_s) in enumerate(zip(drawn, at_s, strict=True))
    ]


@dataclass(frozen=True)
class _Job:
    name: str
    at_s: float
    gpus: int
    runs_s: float
    seed: int

    def training(self, load: Load) -> TrainingSpec:
        """Return how it trains: the more often it saves, the less it writes each time."""
        interval_s = seconds(load.checkpoint)
        spec = make_spec(gpus=self.gpus, runs_s=self.runs_s, key=self.name, seed=self.seed)
        share = min(interval_s / spec.checkpoint_interval_s, 1.0)
        saved = spec.checkpoint_bytes * share
        return replace(spec, checkpoint_bytes=saved, checkpoint_interval_s=interval_s)


def _drawn(
    load: Load, wanted_gpu_s: float, rng: np.random.Generator
) -> Iterator[tuple[int, float]]:
    """Yield GPUs and lengths of jobs until they ask for ``wanted_gpu_s``."""
    median_s = seconds(load.runs)
    while wanted_gpu_s > 0.0:
        gpus = int(rng.choice(load.gpus))
        runs_s = float(median_s * np.exp(rng.normal(0.0, load.spread)))
        wanted_gpu_s -= gpus * runs_s
        yield gpus, runs_s


def _arrival(job: _Job, rated_w: float, load: Load, rng: np.random.Generator) -> Arrival:
    shares = (load.elastic, load.pausable, load.cross_site)
    elastic, pausable, moves = (rng.random(3) < shares).tolist()
    on_node = job.gpus <= GPUS_PER_NODE
    request = Request(
        key=f"{job.name}/train",
        job=job.name,
        phase="train",
        project="research",
        job_class="training",
        priority=0,
        submitted_at=0.0,
        gpus=job.gpus,
        min_gpus=job.gpus,
        lowest_cap_w=LOWEST_CAP_SHARE * rated_w if elastic else None,
        max_slowdown=MAX_SLOWDOWN if elastic else 0.0,
        required=Locality.NODE if on_node else Locality.SITE,
        preferred=Locality.NODE if on_node else Locality.RACK,
        walltime_s=WALLTIME_TIMES * job.runs_s,
        checkpoint_interval_s=seconds(load.checkpoint),
        cross_site_checkpoint=moves,
    )
    return Arrival(
        at_s=job.at_s,
        request=request,
        runs_s=job.runs_s,
        training=job.training(load),
        throttling=Throttling(
            shrink_below=SHRINK_BELOW if elastic else None,
            pause_below=PAUSE_BELOW if pausable else None,
            batch_scale=BATCH_SCALE,
        ),
        moves=moves,
        activity=float(rng.uniform(*ACTIVITY)),
    )
