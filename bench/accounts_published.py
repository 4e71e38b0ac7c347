"""The account of published runs and traces: does it add up, and what does low draw see of them?

``python -m bench.accounts_published`` shows a table. ``HEADROOM_TEST_DATA`` names the folder of the
data sets.

**Traces in time-lapse** (Philly; jobs like those of Acme's clusters, of which no table of jobs was
published). Each job holds GPUs from when it came for as long as it ran, the lowest that are free of
a fleet in which all fit. What traces lack is drawn: when commands began, which jobs were ended by a
failure halfway and began again, which loops report and what, which were paused, which GPUs were
throttled, and which readings are missing. Each hour is accounted for by itself. **It adds up**
where the causes of each rack come to its GPUs times the hour, those of each attempt to what it held
in that hour, and those of each project to what its attempts held in all, to the microsecond.

**Training runs on 64 nodes of H100** (MLPerf Training v4.0). Nodes have a meter at the wall; what
is above a host at rest is shared out evenly to the eight GPUs. The event log says when they
evaluated. Without reports that time can be seen only as low draw.
"""

from __future__ import annotations

import csv
import gzip
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from admission.core.account import PPM, Cause, GpuSpans, Ints, Shares, Whole, throttled
from admission.core.at_work import at_work, least_at_work_w
from admission.core.fleet_account import CAUSES, HELD, Parts
from admission.goodput import draws, fleet, steps
from admission.goodput.draws import GangDraws
from admission.goodput.fleet import Readings, Records
from admission.goodput.steps import Attempts, Reports, times_us
from bench.acme_like import CLUSTERS, FILE, acme_like
from headroom.contracts import ThrottleCause
from lab.hardware import H100, IMMERSED_H100
from lab.traces import JobTrace
from lab.traces.philly import load as load_philly
from telemetry.rollups.spec import HOUR_S, MAX_GAP_S, MINUTE_S
from tests.data_sets import data_folder

__all__ = ["Added", "MeteredRun", "account_of_trace", "metered_runs", "run_of_meters"]

Floats = NDArray[np.float64]

_US = 1_000_000
_GPUS_PER_NODE, _GPUS_PER_RACK = 8, 64
#: Shares of jobs that fail halfway, whose loops report, that are paused; of GPUs that are throttled
#: in an hour; of minutes that are not read.
_FAILS, _REPORTS, _PAUSED, _THROTTLED, _UNREAD = 0.2, 0.5, 0.1, 0.05, 0.001
_REPORT_EVERY_S = 60.0
_HEAT = throttled(ThrottleCause.SW_THERMAL, expected=False)


# --- Traces --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Added:
    """What hours of a trace came to. ``off_us`` is the greatest difference of any sum, µs."""

    hours: int
    gpus: int
    attempts: int
    us: dict[str, int]
    off_us: int


@dataclass(frozen=True, eq=False)
class _Placed:
    """The attempts of a trace: times in s since it began, projects by number, GPUs of each."""

    job: Ints
    number: Ints
    project: Ints
    start: Floats
    end: Floats
    gpus: Sequence[Ints]
    fleet: int


def account_of_trace(trace: JobTrace, *, first_h: int, hours: int, seed: int = 1) -> Added:
    """Account for ``hours`` of a trace from its hour ``first_h`` on."""
    rng = np.random.default_rng(seed)
    placed = _place(trace, rng)
    total = np.zeros(len(CAUSES), dtype=np.int64)
    projects = int(placed.project.max()) + 1
    by_project, held_by_project = np.zeros((2, projects), dtype=np.int64)
    off = 0
    for hour in range(first_h, first_h + hours):
        start, end = float(hour * HOUR_S), float((hour + 1) * HOUR_S)
        here = np.flatnonzero((placed.start < end) & (placed.end > start))
        records = _records(placed, here, start, end, np.random.default_rng([seed, hour]))
        found, _ = fleet.account(records)
        rows = found.us.sum(axis=1)
        by_rack = np.zeros(int(records.parts.scope.max()) + 1, dtype=np.int64)
        np.add.at(by_rack, found.scope, rows)
        of_rack = np.bincount(records.parts.scope) * HOUR_S * _US
        by_attempt = np.zeros(here.size, dtype=np.int64)
        is_held = found.gang >= 0
        np.add.at(by_attempt, found.gang[is_held], rows[is_held])
        held = _held_us(records.held, records.gang, here.size, start, end)
        np.add.at(by_project, placed.project[here], by_attempt)
        np.add.at(held_by_project, placed.project[here], held)
        off = max(off, int(np.abs(by_rack - of_rack).max()))
        off = max(off, int(np.abs(by_attempt - held).max(initial=0)))
        off = max(off, -int(found.us.min()))
        # What nobody held has none of the causes of what is held, and the other way round.
        of_held = found.us[:, HELD].sum(axis=1)
        off = max(off, int(np.abs(of_held - np.where(is_held, rows, 0)).max()))
        total += found.us.sum(axis=0)
    off = max(off, int(np.abs(by_project - held_by_project).max()))
    off = max(off, abs(int(total.sum()) - placed.fleet * hours * HOUR_S * _US))
    causes = {name: us for name, us in zip(CAUSES, total.tolist(), strict=True) if us}
    return Added(hours, placed.fleet, len(placed.job), causes, off)


def _held_us(held: GpuSpans, gang: Ints, gangs: int, start: float, end: float) -> Ints:
    begin, over = (np.clip(at, start * _US, end * _US) for at in (held.start_us, held.end_us))
    found = np.zeros(gangs, dtype=np.int64)
    np.add.at(found, gang, (over - begin).astype(np.int64))
    return found


def _place(trace: JobTrace, rng: np.random.Generator) -> _Placed:
    """Give each job the lowest free GPUs, in two attempts where it fails halfway."""
    names = {name: at for at, name in enumerate(dict.fromkeys(trace.project))}
    fails = rng.random(len(trace)) < _FAILS
    free: list[int] = []
    leaves: list[tuple[float, int]] = []
    most, rows, gpus = 0, [], []
    for job in range(len(trace)):
        start, runs_s = float(trace.submit_s[job]), float(trace.runs_s[job])
        while leaves and leaves[0][0] <= start:
            heapq.heappush(free, heapq.heappop(leaves)[1])
        wanted = int(trace.gpus[job])
        for _ in range(wanted - len(free)):
            heapq.heappush(free, most)
            most += 1
        mine = np.array([heapq.heappop(free) for _ in range(wanted)], dtype=np.int64)
        for gpu in mine.tolist():
            heapq.heappush(leaves, (start + runs_s, gpu))
        half = start + 0.5 * runs_s
        spans = [(start, half), (half, start + runs_s)] if fails[job] else [(start, start + runs_s)]
        for number, (begin, over) in enumerate(spans, start=1):
            rows.append((job, number, names[trace.project[job]], begin, over))
            gpus.append(mine)
    table = np.array(rows, dtype=np.float64).T
    job, number, project = table[:3].astype(np.int64)
    size = -(-most // _GPUS_PER_RACK) * _GPUS_PER_RACK
    return _Placed(job, number, project, table[3], table[4], gpus, size)


def _records(
    placed: _Placed, here: Ints, start: float, end: float, rng: np.random.Generator
) -> Records:
    """Return what was recorded of an hour: of what traces lack, something."""
    job, begun, over = placed.job[here], placed.start[here], placed.end[here]
    held = [placed.gpus[at] for at in here]
    gang = np.repeat(np.arange(here.size), [each.size for each in held])
    part = np.concatenate([*held, np.empty(0, dtype=np.int64)])
    # By job, whenever it is asked.
    drawn = np.random.default_rng(7).random((int(placed.job.max()) + 1, 3))[job]
    began = np.minimum(begun + 5.0 + 85.0 * drawn[:, 2], over)
    attempts = Attempts(job, begun, began, over, steps.alone(job, begun, over))
    reports = _reports(attempts, np.flatnonzero(drawn[:, 0] < _REPORTS), start, end, rng)
    held_spans = GpuSpans(**times_us(part, begun[gang], over[gang]))
    readings = _readings(placed.fleet, held_spans, gang, start, end, rng)
    low = GangDraws(here.size, start, MINUTE_S, HOUR_S // MINUTE_S)
    whose = draws.holders(readings.gpu, readings.middle_us, held_spans, gang)
    low.add(whose, readings.at, readings.draw, readings.at_limit)
    paused = np.flatnonzero(drawn[:, 1] < _PAUSED)
    at = begun[paused] + 0.3 * (over - begun)[paused]
    hot = rng.choice(placed.fleet, int(_THROTTLED * placed.fleet), replace=False)
    since = start + rng.uniform(0.0, HOUR_S, hot.size)
    heat = Shares(
        cause=_HEAT, ppm=rng.integers(0, PPM, hot.size), **times_us(hot, since, since + 600.0)
    )
    nothing = GpuSpans(**times_us((), (), ()))
    return Records(
        start=start,
        end=end,
        parts=Parts.whole(np.arange(placed.fleet) // _GPUS_PER_RACK),
        attempts=attempts,
        numbers=placed.number[here],
        phases=job,
        held=held_spans,
        gang=gang,
        reports=reports,
        heard=begun < start - MAX_GAP_S,
        reached=np.full(here.size, -1.0),
        pauses=Whole(cause=Cause.PAUSED, **times_us(paused, at, at + 300.0)),
        caps=nothing,
        part_caps=nothing,
        throttle=[heat],
        low_draw=low.shares(~np.isin(job, reports.job)),
        busy=readings.spans(works=True),
        idle=readings.spans(works=False),
        drained=nothing,
    )


def _reports(
    attempts: Attempts, which: Ints, start: float, end: float, rng: np.random.Generator
) -> Reports:
    """Return reports of those jobs in an hour, one a minute, in order of job and time."""
    at = np.arange(start - MAX_GAP_S, end + MAX_GAP_S, _REPORT_EVERY_S) + 1.0
    number, when = np.repeat(which, at.size), np.tile(at, which.size)
    runs = (when > attempts.began[number]) & (when < attempts.ended[number])
    number, when = number[runs], when[runs]
    order = np.lexsort((when, attempts.job[number]))
    number, when = number[order], when[order]
    fields = {
        "step": np.floor(when / _REPORT_EVERY_S), "step_time_s": np.full(when.size, 1.0),
        "data_wait_s": rng.uniform(0.0, 0.2, when.size),
        "sync_s": rng.uniform(0.0, 0.2, when.size),
        "lost_share": rng.uniform(0.0, 0.3, when.size),
        "flops_per_step": np.full(when.size, np.nan),
    }  # fmt: skip
    return Reports(attempts.job[number], when, None, fields)


def _readings(
    gpus: int, held: GpuSpans, gang: Ints, start: float, end: float, rng: np.random.Generator
) -> Readings:
    """Return readings of all GPUs by the minute: those that are held work, most of the time."""
    at = np.tile(np.arange(start, end, MINUTE_S), gpus)
    gpu = np.repeat(np.arange(gpus), HOUR_S // MINUTE_S)
    read = rng.random(gpu.size) > _UNREAD
    gpu, at = gpu[read], at[read]
    middle_us = np.rint((at + 0.5 * MINUTE_S) * _US).astype(np.int64)
    is_held = draws.holders(gpu, middle_us, held, gang) >= 0
    drawn = np.where(is_held, rng.choice([0.05, 0.5, 0.8, 0.8], gpu.size), 0.0)
    return Readings(gpu, at, float(MINUTE_S), drawn > 0.1, drawn, np.zeros(gpu.size, np.bool_))


# --- Runs with meters ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MeteredRun:
    """Readings of the nodes of a run at the wall, W, and its evaluations; s since it began."""

    name: str
    node: Ints
    t_s: Floats
    power_w: Floats
    lasts_s: float
    evaluations: Sequence[tuple[float, float]]


def metered_runs(folder: Path, kind: str) -> Iterator[MeteredRun]:
    """Yield the published runs of a kind, such as ``64node_gpt3``, by the meters at the wall."""
    _, bench = kind.split("_", 1)
    nodes = int(kind.split("node", 1)[0])
    spans: dict[str, dict[str, list[float]]] = {}
    with gzip.open(folder / "training_events.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            if row["bench"] == bench and int(row["nodes"]) == nodes:
                of_run = spans.setdefault(row["run_id"], {})
                of_run.setdefault(row["key"], []).append(float(row["t_ms"]) / 1000.0)
    read: dict[str, list[tuple[int, float, float]]] = {}
    with gzip.open(folder / f"power_{kind}.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            # A reading of nothing, or less, is a meter's fault.
            if row["meter"] == "ac" and float(row["power_w"]) > 0.0:
                node = int(row["node"].rpartition("_")[2]) - 1
                at = float(row["t_ms"]) / 1000.0
                read.setdefault(row["run_id"], []).append((node, at, float(row["power_w"])))
    for run, events in sorted(spans.items()):
        node, t_s, power_w = np.array(sorted(read[run])).T
        begin, over = events["run_start"][0], events["run_stop"][0]
        evaluated = zip(events["eval_start"], events["eval_stop"], strict=True)
        yield MeteredRun(
            run, node.astype(np.int64), t_s - begin, power_w, over - begin,
            [(since - begin, until - begin) for since, until in evaluated],
        )  # fmt: skip


def run_of_meters(run: MeteredRun) -> dict[str, int]:
    """Return the account of a run whose loop tells nothing, µs by cause."""
    nodes = int(run.node.max()) + 1
    gpus = nodes * _GPUS_PER_NODE
    minutes = int(np.ceil(run.lasts_s / MINUTE_S))
    place = run.node * minutes + np.minimum(run.t_s // MINUTE_S, minutes - 1).astype(np.int64)
    times = np.bincount(place, minlength=nodes * minutes)
    sums = np.bincount(place, run.power_w, nodes * minutes)
    node_w = np.divide(sums, times, out=np.full(sums.size, np.nan), where=times > 0)
    by_node = (node_w.reshape(nodes, minutes) - IMMERSED_H100.idle_w) / _GPUS_PER_NODE
    power_w = np.repeat(by_node, _GPUS_PER_NODE, axis=0).reshape(-1)
    read = ~np.isnan(power_w)
    idle_w, rated_w = (np.full(int(read.sum()), each) for each in (H100.idle_w, H100.rated_w))
    power_w = power_w[read]
    readings = Readings(
        np.repeat(np.arange(gpus), minutes)[read],
        np.tile(np.arange(minutes) * float(MINUTE_S), gpus)[read],
        float(MINUTE_S),
        at_work(np.full(power_w.size, np.nan), power_w, least_at_work_w(idle_w, rated_w)),
        draws.draw(power_w, idle_w, rated_w),
        draws.is_at_limit(power_w, rated_w),
    )
    every, none = np.arange(gpus), np.zeros(gpus)
    held = GpuSpans(**times_us(every, none, none + run.lasts_s))
    gang = np.zeros(gpus, dtype=np.int64)
    low = GangDraws(1, 0.0, MINUTE_S, minutes)
    low.add(gang[readings.gpu], readings.at, readings.draw, readings.at_limit)
    one, nothing = np.zeros(1), GpuSpans(**times_us((), (), ()))
    attempts = Attempts(
        np.zeros(1, dtype=np.int64), one, one, one + run.lasts_s, np.ones(1, dtype=np.bool_)
    )
    found, _ = fleet.account(
        Records(
            start=0.0, end=run.lasts_s, parts=Parts.whole(np.arange(gpus) // _GPUS_PER_RACK),
            attempts=attempts, numbers=np.ones(1, dtype=np.int64),
            phases=np.zeros(1, dtype=np.int64), held=held, gang=gang,
            reports=_nothing_reported(), heard=np.zeros(1, dtype=np.bool_),
            reached=np.full(1, -1.0), pauses=Whole(cause=Cause.PAUSED, **vars(nothing)),
            caps=nothing, part_caps=nothing, throttle=(), low_draw=low.shares(np.ones(1, np.bool_)),
            busy=readings.spans(works=True), idle=readings.spans(works=False), drained=nothing,
        )
    )  # fmt: skip
    total = found.us.sum(axis=0)
    if int(total.sum()) != gpus * round(run.lasts_s * _US):
        raise RuntimeError(f"{run.name}: the account does not add up")
    return {name: us for name, us in zip(CAUSES, total.tolist(), strict=True) if us}


def _nothing_reported() -> Reports:
    fields = {name: np.empty(0) for name in steps.FIELDS}
    return Reports(np.empty(0, dtype=np.int64), np.empty(0), None, fields)


# --- What is shown -------------------------------------------------------------------------------


def main() -> None:
    """Show what adds up, and what low draw sees of evaluations."""
    folder = data_folder()
    traces = [("Philly", load_philly(folder / "philly-jobs"), 30 * 24, 7 * 24)]
    for cluster in CLUSTERS:
        like = acme_like(folder / FILE, cluster, seed=1)
        traces.append((f"like Acme's {cluster}", like, 0, 48))
    for name, trace, first_h, hours in traces:
        found = account_of_trace(trace, first_h=first_h, hours=hours)
        print(
            f"{name}: {found.hours} h, {found.gpus} GPUs, {found.attempts} attempts of all of it,"
            f" {len(found.us)} causes, off by {found.off_us} µs at most"
        )
    for kind in ("64node_gpt3", "64node_llama2_70b_lora"):
        for run in metered_runs(folder / "mlperf-train-h100-node-power", kind):
            us = run_of_meters(run)
            whole = sum(us.values())
            evaluated = sum(until - since for since, until in run.evaluations) / run.lasts_s
            told = ", ".join(f"{name} {100 * each / whole:.1f} %" for name, each in us.items())
            print(f"{kind} {run.name[-9:]}: {told}; evaluated for {100 * evaluated:.1f} %")


if __name__ == "__main__":
    main()
