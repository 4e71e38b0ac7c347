"""The heatmap as data: pure functions from a snapshot to columns for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dashboard import scale, units
from fleet.snapshot import FleetArrays
from policies.headroom.binding import Tightest
from telemetry.summary import DIMENSIONS, FULL_HEAT_MARGIN_C, FleetSummary

Array: TypeAlias = NDArray[Any]
#: JSON values of one row each; null where nothing is known.
Column: TypeAlias = list[Any]


@dataclass(frozen=True)
class Metric:
    """One way to color the racks."""

    name: str
    label: str
    #: How a value is written; static/js/fleet.js knows the same kinds.
    kind: str
    #: What the value is, after the number: "12 % left".
    says: str
    #: Ends of the legend: at level 0 and at level 10.
    low: str
    high: str
    unit: str


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "tightest",
            "Tightest",
            "percent",
            "left of the tightest budget",
            "0 %",
            "100 %",
            "left of its power, heat and links, of its feeds, alone too, its site and its cooling"
            " zone, whichever is least",
        ),
        Metric("power", "Power", "kw", "kW of the budget left", "0 %", "100 %", "of budget left"),
        Metric(
            "heat",
            "Heat",
            "celsius",
            "to slowdown of the hottest GPU",
            "0 °C",
            f"{FULL_HEAT_MARGIN_C:.0f} °C",
            "to the hottest GPU's slowdown temperature",
        ),
        Metric(
            "clocks", "Clocks", "percent", "of the highest SM clock", "0 %", "100 %", "of max clock"
        ),
        Metric(
            "throttle", "Throttle", "count", "GPUs throttling", "all", "none", "GPUs throttling"
        ),
        Metric("links", "Links", "percent", "of the busiest link free", "0 %", "100 %", "free"),
        Metric("age", "Age", "age", "since the oldest reading", "stale", "now", "age of data"),
    )
}
DEFAULT_METRIC = "tightest"
#: What racks share with others, as the limits of ``tightest.shared``: on pages these are more
#: dimensions, after those of a rack itself. static/js/fleet.js knows the same.
SHARED = ("its feed", "its feed if the other fails", "its site", "its cooling zone")


def racks_of(fleet: FleetArrays, site: int | None) -> slice:
    """Return the rows of the racks at a site (by row), or of all racks."""
    if site is None:
        return slice(0, len(fleet.racks))
    first, last = fleet.rack_bounds[site : site + 2].tolist()
    return slice(first, last)


def margins(summary: FleetSummary, shared: Tightest, metric: str, stale_after_s: float) -> Array:
    """Return how much of a metric each rack has left: 1 all, 0 nothing, below 0 over."""
    racks = summary.racks
    if metric == "power":
        return racks.power_margin
    if metric == "heat":
        return racks.heat_margin
    if metric == "clocks":
        return racks.clock_ratio
    if metric == "links":
        return 1.0 - racks.link_use
    if metric == "age":
        return np.clip(1.0 - racks.age_s / stale_after_s, 0.0, 1.0)
    if metric == "throttle":
        gpus = np.where(racks.gpus > 0, racks.gpus, np.nan)
        return 1.0 - racks.throttling / gpus
    return np.fmin(racks.tightest, shared.share)


def _dimensions(summary: FleetSummary, shared: Tightest) -> Array:
    """Return which budget leaves the least: a place in ``DIMENSIONS``, and ``SHARED`` after it."""
    racks = summary.racks
    is_own = ~(shared.share < np.nan_to_num(racks.tightest, nan=np.inf))
    return np.where(is_own, racks.tightest_dimension, len(DIMENSIONS) + shared.choice)


def values(summary: FleetSummary, shared: Tightest, metric: str) -> Array:
    """Return the number that a cell shows, in the unit of ``Metric.kind``."""
    racks = summary.racks
    if metric == "power":
        return (racks.budget_w - racks.load_w) / 1000
    if metric == "heat":
        return racks.heat_margin_c
    if metric == "clocks":
        return racks.clock_ratio * 100
    if metric == "links":
        return (1.0 - racks.link_use) * 100
    if metric == "age":
        return racks.age_s
    if metric == "throttle":
        return racks.throttling.astype(np.float64)
    return np.fmin(racks.tightest, shared.share) * 100


_DIGITS = {"percent": 0, "kw": 1, "celsius": 0, "count": 0, "age": 1}


def heatmap(
    fleet: FleetArrays,
    summary: FleetSummary,
    shared: Tightest,
    metric: str,
    *,
    stale_after_s: float,
    site: int | None = None,
) -> dict[str, Column]:
    """Return the racks of a site (by row; None: all) as columns: level, value, all dimensions.

    ``shared``: of each rack, the tightest of the budgets that it shares with others.
    """
    racks, chosen = summary.racks, racks_of(fleet, site)
    stale_nodes = count_by_run(summary.nodes.stale, fleet.node_bounds)
    nodes = np.diff(fleet.node_bounds)
    margin = margins(summary, shared, metric, stale_after_s)
    level = scale.levels(margin, stale=(stale_nodes >= nodes) & (nodes > 0), seen=racks.seen)
    columns: dict[str, tuple[Array, int]] = {
        "id": (fleet.racks.ids, 0),
        "level": (level, 0),
        "value": (values(summary, shared, metric), _DIGITS[METRICS[metric].kind]),
        "stale_nodes": (np.where(racks.seen, stale_nodes, nodes), 0),
        "tightest": (np.fmin(racks.tightest, shared.share) * 100, 0),
        "dimension": (_dimensions(summary, shared), 0),
        "load_kw": (racks.load_w / 1000, 1),
        "measured_kw": (racks.measured_w / 1000, 1),
        "enforced_kw": (racks.enforced_w / 1000, 1),
        "budget_kw": (racks.budget_w / 1000, 1),
        "hottest_c": (racks.hottest_c, 0),
        "heat_margin_c": (racks.heat_margin_c, 0),
        "clock": (racks.clock_ratio * 100, 0),
        "throttling": (racks.throttling, 0),
        "link_free": ((1.0 - racks.link_use) * 100, 0),
        "age_s": (racks.age_s, 1),
    }
    return {name: column(array[chosen], digits) for name, (array, digits) in columns.items()}


def column(array: Array, digits: int = 0) -> Column:
    """Return an array for JSON: rounded, whole numbers as such, null for NaN and infinity."""
    whole: Column
    if array.dtype.kind in "iub":
        whole = array.astype(np.int64).tolist()
        return whole
    rounded = np.round(array, digits) + 0.0  # no minus zero
    finite = np.isfinite(rounded)
    if digits == 0:
        whole = np.where(finite, rounded, 0).astype(np.int64).tolist()
    else:
        whole = rounded.tolist()
    if finite.all():
        return whole
    return [value if known else None for value, known in zip(whole, finite.tolist(), strict=True)]


def count_by_run(flags: Array, bounds: Array) -> Array:
    """Return how many of ``flags`` hold in each run of rows that ``bounds`` gives."""
    running = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    counts: Array = running[bounds[1:]] - running[bounds[:-1]]
    return counts


def figure(kind: str, value: float | None) -> str:
    """Return the number of a cell as it is written there."""
    if kind == "age":
        return units.age(value)
    if value is None:
        return units.DASH
    if kind == "percent":
        return f"{units.number(value)} %"
    if kind == "kw":
        return f"{units.number(value, 1)} kW"
    if kind == "celsius":
        return f"{units.number(value)} °C"
    return units.number(value)


def says(metric: Metric, level: int, stale_nodes: int) -> str:
    """Return the words that follow the number where it is read out."""
    if level == scale.UNKNOWN:
        return "never heard from"
    words = metric.says.removeprefix("kW ") if metric.kind == "kw" else metric.says
    if level == scale.OVER:
        words += ", over"
    if level == scale.STALE:
        words += ", stale"
    elif stale_nodes:
        words += f", {units.count(stale_nodes, 'node')} stale"
    return words
