"""From the record of a run to the numbers that approaches are compared by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lab.approaches.figures import Figures, Seen
from lab.world.record import JobOutcome, Record

__all__ = ["figures_of", "seen_of"]

_H = 3600.0
_KWH_J = 3.6e6
#: Carbon of a kWh by site, in order, g: the averages of 2023 of Norway and of Germany (Ember, by
#: Our World in Data). Sites beyond these begin anew.
CARBON_G_PER_KWH = (30.0, 381.0)
#: A speed is as agreed if it is less by no more than this share of full speed.
_ROUNDING = 0.005
#: A run keeps so many points of each series.
_POINTS = 288


def figures_of(record: Record, *, approach: str, gpus: int, hours: float) -> Figures:
    """Return the figures of a run."""
    jobs = record.jobs
    waits_s = _waits_s(jobs, record.until_s)
    by_cause = record.throttle_gpu_s
    return Figures(
        approach=approach,
        seed=record.seed,
        gpus=gpus,
        hours=hours,
        jobs=len(jobs),
        started=sum(each.started_s is not None for each in jobs),
        finished=sum(each.state == "done" for each in jobs),
        work_gpu_h=record.work_gpu_s / _H,
        wait_p50_s=float(np.percentile(waits_s, 50)),
        wait_p95_s=float(np.percentile(waits_s, 95)),
        cap_throttle_gpu_h=by_cause["sw_power_cap"] / _H,
        unexpected_throttle_gpu_h=float(record.unexpected_throttle_gpu_s) / _H,
        thermal_gpu_h=(by_cause["sw_thermal"] + by_cause["hw_thermal"]) / _H,
        brake_gpu_h=by_cause["hw_power_brake"] / _H,
        over_budget_s=record.over_budget_s["any"],
        over_by_kind_s={kind: s for kind, s in record.over_budget_s.items() if kind != "any"},
        energy_kwh=record.energy_j / _KWH_J,
        carbon_kg=_carbon_kg(record.site_energy_j),
        lost_gpu_h=record.lost_gpu_s / _H,
        restarts=sum(each.restarts for each in jobs),
        pauses=sum(each.pauses for each in jobs),
        site_peak_share=float(record.series.site_use.max(initial=0.0)),
        rack_peak_share=float(record.series.rack_use.max(initial=0.0)),
        sync_delay_s=_mean([each.sync_delay_s for each in jobs if each.gpus > 1]),
        firm_speed_least=min(
            (each.speed for each in jobs if each.speed is not None and not each.max_slowdown),
            default=1.0,
        ),
        slower_than_agreed=_mean(
            [
                float(each.speed < 1.0 - each.max_slowdown - _ROUNDING)
                for each in jobs
                if each.speed is not None and each.max_slowdown
            ]
        ),
        others_work_gpu_h=record.others_gpu_s / _H,
        digest=record.digest,
    )


def seen_of(record: Record) -> Seen:
    """Return the series of a run, thinned to the largest value of each stretch."""
    series = record.series
    return Seen(
        t_s=_thinned(record.times_s, np.min),
        shares={
            "fullest site": _thinned(series.site_use),
            "fullest rack": _thinned(series.rack_use),
        },
        unexpected_gpus=_thinned(series.unexpected),
        running_gpus=_thinned(series.running_gpus),
    )


def _waits_s(jobs: Sequence[JobOutcome], until_s: float) -> list[float]:
    """Return how long jobs waited; those that never began, until the end."""
    found = [until_s - each.submitted_s if each.wait_s is None else each.wait_s for each in jobs]
    return found or [0.0]


def _carbon_kg(site_energy_j: NDArray[np.float64]) -> float:
    grams = np.resize(CARBON_G_PER_KWH, len(site_energy_j))
    return float(site_energy_j @ grams) / _KWH_J / 1000.0


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _thinned(
    values: NDArray[np.float64], which: Callable[[NDArray[np.float64]], float] = np.max
) -> list[float]:
    """Return a value of each of at most :data:`_POINTS` stretches, rounded as far as plots show."""
    stretches = np.array_split(values, min(len(values), _POINTS)) if len(values) else []
    return [round(float(which(each)), 4) for each in stretches]
