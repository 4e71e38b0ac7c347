"""Waits where nothing but GPUs is short, beside FCFS with EASY backfill on the same jobs.

The cycle of admission decides on a fleet in memory whose budgets are no limit, on windows of
published traces (:mod:`bench.backfill_windows`). A job that came in the window counts, whenever it
starts. Bounded slowdown is (wait + run) / max(run, 10 s), at least 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.request import Request
from bench import report
from bench.backfill_windows import NODE_GPUS, Window, walltimes_s, windows
from bench.easy import PoolJob, easy_starts
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, Arrival, World, make_request
from tests.data_sets import data_folder

#: Both look at whole multiples of it, s.
TICK_S = 10.0
_LEAST_RUN_S = 10.0
#: No budget is near it.
_PLENTY_W = 1e9

NOTES = {
    "windows": "windows of Philly, openb and Helios, chosen by a rule",
    "no_worse": "of them those whose mean wait and slowdown are no worse; bar: all",
    "worst_wait_ratio": "of all windows: mean wait over that of FCFS+EASY",
    "worst_slowdown_ratio": "of all windows: mean bounded slowdown over that of FCFS+EASY",
    "blind_no_worse": "the same where walltimes tell nothing",
}


def run() -> None:
    rows = [
        {"walltimes": "blind" if blind else "stated", **compare(window, blind=blind)}
        for window in windows(data_folder())
        for blind in (False, True)
    ]
    _print(rows)
    figures = {**_summary(rows), "by_window": rows}
    report.show("backfill", _summary(rows), NOTES)
    print(f"kept in {report.keep('backfill', figures)}")


def compare(window: Window, *, blind: bool = False) -> dict[str, Any]:
    """Return mean waits (s) and bounded slowdowns of a window, ours and those of FCFS+EASY."""
    trace, allowed_s = window.jobs, walltimes_s(window, blind=blind)
    jobs = [
        PoolJob(at_s, gpus, max(runs_s, 1.0), walltime_s)
        for at_s, gpus, runs_s, walltime_s in zip(
            trace.submit_s.tolist(), trace.gpus.tolist(), trace.runs_s.tolist(), allowed_s,
            strict=True,
        )
    ]  # fmt: skip
    found = {
        "window": window.name,
        "gpus": window.gpus,
        "jobs": int(window.came.sum()),
    }
    starts = {
        "": our_starts(jobs, trace.project, window.gpus),
        "easy_": easy_starts(jobs, window.gpus, tick_s=TICK_S),
    }
    for name, starts_s in starts.items():
        wait_s, slowdown = _means(jobs, starts_s, window.came)
        found |= {f"{name}wait_s": wait_s, f"{name}slowdown": slowdown}
    return found


def our_starts(jobs: Sequence[PoolJob], projects: Sequence[str], gpus: int) -> list[float]:
    """Return when the cycle starts each of ``jobs`` on so many GPUs, s."""
    fleet = make_arrays(
        racks=gpus // NODE_GPUS, nodes=1, gpus=NODE_GPUS,
        budget_w=_PLENTY_W, zone_w=_PLENTY_W, pdu_w=_PLENTY_W,
    )  # fmt: skip
    world = World(fleet)
    arrivals = [
        Arrival(each.at_s, _request(f"j{place}/train", each, project), each.runs_s)
        for place, (each, project) in enumerate(zip(jobs, projects, strict=True))
    ]
    for _ in world.play(arrivals, cycle_s=TICK_S, until_all_began=True):
        pass
    starts_s = {each.request.key: each.started_at - NOW for each in world.started}
    return [starts_s[f"j{place}/train"] for place in range(len(jobs))]


def _request(key: str, job: PoolJob, project: str) -> Request:
    return make_request(key, project=project, gpus=job.gpus, walltime_s=job.walltime_s)


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    stated = [each for each in rows if each["walltimes"] == "stated"]
    blind = [each for each in rows if each["walltimes"] == "blind"]
    found: dict[str, Any] = {"windows": len(stated)}
    for name, some in (("", stated), ("blind_", blind)):
        found[f"{name}no_worse"] = sum(map(_is_no_worse, some))
        for what in ("wait", "slowdown"):
            found[f"{name}worst_{what}_ratio"] = max(_ratio(each, what) for each in some)
    return found


def _is_no_worse(row: dict[str, Any]) -> bool:
    return _ratio(row, "wait") <= 1.0 and _ratio(row, "slowdown") <= 1.0


def _ratio(row: dict[str, Any], what: str) -> float:
    ours, theirs = row[_KEYS[what]], row[f"easy_{_KEYS[what]}"]
    return float(ours / theirs) if theirs else 1.0 if not ours else float("inf")


_KEYS = {"wait": "wait_s", "slowdown": "slowdown"}


def _print(rows: Sequence[dict[str, Any]]) -> None:
    heads = ("window", "walltimes", "GPUs", "jobs", "wait", "EASY", "slowdown", "EASY")
    print("".join(f"{each:>{_WIDTHS[at]}}" for at, each in enumerate(heads)))
    for row in rows:
        cells = (
            row["window"], row["walltimes"], f"{row['gpus']:,}", f"{row['jobs']:,}",
            f"{row['wait_s']:,.0f} s", f"{row['easy_wait_s']:,.0f} s",
            f"{row['slowdown']:,.2f}", f"{row['easy_slowdown']:,.2f}",
        )  # fmt: skip
        print("".join(f"{each:>{_WIDTHS[at]}}" for at, each in enumerate(cells)))


_WIDTHS = (18, 11, 7, 7, 12, 12, 11, 11)


def _means(
    jobs: Sequence[PoolJob], starts_s: Sequence[float], came: NDArray[np.bool_]
) -> tuple[float, float]:
    wait_s = np.array(starts_s) - np.array([each.at_s for each in jobs])
    runs_s = np.array([each.runs_s for each in jobs])
    slowdown = np.maximum((wait_s + runs_s) / np.maximum(runs_s, _LEAST_RUN_S), 1.0)
    return float(wait_s[came].mean()), float(slowdown[came].mean())
