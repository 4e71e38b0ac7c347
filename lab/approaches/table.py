"""The figures of approaches as a table in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from lab.approaches.approaches import APPROACHES
from lab.approaches.figures import Figures
from lab.matrix.report.words import length

__all__ = ["as_markdown", "by_approach", "mean_of"]


class _Row(NamedTuple):
    """One row of the table: its title, its value for each run, and how that is formatted."""

    title: str
    value: Callable[[Figures], float]
    written: Callable[[float], str]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _one(value: float) -> str:
    return f"{value:,.1f}"


def _share(value: float) -> str:
    return f"{100.0 * value:.1f} %"


_ROWS = (
    _Row("work done, GPU h", lambda each: each.work_gpu_h, _count),
    _Row("jobs finished", lambda each: each.finished, _count),
    _Row("wait, median", lambda each: each.wait_p50_s, length),
    _Row("wait, 95th percentile", lambda each: each.wait_p95_s, length),
    _Row("unexpected throttle, GPU h", lambda each: each.unexpected_throttle_gpu_h, _one),
    _Row("… by power brakes, GPU h", lambda each: each.brake_gpu_h, _one),
    _Row("… by heat, GPU h", lambda each: each.thermal_gpu_h, _one),
    _Row("slowed by power caps, GPU h", lambda each: each.cap_throttle_gpu_h, _one),
    _Row("over some budget, s", lambda each: each.over_budget_s, _count),
    _Row("largest site power, of its budget", lambda each: each.site_peak_share, _share),
    _Row("largest rack power, of its budget", lambda each: each.rack_peak_share, _share),
    _Row("energy, kWh", lambda each: each.energy_kwh, _count),
    _Row("work per kWh, GPU h", lambda each: each.work_per_kwh, lambda value: f"{value:.3f}"),
    _Row("carbon, kg", lambda each: each.carbon_kg, _count),
    _Row("work lost, GPU h", lambda each: each.lost_gpu_h, _one),
    _Row("restarts", lambda each: each.restarts, _count),
    _Row("pauses", lambda each: each.pauses, _count),
    _Row("wait for gradients, s a step", lambda each: each.sync_delay_s, "{:.3f}".format),
)


def by_approach(runs: Sequence[Figures]) -> dict[str, list[Figures]]:
    """Return the runs of each approach, in the order of the approaches."""
    found = {each.name: [run for run in runs if run.approach == each.name] for each in APPROACHES}
    return {name: of_it for name, of_it in found.items() if of_it}


def mean_of(runs: Sequence[Figures], value: Callable[[Figures], float]) -> float:
    """Return the mean of a value over runs."""
    return fmean(value(run) for run in runs)


def as_markdown(runs: Sequence[Figures]) -> str:
    """Return a table with a row for each figure and a column for each approach.

    Of several seeds it shows the mean, and the least and greatest where they differ as written.
    """
    found = by_approach(runs)
    titles = {each.name: each.title for each in APPROACHES}
    lines = [
        "| | " + " | ".join(titles[name] for name in found) + " |",
        "|---|" + "---:|" * len(found),
    ]
    for row in _ROWS:
        cells = [_cell([row.value(run) for run in of_it], row.written) for of_it in found.values()]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float], written: Callable[[float], str]) -> str:
    low, high = written(min(values)), written(max(values))
    shown = written(fmean(values))
    return shown if low == high else f"{shown} ({low} to {high})"
