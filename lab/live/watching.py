"""Series and measures of a run, from a server's public API, of some of its sites.

All is asked through the public API and is what the server believes: readings may lie, and what is
silent is assumed. What the server does not tell (breakers, true watts) is missing, and checks of it
are not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import numpy as np

from headroom.client import HeadroomError, Unavailable
from lab.matrix.result import Better, Measure, Series

__all__ = ["SERIES", "Watch"]

Row = dict[str, float | None]

#: Names of the series with their unit and plot. They are those of a run of the twin, as far as the
#: server tells of the same thing.
SERIES: dict[str, tuple[str, str]] = {
    "budget_use": ("share", "power"),
    "rack_use": ("share", "power"),
    "domain_use": ("share", "power"),
    "site_use": ("share", "power"),
    "zone_use": ("share", "heat"),
    "gpu_temp_c": ("°C", "temperature"),
    "inlet_temp_c": ("°C", "temperature"),
    "throttling_gpus": ("GPUs", "throttling"),
    "running_gpus": ("GPUs", "work"),
    "paused_gpus": ("GPUs", "work"),
    "queued_jobs": ("jobs", "queue"),
    "restrictions": ("restrictions", "policy"),
    "silent_nodes": ("nodes", "telemetry"),
}
#: Of each kind of scope: the series, and the field whose highest value it is.
_HIGHEST = {
    "rack": {"rack_use": "power_drawn_use"},
    "power_domain": {"domain_use": "power_drawn_use"},
    "zone": {"zone_use": "cooling_use", "inlet_temp_c": "inlet_c"},
    "site": {"site_use": "power_drawn_use", "gpu_temp_c": "hottest_c"},
}
_SUMS = {"site": {"throttling_gpus": "throttling", "silent_nodes": "stale_nodes"}}
_WAITS = {"waiting", "queued"}
_RUNS = {"starting", "running", "pausing", "stopping"}
_MOST_ROWS = "5000"
_MOST_PAGES = 50


class Reader(Protocol):
    """The server that is watched, such as :class:`headroom.client.Client`."""

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Any: ...


@dataclass
class Watch:
    """Looks at ``sites`` and at the jobs of ``project`` whose names begin with ``run``."""

    server: Reader
    sites: Sequence[str]
    project: str
    run: str
    times_s: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    #: why the last look saw nothing, or ""
    obstacle: str = ""

    def look(self, at_s: float) -> None:
        """Add a row of values now, at ``at_s`` of the run; a gap where the server is away."""
        row: Row = {}
        try:
            for kind in _HIGHEST:
                row |= self._scopes(kind)
            row |= self._jobs()
            row["restrictions"] = float(self._restrictions())
            self.obstacle = ""
        except Unavailable as exc:
            row = {}
            self.obstacle = str(exc)
        uses = [row.get(f"{kind}_use") for kind in ("rack", "domain", "site")]
        row["budget_use"] = max((use for use in uses if use is not None), default=None)
        self.times_s.append(at_s)
        self.rows.append(row)

    def series(self) -> list[Series]:
        """Return the rows as series."""
        return [
            Series(
                name=name,
                unit=unit,
                t_s=list(self.times_s),
                values=[row.get(name) for row in self.rows],
                plot=plot,
                budget=1.0 if unit == "share" else None,
                budget_said="all of the budget" if unit == "share" else "",
            )
            for name, (unit, plot) in SERIES.items()
        ]

    def measures(self, from_s: float, until_s: float) -> list[Measure]:
        """Return measures of the time from ``from_s`` on. Asks the server for each job."""
        jobs = [self.server.get(f"/api/v1/jobs/{each['name']}") for each in self._jobs_where()]
        phases = [phase for job in jobs for phase in job["phases"]]
        waits = [_wait_s(phase) for phase in phases if phase["started_at"]]
        return [
            self._over_budget(from_s, until_s),
            _measure("work_lost_gpu_h", _lost_gpu_s(phases) / 3600.0, "GPU h"),
            _measure("resubmissions", float(sum(phase["restarts"] for phase in phases))),
            _measure("failed_jobs", float(sum(job["state"] == "failed" for job in jobs)), "jobs"),
            _measure("hottest_gpu_c", self._most("gpu_temp_c", from_s), "°C"),
            *(
                _measure(
                    f"wait_p{share}_s",
                    float(np.percentile(waits, share)) if waits else None,
                    "s",
                    said=f"{len(waits)} of {len(jobs)} jobs began",
                )
                for share in (50, 95)
            ),
        ]

    def _scopes(self, kind: str) -> Row:
        found: list[Mapping[str, Any]] = []
        for site in self.sites:
            asked = {"kind": kind, "site": site, "limit": _MOST_ROWS}
            found += self.server.get("/api/v1/headroom", asked)["rows"]
        row: Row = {}
        for name, column in _HIGHEST[kind].items():
            values = [each[column] for each in found if isinstance(each[column], int | float)]
            row[name] = max(values, default=None)
        for name, column in _SUMS.get(kind, {}).items():
            row[name] = float(sum(each[column] or 0 for each in found))
        return row

    def _jobs(self) -> Row:
        phases = [phase for job in self.open_jobs() for phase in job["phases"]]

        def gpus(states: set[str]) -> float:
            return float(sum(phase["gpus"] for phase in phases if phase["state"] in states))

        return {
            "running_gpus": gpus(_RUNS),
            "paused_gpus": gpus({"paused"}),
            "queued_jobs": float(sum(phase["state"] in _WAITS for phase in phases)),
        }

    def open_jobs(self) -> list[Mapping[str, Any]]:
        """Return the jobs of the run that have not ended."""
        return self._jobs_where(open="1")

    def _jobs_where(self, **where: str) -> list[Mapping[str, Any]]:
        asked = {"project": self.project, "page_size": "1000", **where}
        jobs = self._pages("/api/v1/jobs", asked)
        return [job for job in jobs if job["name"].startswith(f"{self.run}-")]

    def _restrictions(self) -> int:
        """Return how many restrictions are in force on the sites and on things at them."""
        found = self._pages("/api/v1/restrictions", {"in_force": "1", "page_size": "1000"})
        names = [str(each["scope"].get("name", "")) for each in found]
        return sum(_is_at(name, self.sites) for name in names)

    def _pages(self, path: str, asked: Mapping[str, str]) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        cursor: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            answer = self.server.get(path, {**asked, **cursor})
            found += answer["results"]
            if not answer.get("next"):
                return found
            cursor = {"cursor": _cursor(answer["next"])}
        raise HeadroomError(f"{path} goes on after {_MOST_PAGES} pages: narrow what is asked")

    def _over_budget(self, from_s: float, until_s: float) -> Measure:
        """Return how long some budget was exceeded, each look counting until the next one."""
        ends = [*self.times_s[1:], until_s][: len(self.times_s)]
        over_s = sum(
            max(0.0, end_s - max(at_s, from_s))
            for at_s, end_s, row in zip(self.times_s, ends, self.rows, strict=True)
            if (row["budget_use"] or 0.0) > 1.0
        )
        return _measure("over_budget_s", over_s, "s", said="by what the server reads")

    def _most(self, name: str, from_s: float) -> float | None:
        seen = zip(self.times_s, self.rows, strict=True)
        values = [row.get(name) for at_s, row in seen if at_s >= from_s]
        return max((value for value in values if value is not None), default=None)


def _measure(name: str, value: float | None, unit: str = "", *, said: str = "") -> Measure:
    return Measure(name=name, value=value, unit=unit, said=said, better=Better.LOWER)


def _wait_s(phase: Mapping[str, Any]) -> float:
    begun, queued = (datetime.fromisoformat(phase[key]) for key in ("started_at", "queued_at"))
    return max(0.0, (begun - queued).total_seconds())


def _lost_gpu_s(phases: Iterable[Mapping[str, Any]]) -> float:
    attempts = (attempt for phase in phases for attempt in phase["attempts"])
    return float(sum(attempt["lost_gpu_s"] for attempt in attempts))


def _is_at(name: str, sites: Iterable[str]) -> bool:
    """Say whether a scope is one of the sites, or by its name at one of them."""
    return any(name == site or name.startswith((f"{site}/", f"{site}-")) for site in sites)


def _cursor(url: str) -> str:
    """Return the cursor of the next page's address."""
    return parse_qs(urlsplit(url).query)["cursor"][0]
