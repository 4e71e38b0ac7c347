"""Failures of the fleet in words for their page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from accounts.visibility import ANOTHER
from admission.core.failures import Cause
from admission.core.outlook import Forecast, GpuRate, forecast
from admission.failures.grouping import By
from dashboard import units
from fleet.snapshot import FleetArrays
from physics import reliability

__all__ = [
    "BY",
    "HOURS_PER_YEAR",
    "RANGES",
    "Line",
    "Spare",
    "answer",
    "at_least",
    "every",
    "lines",
    "observed_share",
    "per_year",
    "planned",
    "silent_share",
    "spares",
    "words",
]

BY = ((By.COMPONENT, "component"), (By.MODEL, "GPU model"), (By.RACK, "rack"), (By.SITE, "site"))
RANGES = (("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d"), ("90d", "90 d"), ("365d", "365 d"))
HOURS_PER_YEAR = 8760.0
#: Bounds beyond these tell nothing: a time between failures, h, and failures of 1,000 in a year.
_LEAST_H, _MOST_A_YEAR = 1.0 / 60.0, 1e6
#: So many spares are compared.
_MOST_SPARES = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One failure as the page shows it. ``href`` is of its node, ``job_href`` of its first job."""

    at: float
    cause: str
    component: str
    where: str
    href: str
    job: str
    job_href: str
    said: str
    more: int
    is_observed: bool


@dataclass(frozen=True, slots=True)
class Spare:
    """What a number of spare nodes comes to. Shares are of time, 0 to 1."""

    spares: int
    short_share: float
    gained_share: float


def words(token: str) -> str:
    """Return a component or a kind in words: ``gpu_memory`` is ``GPU memory``."""
    return token.replace("_", " ").replace("gpu", "GPU").replace("nvlink", "NVLink")


def every(hours: float | None) -> str:
    """Return a time between failures: ``40 min``, ``12 h``, ``8 d``, ``5.7 years``; or a dash."""
    if hours is None:
        return units.DASH
    if hours < _LEAST_H:
        return "under 1 min"
    if hours < 2.0:
        return f"{units.number(hours * 60.0)} min"
    if hours < 48.0:
        return f"{units.number(hours)} h"
    if hours < HOURS_PER_YEAR:
        return f"{units.number(hours / 24.0)} d"
    return f"{units.number(hours / HOURS_PER_YEAR, 1)} years"


def at_least(hours: float | None) -> str:
    """Return the least time between failures: ``over 40 min``; a dash where it tells nothing."""
    return units.DASH if hours is None or hours < _LEAST_H else f"over {every(hours)}"


def per_year(rate_per_h: float | None) -> str:
    """Return a rate per device-hour as failures of 1,000 devices in a year; or a dash.

    After minutes of observation the upper bound is more than anybody reads: over a million.
    """
    if rate_per_h is None:
        return units.DASH
    rate = 1000.0 * HOURS_PER_YEAR * rate_per_h
    if rate > _MOST_A_YEAR:
        return "over a million"
    return units.number(rate, 1 if rate < 100.0 else 0)


def observed_share(found: Mapping[str, Any]) -> float:
    """Return for which share of the span the GPUs of now were observed, 0 to 1."""
    fleet = found["fleet"]
    hours = fleet["devices"] * (found["end"] - found["start"]) / 3600.0
    return min(fleet["device_h"] / hours, 1.0) if hours else 0.0


def silent_share(found: Mapping[str, Any]) -> float:
    """Return for which share of their observed and silent time GPUs' agents were silent, 0 to 1."""
    fleet = found["fleet"]
    hours = fleet["device_h"] + fleet["silent_h"]
    return float(fleet["silent_h"] / hours) if hours else 0.0


def answer(found: Mapping[str, Any]) -> str:
    """Say in a sentence how often the fleet fails, as far as is known."""
    fleet = found["fleet"]
    total = sum(fleet["causes"].values())
    gpus = units.count(fleet["devices"], "GPU")
    if not total:
        if fleet["mtbf_lower_h"] is None:
            return "Nothing was observed: no agent was heard in this time"
        observed = every(fleet["device_h"] / fleet["devices"])
        return f"No failure on {gpus} in the {observed} for which they were observed"
    parts = [f"{fleet['causes'][each.value]} {each.value}" for each in Cause]
    named = ", ".join(each for each in parts if not each.startswith("0 "))
    said = f"{units.count(total, 'failure')} on {gpus}: {named}"
    if fleet["every_h"] is None:
        return said
    return f"{said}; without those of software one in {every(fleet['every_h'])}"


def lines(failures: Sequence[Mapping[str, Any]], fleet: FleetArrays) -> list[Line]:
    """Return failures as they were told, as lines."""
    return [_line(each, fleet) for each in failures]


def _line(failure: Mapping[str, Any], fleet: FleetArrays) -> Line:
    node = failure["nodes"][0] if failure["nodes_count"] == 1 else ""
    job = failure["jobs"][0] if failure["jobs"] else ""
    is_named = bool(job) and job != ANOTHER
    return Line(
        at=failure["at"],
        cause=failure["cause"],
        component=words(failure["component"]),
        where=_where(failure),
        href=reverse("node", args=[fleet.nodes.ids[fleet.nodes.index_by_name[node]]])
        if node
        else "",
        job=job.partition("/")[0],
        job_href=reverse("job-page", args=[job.partition("/")[0]]) if is_named else "",
        said=failure["evidence"][0]["text"],
        more=failure["evidence_count"] - 1,
        is_observed=failure["observed"],
    )


def _where(failure: Mapping[str, Any]) -> str:
    count = failure["nodes_count"]
    if count != 1:
        return f"one of {units.count(count, 'node')}" if count else "not known"
    gpu = failure["gpu"]
    return f"{failure['nodes'][0]}{'' if gpu is None else f' GPU {gpu}'}"


def spares(fleet: Mapping[str, Any], nodes: int, repair_h: float) -> list[Spare]:
    """Return what spare nodes are worth to what needs all nodes; empty: no failure was seen.

    Failures of the fleet are those that count for its rate. ``repair_h`` is how long a node is
    away, h.
    """
    if not fleet["every_h"] or not nodes:
        return []
    counts = list(range(_MOST_SPARES + 1))
    worth = [
        reliability.spare_worth(
            system_mtbf_s=3600.0 * fleet["every_h"], repair_s=3600.0 * repair_h, spares=count
        )
        for count in counts
    ]
    return [
        Spare(count, float(each.short_share), float(each.gained_share))
        for count, each in zip(counts, worth, strict=True)
    ]


def planned(rate: GpuRate | None, gpus: int, hours: float) -> Forecast | None:
    """Return the failures that a job of so many GPUs meets in so many hours; None: not known."""
    return None if rate is None else forecast(rate, gpus, 3600.0 * hours)
