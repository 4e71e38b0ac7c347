"""What a server tells of a run, as series and measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from headroom.client import Unavailable
from headroom.errors import HeadroomError
from lab.live.watching import SERIES, Watch
from lab.matrix.result import Series

SITES = ["lost-oslo", "lost-bergen"]


@dataclass
class FakeReader:
    """Answers as the API does, with one rack, domain, zone and site at each site."""

    rack_use: dict[str, float | None] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    restrictions: list[str] = field(default_factory=list)
    away: bool = False
    page: int = 2
    asked: list[str] = field(default_factory=list)

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        if self.away:
            raise Unavailable("away")
        asked = dict(params or {})
        self.asked.append(path)
        if path == "/api/v1/headroom":
            return {"rows": [self._row(asked["kind"], asked["site"])]}
        if path == "/api/v1/jobs":
            found = [each for each in self.jobs if each["open"] or "open" not in asked]
            return self._paged(found, asked)
        if path == "/api/v1/restrictions":
            return self._paged([{"scope": {"name": name}} for name in self.restrictions], asked)
        return next(each for each in self.jobs if path.endswith(f"/{each['name']}"))

    def _row(self, kind: str, site: str) -> dict[str, float | None]:
        rows: dict[str, dict[str, float | None]] = {
            "rack": {"power_drawn_use": self.rack_use.get(site, 0.5)},
            "power_domain": {"power_drawn_use": 0.6},
            "zone": {"cooling_use": 0.7, "inlet_c": 24.0 if site == SITES[0] else 27.0},
            "site": {
                "power_drawn_use": 0.4,
                "hottest_c": None,
                "throttling": 3,
                "stale_nodes": 1 if site == SITES[0] else None,
            },
        }
        return rows[kind]

    def _paged(self, found: list[dict[str, Any]], asked: Mapping[str, str]) -> Any:
        at = int(asked.get("cursor", "0"))
        end = at + self.page
        more = f"http://server/api?cursor={end}&x=1" if end < len(found) else None
        return {"results": found[at:end], "next": more}


def make_job(name: str, state: str = "running", **phase: Any) -> dict[str, Any]:
    values = {
        "state": state,
        "gpus": 8,
        "restarts": 0,
        "queued_at": "2026-11-20T20:00:00Z",
        "started_at": "2026-11-20T20:01:40Z",
        "attempts": [{"lost_gpu_s": 0.0}],
    }
    is_open = state not in ("succeeded", "failed", "cancelled")
    return {"name": name, "state": state, "open": is_open, "phases": [values | phase]}


def make_watch(server: FakeReader) -> Watch:
    return Watch(server, SITES, "scenario-lost", "r1")


def by_name(series: list[Series]) -> dict[str, list[float | None]]:
    return {each.name: each.values for each in series}


def test_the_highest_use_of_any_site_counts_and_counts_are_summed() -> None:
    server = FakeReader(rack_use={"lost-oslo": 0.9, "lost-bergen": None})
    watch = make_watch(server)
    watch.look(0.0)
    seen = by_name(watch.series())
    assert set(seen) == set(SERIES)
    assert seen["rack_use"] == [0.9]
    assert seen["budget_use"] == [0.9]
    assert seen["zone_use"] == [0.7]
    assert seen["inlet_temp_c"] == [27.0]
    assert seen["gpu_temp_c"] == [None]
    assert seen["throttling_gpus"] == [6.0]
    assert seen["silent_nodes"] == [1.0]


def test_jobs_of_the_run_are_counted_over_all_pages_and_no_others() -> None:
    server = FakeReader(
        jobs=[
            make_job("r1-a"),
            make_job("r1-b", "queued"),
            make_job("r1-c", "paused"),
            make_job("r1-d", "pausing"),
            make_job("r2-e"),
            make_job("r1-f", "succeeded"),
        ]
    )
    watch = make_watch(server)
    watch.look(0.0)
    seen = by_name(watch.series())
    assert seen["running_gpus"] == [16.0]
    assert seen["paused_gpus"] == [8.0]
    assert seen["queued_jobs"] == [1.0]


def test_restrictions_on_the_sites_and_on_what_is_at_them_are_counted() -> None:
    names = ["lost-oslo", "lost-oslo/A01", "lost-bergen-a01-n1", "oslo", "lost-oslo2", "oslo/A01"]
    watch = make_watch(FakeReader(restrictions=names))
    watch.look(0.0)
    assert by_name(watch.series())["restrictions"] == [3.0]


def test_while_the_server_is_away_there_is_a_gap() -> None:
    server = FakeReader()
    watch = make_watch(server)
    watch.look(0.0)
    server.away = True
    watch.look(5.0)
    assert watch.obstacle == "away"
    server.away = False
    watch.look(10.0)
    assert watch.obstacle == ""
    assert by_name(watch.series())["budget_use"] == [0.6, None, 0.6]
    assert watch.series()[0].t_s == [0.0, 5.0, 10.0]


def test_time_over_a_budget_is_counted_after_the_warm_up() -> None:
    server = FakeReader()
    watch = make_watch(server)
    for at_s, use in [(0.0, 1.2), (10.0, 1.1), (20.0, 0.9), (30.0, 1.3)]:
        server.rack_use = {"lost-oslo": use}
        watch.look(at_s)
    measures = {each.name: each.value for each in watch.measures(5.0, 36.0)}
    # From 5 to 20 s, and from 30 s to the end.
    assert measures["over_budget_s"] == pytest.approx(21.0)


def test_measures_are_those_of_the_jobs() -> None:
    server = FakeReader(
        jobs=[
            make_job("r1-a", restarts=2, attempts=[{"lost_gpu_s": 1800.0}, {"lost_gpu_s": 1800.0}]),
            make_job("r1-b", "failed"),
            make_job("r1-c", "queued", started_at=None),
        ]
    )
    measures = {each.name: each for each in make_watch(server).measures(0.0, 10.0)}
    assert measures["work_lost_gpu_h"].value == 1.0
    assert measures["resubmissions"].value == 2.0
    assert measures["failed_jobs"].value == 1.0
    assert measures["wait_p50_s"].value == 100.0
    assert measures["wait_p50_s"].said == "2 of 3 jobs began"
    assert measures["hottest_gpu_c"].value is None


def test_pages_without_an_end_are_an_error() -> None:
    class Endless(FakeReader):
        def _paged(self, found: list[dict[str, Any]], asked: Mapping[str, str]) -> Any:
            return {"results": [], "next": "http://server/api?cursor=1"}

    with pytest.raises(HeadroomError, match="goes on after 50 pages"):
        make_watch(Endless()).open_jobs()
