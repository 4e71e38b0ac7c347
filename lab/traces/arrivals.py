"""Jobs of a trace as they come to a twin: the values in the trace, and the rest drawn.

Traces say when jobs came, how long they ran and on how many GPUs. They say nothing of what they
drew, how close together they stood, or what they would have put up with. That is drawn for each job
by its line in the file and a seed, so it is the same in any part of the trace.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from admission.core.request import Locality, Request
from admission.core.response.respond import Throttling
from lab.fleet import GPUS_PER_NODE
from lab.hardware import H100, GpuModel
from lab.traces.trace import JobTrace
from lab.training import make_spec
from lab.world.arrival import Arrival
from physics.hardware.drivers import LEAST_POWER_SHARE

__all__ = ["Flexibility", "Manner", "arrivals"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Flexibility:
    """A tier of jobs: ``share`` of all, and how much of its speed each of them gives up at most."""

    share: float
    max_slowdown: float


#: Four tiers: no reduction, and average reductions of throughput up to 10 %, 25 % and 50 %, as the
#: field demonstration of Emerald Conductor sorted its jobs (Colangelo et al., arXiv 2507.00909).
#: How many jobs are in each is not the paper's: they are as many in each.
TIERS = (
    Flexibility(0.25, 0.0),
    Flexibility(0.25, 0.10),
    Flexibility(0.25, 0.25),
    Flexibility(0.25, 0.50),
)


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The properties of jobs that traces lack. Shares are of jobs, or of a GPU's rating."""

    gpu: GpuModel = H100
    #: what a GPU draws at full clock, evenly between: the upper half of the busy GPUs of Acme's
    #: cluster Seren draws from 77 % of its rating on; above 95 % its own limit would cut in
    peak_share: tuple[float, float] = (0.6, 0.95)
    #: jobs that say what they draw, up to the next of these steps; others are taken at the rating
    declare: float = 0.5
    declared_in_w: float = 25.0
    tiers: tuple[Flexibility, ...] = TIERS
    #: share of a budget that is left when flexible jobs shrink their batch (A), and pause (B)
    shrink_below: float = 0.05
    pause_below: float = 0.01
    checkpoint_interval_s: float = 1800.0
    #: jobs whose checkpoints are copied to another site, and that go on there
    move: float = 0.5
    #: users ask for the next of these that is at least so many times what the job runs, s
    walltimes_s: tuple[float, ...] = field(
        default=tuple(3600.0 * hours for hours in (0.5, 1, 2, 4, 8, 24, 72, 168, 720, 2160))
    )
    walltime_times: float = 2.0


def arrivals(trace: JobTrace, manner: Manner | None = None, *, seed: int) -> list[Arrival]:
    """Return the jobs of a trace, in order, as they come to a world."""
    manner = manner or Manner()
    if not len(trace):
        return []
    drawn = np.random.default_rng(seed).random((int(trace.line.max()) + 1, _COLUMNS))
    return [
        _arrival(trace, manner, row, _Drawn(*drawn[trace.line[row]].tolist()), seed)
        for row in range(len(trace))
    ]


class _Drawn(NamedTuple):
    """Numbers from 0 to 1 that are drawn for a job."""

    power: float
    declare: float
    tier: float
    move: float


_COLUMNS = len(_Drawn._fields)


def _arrival(trace: JobTrace, manner: Manner, row: int, drawn: _Drawn, seed: int) -> Arrival:
    gpu, gpus, job = manner.gpu, int(trace.gpus[row]), f"j{trace.line[row]}"
    low, high = manner.peak_share
    peak_w = gpu.rated_w * (low + (high - low) * drawn.power)
    activity = max((peak_w - gpu.awake_w) / gpu.dynamic_w, 0.0)
    step_w = manner.declared_in_w
    flex = _tier(manner.tiers, drawn.tier)
    # Logs round, and a job of 0 s ran, too.
    runs_s = max(float(trace.runs_s[row]), 1.0)
    training = make_spec("train", gpus=gpus, runs_s=runs_s, key=job, seed=seed, gpu=gpu)
    moves = drawn.move < manner.move
    fits_node = gpus <= GPUS_PER_NODE
    request = Request(
        key=f"{job}/train",
        job=job,
        phase="train",
        project=trace.project[row],
        job_class="training",
        priority=0,
        submitted_at=0.0,
        gpus=gpus,
        min_gpus=gpus,
        gpu_peak_w=step_w * -(-peak_w // step_w) if drawn.declare < manner.declare else None,
        lowest_cap_w=_lowest_cap_w(gpu, flex.max_slowdown),
        max_slowdown=flex.max_slowdown,
        required=Locality.NODE if fits_node else Locality.SITE,
        preferred=Locality.NODE if fits_node else Locality.RACK,
        walltime_s=_walltime_s(trace, row, manner),
        checkpoint_interval_s=manner.checkpoint_interval_s,
        cross_site_checkpoint=moves,
    )
    return Arrival(
        at_s=float(trace.submit_s[row]),
        request=request,
        runs_s=runs_s,
        activity=activity,
        training=replace(
            training,
            activity=activity,
            checkpoint_interval_s=manner.checkpoint_interval_s,
        ),
        throttling=_throttling(manner, flex),
        moves=moves,
    )


def _lowest_cap_w(gpu: GpuModel, max_slowdown: float) -> float | None:
    """Return the lowest cap that a job takes: any that a driver sets, if it is slowed at all.

    What it agrees to is a slowdown; which cap that is, is for others to know.
    """
    return LEAST_POWER_SHARE * gpu.rated_w if max_slowdown else None


def _tier(tiers: Sequence[Flexibility], drawn: float) -> Flexibility:
    upto = np.cumsum([each.share for each in tiers])
    return tiers[min(bisect.bisect_right(upto.tolist(), drawn * upto[-1]), len(tiers) - 1)]


def _throttling(manner: Manner, flex: Flexibility) -> Throttling:
    """Return the throttling that a job agrees to: pauses, if it gives up a quarter or more."""
    if not flex.max_slowdown:
        return Throttling()
    pauses = flex.max_slowdown >= _PAUSES_FROM
    return Throttling(
        shrink_below=manner.shrink_below,
        pause_below=manner.pause_below if pauses else None,
        batch_scale=1.0 - flex.max_slowdown,
    )


#: A pause costs more than a smaller batch: jobs agree to it that give up this much of their speed.
_PAUSES_FROM = 0.25


def _walltime_s(trace: JobTrace, row: int, manner: Manner) -> float:
    asked_s = float(trace.walltime_s[row])
    if not np.isnan(asked_s):
        return max(asked_s, 1.0)
    wanted_s = manner.walltime_times * float(trace.runs_s[row])
    return next((each for each in manner.walltimes_s if each >= wanted_s), wanted_s)
