"""A world of a few hundred GPUs under all policies, to measure how fast worlds go."""

from __future__ import annotations

import numpy as np

from admission.core.request import Locality, Request
from admission.core.response.respond import Throttling
from lab.fleet import make_even_fleet
from lab.hardware import H100
from lab.world.arrival import Arrival
from lab.world.world import World

__all__ = ["bench_case"]

_GPUS = 256
#: Jobs keep about so much of the fleet busy.
_BUSY_SHARE = 0.8
_MEDIAN_S, _SPREAD = 2400.0, 0.8
_SIZES = (1, 2, 4, 8, 16)
#: What a GPU draws more at its worst than by its activity alone.
_MARGIN = 1.08


def bench_case(*, hours: float = 4.0, seed: int = 1) -> tuple[World, float]:
    """Return a world that is tight in power, and the second of the twin to run it to."""
    rng, until_s = np.random.default_rng(seed), 3600.0 * hours
    mean_s = _MEDIAN_S * float(np.exp(_SPREAD**2 / 2))
    count = round(_BUSY_SHARE * _GPUS * until_s / (mean_s * float(np.mean(_SIZES))))
    fleet = make_even_fleet(gpus=_GPUS, sites=2, power_share=0.85, feed_share=0.9)
    arrivals = [_arrival(number, rng, until_s) for number in range(count)]
    return World(fleet, arrivals, seed=seed), until_s


def _arrival(number: int, rng: np.random.Generator, until_s: float) -> Arrival:
    runs_s = float(rng.lognormal(np.log(_MEDIAN_S), _SPREAD))
    activity, gpus = float(rng.uniform(0.4, 1.0)), int(rng.choice(_SIZES))
    peak_w = min(_MARGIN * (H100.awake_w + H100.dynamic_w * activity), H100.rated_w)
    return Arrival(
        at_s=float(rng.uniform(0.0, until_s)),
        runs_s=runs_s,
        activity=activity,
        throttling=Throttling(0.05, 0.02, 0.5),
        moves=True,
        request=Request(
            key=f"job-{number}/train",
            job=f"job-{number}",
            phase="train",
            project=f"team-{number % 4}",
            job_class="training",
            priority=0,
            submitted_at=0.0,
            gpus=gpus,
            min_gpus=gpus,
            gpu_peak_w=peak_w,
            required=Locality.SITE,
            walltime_s=3.0 * runs_s,
            preemptible=True,
            checkpoint_interval_s=1800.0,
            cross_site_checkpoint=True,
        ),
    )
