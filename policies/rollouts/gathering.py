"""What is read of a rollout: versions of its racks, and the evidence of jobs on both arms.

Evidence is made of the roll-ups by minute. A job is on an arm where all of its GPUs are, in all of
the time after the change; one that is on both, or partly elsewhere, is on none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleet.tables import METER_TARGETS, FleetArrays
from headroom.contracts import ThrottleCause
from policies.rollouts.document import Plan
from policies.rollouts.evidence import Observed, Units, Work, blocks_of, like_work, medians
from policies.rollouts.judging import Counts
from telemetry.checkpoints.models import CheckpointFact
from telemetry.models import ReportedJob, XidEvent
from telemetry.rollups.spec import MINUTE_S, MINUTES, seconds_of
from telemetry.samples import GPU, JOB, METER
from telemetry.store.columns import US, Columns, Window
from telemetry.store.reading import read
from telemetry.versions.models import NodeVersions

__all__ = ["NO_OTHER_WORK", "Evidence", "checkpoint_sizes", "drift", "evidence"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: Roll-ups of the last minutes may still grow, s.
_SETTLES_S = 150.0
#: A step is slow that takes so many times as long as the job's median before the change.
_SLOW = 1.5
#: A power cap is expected: somebody set it.
_CAUSES = tuple(
    seconds_of(cause)
    for cause in (ThrottleCause.SW_THERMAL, ThrottleCause.HW_THERMAL, ThrottleCause.HW_POWER_BRAKE)
)
_NOBODY = np.iinfo(np.int32).min


NO_OTHER_WORK = {"changed": 0, "control": 0}


@dataclass(frozen=True)
class Evidence:
    """Blocks by metric, and how much of the changed GPUs they cover."""

    means: Mapping[str, Array]
    counts: Mapping[str, Counts]
    covered: float
    blocks: int
    #: jobs of each arm that did other work than before in some block
    other_work: Mapping[str, int] = field(default_factory=lambda: dict(NO_OTHER_WORK))


# --- Versions ------------------------------------------------------------------------------------


def drift(
    plan: Plan, fleet: FleetArrays, racks: Iterable[str], *, back: bool
) -> list[dict[str, str]]:
    """Return the nodes of ``racks`` that do not report what they are to have. One query.

    ``back``: those that do not report anything but the change. A node that reports nothing is
    among them either way. Where agents report none of it, nothing is.
    """
    if plan.field is None:
        return []
    rows = NodeVersions.objects.exclude(**{plan.field: ""})
    told = dict(rows.values_list("node__name", plan.field))
    wanted = f"not {plan.version}" if back else plan.version
    return [
        {"rack": rack, "node": node, "wanted": wanted, "found": told.get(node, "")}
        for rack, node in _nodes_of(fleet, racks)
        if node not in told or (told[node] == plan.version) is back
    ]


def _nodes_of(fleet: FleetArrays, racks: Iterable[str]) -> list[tuple[str, str]]:
    """Return the nodes of racks, each with its rack's path."""
    here = set(racks)
    paths = fleet.racks.paths[fleet.nodes.rack].tolist()
    names = fleet.nodes.names.tolist()
    return [(path, name) for path, name in zip(paths, names, strict=True) if path in here]


def checkpoint_sizes() -> dict[str, int]:
    """Return the bytes of the last checkpoint of each job. One query."""
    facts = CheckpointFact.objects.exclude(bytes=None).order_by("saved_at")
    return {job: size for job, size in facts.values_list("job", "bytes") if size is not None}


# --- Evidence ------------------------------------------------------------------------------------


def evidence(
    plan: Plan,
    fleet: FleetArrays,
    *,
    changed: Sequence[str],
    control: Sequence[str],
    changing_since: datetime,
    soaking_since: datetime,
    sizes: Mapping[str, int],
    now: datetime,
) -> Evidence:
    """Return the evidence so far. Two reads of GPUs and of jobs each, and some queries.

    ``sizes``: bytes of the checkpoints of jobs before the change.
    """
    start = _whole_minute(soaking_since.timestamp())
    count = int((now.timestamp() - _SETTLES_S - start) // plan.block_s)
    most = int(plan.before_s // plan.block_s)
    count = max(0, min(count, most))
    if not count:
        return Evidence({}, {}, 0.0, 0)
    arms = _Arms.of(fleet, changed, control)
    after = _Seen(arms, Window(start, start + count * plan.block_s), plan.block_s, count)
    end = _whole_minute(changing_since.timestamp())
    before = _Seen(arms, Window(end - count * plan.block_s, end), plan.block_s, count)
    jobs = np.unique(np.concatenate([after.jobs, before.jobs]))
    units = after.units(jobs)
    known = _checkpoints(jobs, sizes, start, plan.block_s, count)
    seen = after.observed(jobs, known[0])
    past = before.observed(jobs, known[1]).of(np.arange(count)[::-1].astype(np.intp))
    like = like_work(after.work(jobs), before.work(jobs).backwards())
    means, covered = blocks_of(seen, past, units, like)
    slow = after.slow(jobs, medians(past.step_s), units, like)
    differ = ~like.all(axis=0)
    return Evidence(
        means, {"xids": arms.xids(after), "slow_steps": slow}, covered, count,
        {
            "changed": int((differ & units.changed).sum()),
            "control": int((differ & units.unchanged).sum()),
        },
    )  # fmt: skip


def _whole_minute(at: float) -> float:
    return float(-(-at // MINUTE_S) * MINUTE_S)


@dataclass(frozen=True)
class _Arms:
    """GPUs of both arms: by id their arm (1 changed, 2 control), rack and model."""

    fleet: FleetArrays
    ids: Ints
    arm: Ints
    rack: Ints
    model: Ints

    @staticmethod
    def of(fleet: FleetArrays, changed: Sequence[str], control: Sequence[str]) -> _Arms:
        arm_of_rack = np.zeros(len(fleet.racks.paths), dtype=np.int64)
        for number, paths in ((1, changed), (2, control)):
            arm_of_rack[np.isin(fleet.racks.paths.astype(str), list(paths))] = number
        rack = fleet.nodes.rack[fleet.gpus.node]
        arm = arm_of_rack[rack]
        order = np.flatnonzero(arm)
        order = order[np.argsort(fleet.gpus.ids[order])]
        return _Arms(fleet, fleet.gpus.ids[order], arm[order], rack[order], fleet.gpus.model[order])

    def xids(self, seen: _Seen) -> Counts:
        """Return Xid errors and GPU-hours of both arms by block. One query."""
        arm_of_rack = np.zeros(len(self.fleet.racks.paths), dtype=np.int64)
        arm_of_rack[self.rack] = self.arm
        arm_of_node = arm_of_rack[self.fleet.nodes.rack]
        arms = dict(zip(self.fleet.nodes.ids.tolist(), arm_of_node.tolist(), strict=True))
        events = np.zeros((3, seen.count))
        found = XidEvent.objects.filter(ts__gte=seen.window.start_at, ts__lt=seen.window.end_at)
        for node_id, ts in found.values_list("node_id", "ts"):
            block = int((ts.timestamp() - seen.window.start) // seen.block_s)
            events[arms.get(node_id, 0), min(block, seen.count - 1)] += 1.0
        hours = [
            np.full(seen.count, float((self.arm == arm).sum()) * seen.block_s / 3600.0)
            for arm in (1, 2)
        ]
        return Counts(events[1], events[2], hours[0], hours[1])


class _Seen:
    """The readings of one span, by job and block."""

    def __init__(self, arms: _Arms, window: Window, block_s: float, count: int) -> None:
        self.arms, self.window, self.block_s, self.count = arms, window, block_s, count
        names = ("power_w", "temp_c", "util", "job_id", *_CAUSES)
        rows = read(MINUTES[GPU.name], names, window, arms.ids.tolist())
        held = rows["job_id"] != _NOBODY
        self._gpus = {name: values[held] for name, values in rows.items()}
        self._place = np.searchsorted(arms.ids, self._gpus["gpu_id"])
        self.jobs: Ints = np.unique(self._gpus["job_id"]).astype(np.int64)
        names = ("step_time_s", "step_time_s_max", "lost_share", "samples_per_s", "tokens_per_s")
        self._told: Columns = (
            read(MINUTES[JOB.name], names, window, self.jobs.tolist())
            if len(self.jobs)
            else {name: np.zeros(0) for name in ("ts", "job_id", *names)}
        )

    def _block(self, ts: NDArray[Any]) -> Ints:
        return ((ts / US - self.window.start) // self.block_s).astype(np.int64)

    def units(self, jobs: Ints) -> Units:
        """Return which arm each of ``jobs`` is on, with its GPUs and their model."""
        at = np.searchsorted(jobs, self._gpus["job_id"])
        arm, model = self.arms.arm[self._place], self.arms.model[self._place]
        on = [np.bincount(at, arm == number, len(jobs)) for number in (1, 2)]
        minutes = np.maximum(on[0] + on[1], 1.0)
        pairs = np.unique(np.stack([at, self._place]), axis=1)
        gpus = np.bincount(pairs[0], minlength=len(jobs)).astype(np.float64)
        stratum = np.zeros(len(jobs), dtype=np.int64)
        stratum[at] = model
        changed, unchanged = (each / minutes == 1.0 for each in on)
        return Units(changed, unchanged, stratum, gpus)

    def observed(self, jobs: Ints, checkpoint_bytes: Array) -> Observed:
        """Return what was read of ``jobs``, in their order."""
        of_gpus = self._gpus
        throttled = np.sum([np.nan_to_num(of_gpus[name]) for name in _CAUSES], axis=0)
        values = {
            "power_w": of_gpus["power_w"],
            "temp_c": of_gpus["temp_c"] - self._inlet_c(),
            "work": of_gpus["util"] / 100.0,
            "throttled": np.minimum(throttled / MINUTE_S, 1.0),
        }
        by_gpu = {name: self._mean(jobs, of_gpus, each) for name, each in values.items()}
        return Observed(
            step_s=self._mean(jobs, self._told, self._told["step_time_s"]),
            in_steps=1.0 - self._mean(jobs, self._told, self._told["lost_share"]),
            checkpoint_bytes=checkpoint_bytes,
            **by_gpu,
        )

    def work(self, jobs: Ints) -> Work:
        """Return what ``jobs`` say of their steps, in their order, and how many GPUs they had."""
        told = self._told
        # Of a step with what comes between it and the next: rates are over both.
        every_s = told["step_time_s"] / np.maximum(1.0 - np.nan_to_num(told["lost_share"]), 0.01)
        samples, tokens = (
            self._mean(jobs, told, told[name] * every_s)
            for name in ("samples_per_s", "tokens_per_s")
        )
        key = self._block(self._gpus["ts"]) * len(jobs) + np.searchsorted(
            jobs, self._gpus["job_id"]
        )
        held = np.unique(np.stack([key, self._place]), axis=1)[0]
        gpus = np.bincount(held, minlength=self.count * len(jobs)).astype(np.float64)
        gpus[gpus == 0.0] = np.nan
        return Work(samples, tokens, gpus.reshape(self.count, len(jobs)))

    def _inlet_c(self) -> Array:
        """Return what enters the rack of each reading in its minute; 0 where no meter tells."""
        meters, racks = self.arms.fleet.meters, self.arms.rack
        here = (meters.target_kind == METER_TARGETS.index("rack")) & np.isin(meters.target, racks)
        found = np.zeros(len(self._place))
        if not here.any():
            return found
        ids = meters.ids[here]
        rows = read(MINUTES[METER.name], ("temp_c",), self.window, ids.tolist())
        known = np.isfinite(rows["temp_c"])
        rack_of = dict(zip(ids.tolist(), meters.target[here].tolist(), strict=True))
        told = {
            (rack_of[meter], ts): temp_c
            for meter, ts, temp_c in zip(
                *(rows[name][known].tolist() for name in ("meter_id", "ts", "temp_c")), strict=True
            )
        }
        places = zip(racks[self._place].tolist(), self._gpus["ts"].tolist(), strict=True)
        return np.array([told.get(place, 0.0) for place in places])

    def _mean(self, jobs: Ints, rows: Columns, values: NDArray[Any]) -> Array:
        """Return the mean of ``values`` by block and job; NaN where there are none."""
        known = np.isfinite(values)
        at = np.searchsorted(jobs, rows["job_id"][known])
        key = self._block(rows["ts"][known]) * len(jobs) + at
        size = self.count * len(jobs)
        total = np.bincount(key, values[known], size)
        number = np.bincount(key, minlength=size)
        mean = np.divide(total, number, out=np.full(size, np.nan), where=number > 0)
        return np.asarray(mean.reshape(self.count, len(jobs)), dtype=np.float64)

    def slow(self, jobs: Ints, usual_s: Array, units: Units, like: Bools) -> Counts:
        """Return minutes of jobs with a slow report, and all their minutes, of both arms by block.

        Jobs that were not there before the change have no usual step, and do not count; nor do
        blocks in which a job does something else (``like``: blocks, jobs).
        """
        at = np.searchsorted(jobs, self._told["job_id"])
        worst = self._told["step_time_s_max"]
        block = self._block(self._told["ts"])
        known = np.isfinite(worst) & np.isfinite(usual_s[at]) & like[block, at]
        is_slow = worst > _SLOW * usual_s[at]

        def count(which: Bools) -> Array:
            return np.bincount(block[which], minlength=self.count).astype(np.float64)

        arms = [known & arm[at] for arm in (units.changed, units.unchanged)]
        return Counts(*(count(arm & is_slow) for arm in arms), *(count(arm) for arm in arms))


def _checkpoints(
    jobs: Ints, sizes: Mapping[str, int], start: float, block_s: float, count: int
) -> tuple[Array, Array]:
    """Return the sizes of checkpoints after and before, (blocks, jobs): those saved since, only."""
    names = dict(ReportedJob.objects.filter(pk__in=jobs.tolist()).values_list("pk", "name"))
    facts = CheckpointFact.objects.exclude(bytes=None).exclude(saved_at=None)
    saved = {
        job: (size, at.timestamp())
        for job, size, at in facts.order_by("saved_at").values_list("job", "bytes", "saved_at")
        if at is not None
    }
    found = np.full((2, count, len(jobs)), np.nan)
    for place, job in enumerate(jobs.tolist()):
        name = names.get(job, "").partition("/")[0]
        if name in sizes and name in saved and saved[name][1] >= start:
            first = int((saved[name][1] - start) // block_s)
            found[0, first:, place] = saved[name][0]
            found[1, :, place] = sizes[name]
    return found[0], found[1]
