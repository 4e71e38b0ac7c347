"""The work that could be done within budgets by somebody who knew what each job draws.

To see what a controller costs, one has to know what is to be had at all. So everything is granted
that no controller has: gangs can be divided and moved at will, begin at once, and wait for nothing;
all that a fleet may draw is one budget; hosts need no fans; and what each job draws, and when it
ends, is known before. Kept are the physics of GPUs and hosts, and what jobs agreed to. What is left
is a linear program over stretches of time.

Two of these bounds are worth knowing. With peaks apart each job counts with what it draws on
average: no two ever draw their peak at once, and nothing ever jumps. With peaks together each
counts with what it draws while it computes: that is what caps have to keep room for where nobody
can take back a jump in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, vstack

from lab.approaches.comparison import Setup
from lab.approaches.windows import WINDOWS, setup_of
from lab.fleet import GPUS_PER_NODE, RACK_SWITCHES_W
from lab.hardware import GpuModel, HostModel
from lab.traces.arrivals import arrivals
from lab.training import JOB_KINDS
from lab.twin.state import AWAKE_BASE, AWAKE_SLOPE, HOST_BASE_LOAD, HOST_WORK_LOAD
from lab.twin.tree import domains_of
from lab.world import Arrival
from physics.power import gpu_power_w

__all__ = ["bound_gpu_h", "bounds_table"]

Array = NDArray[np.float64]

#: Stretches of a run, and the clocks between which jobs are divided.
_STRETCHES = 24
_CLOCKS = np.linspace(0.3, 1.0, 29)
#: What agreed to nothing may do less by this share of its speed: the bar of the comparison.
_FIRM_SLOWDOWN = 0.02


class _Job(NamedTuple):
    """Of one GPU of a job at each clock: what it draws with its host, W, and its work in a second.

    Both are NaN at clocks that it did not agree to.
    """

    drawn_w: Array
    work: Array


def bound_gpu_h(setup: Setup, jobs: Sequence[Arrival], *, peaks_apart: bool) -> float:
    """Return the most work that can be done in a run, in hours of a GPU at full speed.

    Raises ValueError where a part of the fleet is others', whose load nobody knows.
    """
    if setup.others_share > 0.0:
        raise ValueError("setup: what others place has no bound")
    fleet = setup.fleet()
    kind = fleet.racks[0].kind
    gpu, host = kind.gpu, kind.host
    nodes, gpus = len(fleet.nodes), fleet.gpu_count
    idle_w = HOST_BASE_LOAD * (host.rated_w - host.idle_w) + host.idle_w
    rest_w = len(fleet.racks) * RACK_SWITCHES_W + nodes * idle_w + gpus * gpu.idle_w
    room_w = _budget_w(setup) - rest_w
    stretch_s = setup.hours * 3600.0 / _STRETCHES
    rows = [_of_job(each, gpu, host, peaks_apart=peaks_apart) for each in jobs]
    # A column for each job, stretch in which it may run, and clock that it agreed to.
    end_s = stretch_s * np.arange(1, _STRETCHES + 1)
    here = np.array([[at_s < end for end in end_s] for at_s in (each.at_s for each in jobs)])
    agreed = np.array([~np.isnan(each.work) for each in rows])
    job, stretch, clock = np.nonzero(here[:, :, None] & agreed[:, None, :])
    drawn_w = np.array([each.drawn_w for each in rows])[job, clock] - gpu.idle_w
    work_s = np.array([each.work for each in rows])[job, clock] * stretch_s
    column, ones = np.arange(len(job)), np.ones(len(job))
    wanted = np.array([each.request.gpus for each in jobs], dtype=np.float64)
    runs_s = np.array([each.runs_s for each in jobs])
    shape = len(jobs), len(job)
    found = linprog(
        -work_s,
        A_ub=vstack(
            [
                csr_matrix((ones, (stretch, column)), (_STRETCHES, len(job))),
                csr_matrix((drawn_w, (stretch, column)), (_STRETCHES, len(job))),
                csr_matrix((ones, (job * _STRETCHES + stretch, column)),
                           (_STRETCHES * len(jobs), len(job))),
                csr_matrix((work_s, (job, column)), shape),
            ]
        ).tocsr(),
        b_ub=np.concatenate(
            [
                np.full(_STRETCHES, float(gpus)),
                np.full(_STRETCHES, room_w),
                np.repeat(wanted, _STRETCHES),
                wanted * runs_s,
            ]
        ),
    )  # fmt: skip
    return float(-found.fun) / 3600.0


def bounds_table(data: Path, seeds: Sequence[int]) -> str:
    """Return the bounds of all windows as a table in Markdown; ``data``: the folder of traces.

    Raises :class:`~lab.traces.TraceError`.
    """
    lines = ["| window | seed | peaks apart, GPU h | peaks together, GPU h |", "|---|--:|--:|--:|"]
    for window in WINDOWS:
        setup = setup_of(window, data)
        if setup.others_share > 0.0:
            continue
        for seed in seeds:
            jobs = arrivals(setup.jobs(), setup.manner, seed=seed)
            apart, together = (
                bound_gpu_h(setup, jobs, peaks_apart=is_apart) for is_apart in (True, False)
            )
            lines.append(f"| {window.name} | {seed} | {apart:.1f} | {together:.1f} |")
    return "\n".join(lines)


def _budget_w(setup: Setup) -> float:
    """Return the least of what all racks, all zones and all sites may draw together, W."""
    fleet = setup.fleet()
    domains = domains_of(fleet)
    return min(
        sum(rack.budget_w for rack in fleet.racks),
        sum(rack.kind.zone_capacity_w_per_rack for rack in fleet.racks),
        float(domains.budget_w[domains.parent < 0].sum()),
    )


def _of_job(job: Arrival, gpu: GpuModel, host: HostModel, *, peaks_apart: bool) -> _Job:
    activity = 1.0 if job.activity is None else job.activity
    exchange = _exchange_share(job)
    least = 1.0 - max(job.request.max_slowdown, _FIRM_SLOWDOWN)
    # Only what is computed takes longer at a lower clock.
    computes_s = (1.0 - exchange) / _CLOCKS
    lasts_s = computes_s + exchange
    drawn_w = _drawn_w(activity, gpu, host)
    if peaks_apart:
        exchanging_w = _drawn_w(JOB_KINDS["train"].comm_activity * activity, gpu, host)
        drawn_w = (computes_s * drawn_w + exchange * exchanging_w) / lasts_s
    may = np.greater_equal(_CLOCKS, least - 1e-9)
    return _Job(np.where(may, drawn_w, np.nan), np.where(may, 1.0 / lasts_s, np.nan))


def _exchange_share(job: Arrival) -> float:
    """Return the share of its time in which a job exchanges gradients, at full clocks."""
    spec = job.training
    if spec is None:
        return 0.0
    trains_s = job.runs_s - spec.warmup_s
    return float(np.clip(1.0 - spec.base_step_s * spec.total_steps / trains_s, 0.0, 1.0))


def _drawn_w(activity: float, gpu: GpuModel, host: HostModel) -> Array:
    """Return what one GPU draws with its share of its host's work at each clock, W."""
    curve = gpu.power_curve
    # Those that wait for the slowest spin, as in the twin.
    load = activity * (0.5 + 0.5 * _CLOCKS)
    awake = np.minimum(AWAKE_BASE + AWAKE_SLOPE * load, 1.0)
    full_w = gpu.idle_w + (gpu.awake_w - gpu.idle_w) * awake + gpu.dynamic_w * load
    standing_w = np.minimum(curve.static_share * gpu.rated_w, full_w)
    drawn_w = gpu_power_w(
        static_w=standing_w,
        dynamic_w=full_w - standing_w,
        relative_throughput=_CLOCKS,
        exponent=curve.exponent,
        linear_share=curve.linear_share,
    )
    host_w = HOST_WORK_LOAD * (host.rated_w - host.idle_w) * load / GPUS_PER_NODE
    return np.asarray(drawn_w + host_w)
