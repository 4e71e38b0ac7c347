"""Series and measures of a run of the twin, and its losses against a run without faults.

All is by what the twin knows, not by what its sensors say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from lab.matrix.expect import Condition, mean_between, recovered_after_s, window_of
from lab.matrix.result import Better, Measure, Series
from lab.matrix.scenario import Period, Scenario
from lab.scenarios.played import Played
from lab.world.record import Decision, JobOutcome, Record

__all__ = [
    "MEASURES",
    "SERIES",
    "against",
    "log_of",
    "losses_of",
    "measures_of",
    "series_of",
    "work_gpu_s",
]

Array = NDArray[np.float64]

#: Names of the series with their unit, plot, and what they are.
SERIES: dict[str, tuple[str, str, str]] = {
    "budget_use": ("", "power", "the largest share of a power budget that is drawn"),
    "rack_use": ("", "power", "of these, among racks"),
    "domain_use": ("", "power", "of these, among feeds, PDUs and utilities"),
    "site_use": ("", "power", "of these, among sites"),
    "zone_use": ("", "heat", "the largest share of a cooling zone's capacity that is carried away"),
    "gpu_temp_c": ("°C", "temperature", "the hottest GPU"),
    "inlet_temp_c": ("°C", "temperature", "the warmest inlet of a rack"),
    "throttled_gpus": ("GPUs", "throttling", "GPUs that throttle though nobody has asked for it"),
    "running_gpus": ("GPUs", "work", "GPUs that jobs hold"),
    "paused_gpus": ("GPUs", "work", "GPUs whose jobs are paused"),
    "queued_jobs": ("jobs", "queue", "jobs that wait"),
    "firing_rules": ("rules", "policy", "rules that fire, each place counted"),
    "restrictions": ("restrictions", "policy", "restrictions in force"),
    "silent_nodes": ("nodes", "telemetry", "nodes that say nothing"),
}
#: Names of the measures with their unit and what they are.
MEASURES: dict[str, tuple[str, str]] = {
    "over_budget_s": ("s", "time in which some power budget was exceeded"),
    "worst_over_w": ("W", "the most that a power budget was exceeded by"),
    "breaker_trips": ("", "breakers that tripped"),
    "work_gpu_h": ("GPU h", "useful work"),
    "work_lost_gpu_h": ("GPU h", "work that was done and lost"),
    "unexpected_throttle_gpu_h": ("GPU h", "throttling that nobody had asked for"),
    "hottest_gpu_c": ("°C", "temperature of the hottest GPU"),
    "resubmissions": ("", "times that jobs began again"),
    "retries": ("", "sends and requests to storage that were made again"),
    "pauses": ("", "pauses of jobs"),
    "false_pauses": ("", "of these, such as true watts did not call for"),
    "broken_checkpoints": ("jobs", "jobs whose checkpoints did not come back as they were saved"),
    "relapses": ("", "times that a rule fired again where it had begun to less than 5 min before"),
    "failed_jobs": ("jobs", "jobs that were given up"),
    "sync_delay_ms": ("ms", "mean time by which exchanges held up a step of a job, the worst job"),
    "wait_p50_s": ("s", "median wait of the jobs that began"),
    "wait_p95_s": ("s", "95th percentile of the same"),
    "energy_kwh": ("kWh", "energy of the fleet"),
    "throughput_loss_share": ("", "work less than without faults, as a share"),
    "convergence_gap_share": ("", "largest difference of a job's last loss, as a share"),
    "recovery_s": ("s", "time until as many GPUs run as before the faults, less a tenth"),
    "repeat_spread_share": ("", "difference of the work done by repeats with one seed, as a share"),
}
#: A run has recovered once so many of the GPUs that ran before the faults run again, for so long.
_RECOVERED_SHARE = 0.9
_RECOVERED_HOLD_S = 60.0
_BUDGETS = ("rack", "domain", "site")
_LOG_LINES = 200
#: A rule that fires again so soon has not waited for its own effect, or undoes it.
RELAPSE_S = 300.0


#: These come first in reports.
_TELLING = ("throughput_loss_share", "over_budget_s", "unexpected_throttle_gpu_h", "recovery_s")
#: Of most measures less is better.
_BETTER = {
    "work_gpu_h": Better.HIGHER,
    "energy_kwh": Better.NEITHER,
    "hottest_gpu_c": Better.NEITHER,
    "pauses": Better.NEITHER,
}


def _measure(name: str, value: float | None, said: str = "") -> Measure:
    known = value is not None and not math.isnan(value)
    return Measure(
        name=name,
        value=value if known else None,
        unit="share" if name.endswith("_share") else MEASURES[name][0],
        said=said,
        better=_BETTER.get(name, Better.LOWER),
    )


def in_order(measures: Iterable[Measure]) -> list[Measure]:
    """Return measures with the most telling ones first."""
    place = {name: number for number, name in enumerate(_TELLING)}
    return sorted(measures, key=lambda each: place.get(each.name, len(place)))


# --- Series --------------------------------------------------------------------------------------


def series_of(record: Record) -> Iterator[Series]:
    """Yield the series of a run."""
    told = record.series
    arrays: dict[str, Array] = {
        "budget_use": np.max([told.rack_use, told.domain_use, told.site_use], axis=0),
        "rack_use": told.rack_use,
        "domain_use": told.domain_use,
        "site_use": told.site_use,
        "zone_use": told.zone_use,
        "gpu_temp_c": told.gpu_c,
        "inlet_temp_c": told.inlet_c,
        "throttled_gpus": told.unexpected,
        "running_gpus": told.running_gpus,
        "paused_gpus": told.paused_gpus,
        "queued_jobs": told.queued,
        "firing_rules": told.firing,
        "restrictions": told.restrictions,
        "silent_nodes": told.silent_nodes,
    }
    for name, values in arrays.items():
        unit, plot, _ = SERIES[name]
        uses = unit == ""
        yield Series(
            name=name,
            unit=unit,
            t_s=record.times_s.tolist(),
            values=[None if math.isnan(value) else value for value in values.tolist()],
            plot=plot,
            budget=1.0 if uses else None,
            budget_said="all of the budget" if uses else "",
        )


# --- Measures ------------------------------------------------------------------------------------


def measures_of(record: Record, before: Record) -> Iterator[Measure]:
    """Yield the measures of a run after its warm-up; ``before`` is the run up to that."""
    over_s = {kind: record.over_budget_s[kind] - before.over_budget_s[kind] for kind in _BUDGETS}
    worst_w = {kind: record.worst_over_w[kind] for kind in _BUDGETS}
    said = ", ".join(f"{kind} {value:.0f} s" for kind, value in over_s.items() if value)
    yield _measure("over_budget_s", max(over_s.values()), said)
    worst = max(worst_w, key=lambda kind: worst_w[kind])
    yield _measure("worst_over_w", worst_w[worst], f"a {worst}" if worst_w[worst] else "")
    yield _measure("breaker_trips", record.trips - before.trips)
    yield _measure("work_gpu_h", work_gpu_s(record, before) / 3600.0)
    yield _measure("work_lost_gpu_h", (record.lost_gpu_s - before.lost_gpu_s) / 3600.0)
    yield _throttling(record, before)
    yield _measure("hottest_gpu_c", _most(record.series.gpu_c[record.times_s >= before.until_s]))
    yield from _of_jobs(record.jobs, before.jobs)
    yield _relapses(record.decisions[len(before.decisions) :])
    waits = [each.wait_s for each in record.jobs if each.wait_s is not None]
    for share in (50, 95):
        value = float(np.percentile(waits, share)) if waits else None
        yield _measure(f"wait_p{share}_s", value, f"{len(waits)} of {len(record.jobs)} jobs")
    yield _measure("energy_kwh", (record.energy_j - before.energy_j) / 3.6e6)


def _throttling(record: Record, before: Record) -> Measure:
    by_cause = {
        cause: (value - before.throttle_gpu_s[cause]) / 3600.0
        for cause, value in record.throttle_gpu_s.items()
    }
    said = ", ".join(f"{cause} {value:.2f}" for cause, value in by_cause.items() if value)
    value = record.unexpected_throttle_gpu_s - before.unexpected_throttle_gpu_s
    told = f"throttled in all, GPU h: {said}" if said else ""
    return _measure("unexpected_throttle_gpu_h", value / 3600.0, told)


def _of_jobs(jobs: Iterable[JobOutcome], before: Iterable[JobOutcome]) -> Iterator[Measure]:
    jobs, before = list(jobs), list(before)

    def more(field: str) -> float:
        now, then = (sum(float(getattr(job, field)) for job in each) for each in (jobs, before))
        return now - then

    yield _measure("resubmissions", more("restarts"))
    yield _measure("retries", more("retries"))
    yield _measure("pauses", more("pauses"))
    yield _measure("false_pauses", more("false_pauses"))
    broken = [job.key for job in jobs if job.checkpoint_ok is False]
    yield _measure("broken_checkpoints", len(broken), ", ".join(broken[:5]))
    failed = [job.key for job in jobs if job.state == "failed"]
    yield _measure("failed_jobs", len(failed), ", ".join(failed[:5]))
    worst = max(jobs, key=lambda job: job.sync_delay_s, default=None)
    yield _measure(
        "sync_delay_ms",
        None if worst is None else worst.sync_delay_s * 1000.0,
        "" if worst is None else worst.key,
    )


def _relapses(decisions: Iterable[Decision]) -> Measure:
    fired_s: dict[tuple[str, str], float] = {}
    count: Counter[str] = Counter()
    for each in decisions:
        if each.what != "fire":
            continue
        place = (each.whom, each.how)
        count[each.whom] += each.at_s - fired_s.get(place, -math.inf) < RELAPSE_S
        fired_s[place] = each.at_s
    said = ", ".join(f"{rule} {times}" for rule, times in count.most_common(3) if times)
    return _measure("relapses", count.total(), said)


def _most(values: Array) -> float | None:
    return float(np.nanmax(values)) if values.size and not np.isnan(values).all() else None


def work_gpu_s(record: Record, before: Record) -> float:
    """Return the useful work of a run after its warm-up."""
    return record.work_gpu_s - before.work_gpu_s


def losses_of(record: Record) -> dict[str, float]:
    """Return the last loss of each job that is done, by its key."""
    done = [job for job in record.jobs if job.state == "done"]
    return {job.key: job.final_loss for job in done if job.final_loss is not None}


def against(run: Played, baseline: Played, scenario: Scenario) -> list[Measure]:
    """Return the losses of a run against the same one without faults."""
    return [
        _measure(
            "throughput_loss_share",
            1.0 - run.work_gpu_s / baseline.work_gpu_s if baseline.work_gpu_s > 0 else None,
            f"{run.work_gpu_s / 3600:.1f} of {baseline.work_gpu_s / 3600:.1f} GPU h",
        ),
        _convergence(run.losses, baseline.losses),
        _recovery(run, scenario),
    ]


def _convergence(losses: Mapping[str, float], normal: Mapping[str, float]) -> Measure:
    both = sorted(losses.keys() & normal.keys())
    if not both:
        return _measure("convergence_gap_share", None, "no job was done in both runs")
    gaps = {key: abs(losses[key] - normal[key]) / abs(normal[key]) for key in both}
    worst = max(both, key=lambda key: gaps[key])
    said = f"{worst}: {losses[worst]:.4f} and {normal[worst]:.4f}, of {len(both)} jobs"
    return _measure("convergence_gap_share", gaps[worst], said)


def _recovery(run: Played, scenario: Scenario) -> Measure:
    if not scenario.faults:
        return _measure("recovery_s", None, "there is no fault")
    running = next(each for each in run.series if each.name == "running_gpus")
    normal = mean_between(running, *window_of(scenario, Period.BEFORE))
    if normal is None:
        return _measure("recovery_s", None, "nothing was read before the first fault")
    back = Condition(_RECOVERED_SHARE * normal - 1e-9, None)
    took_s = recovered_after_s(running, scenario, back, hold_s=_RECOVERED_HOLD_S)
    said = f"to {_RECOVERED_SHARE * normal:.0f} GPUs" if took_s is not None else "not in the run"
    return _measure("recovery_s", took_s, said)


def log_of(record: Record) -> str:
    """Return the last decisions of a run, a line each."""
    lines = [
        f"{each.at_s:8.0f} s  {each.what} {each.whom}  {each.how}" for each in record.decisions
    ]
    left = len(lines) - _LOG_LINES
    head = [f"({left} decisions before these)"] if left > 0 else []
    return "\n".join(head + [line.rstrip() for line in lines[-_LOG_LINES:]])
