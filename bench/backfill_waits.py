"""Waits of the jobs of a window under the cycle of admission, and under FCFS with EASY backfill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.cycle.ends import Like, Ran
from admission.core.cycle.order import order
from admission.core.request import Locality, Placement, Request
from admission.core.snapshot import Pending, Running, Tuning
from bench.backfill_windows import NODE_GPUS, Window, past_walltimes_s, walltimes_s
from bench.easy import InOrder, PoolJob, easy_starts
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, Arrival, World, make_request

__all__ = ["TICK_S", "arrivals_of", "compare", "past_of", "world_of"]

#: Both look at whole multiples of it, s.
TICK_S = 60.0
_LEAST_RUN_S = 10.0
#: No budget is near it.
_PLENTY_W = 1e9


def compare(window: Window, *, blind: bool = False, shares: bool = False) -> dict[str, Any]:
    """Return mean waits (s) and bounded slowdowns of a window, ours and those of FCFS+EASY.

    ``blind``: walltimes tell nothing. ``shares``: jobs are of the projects of the trace, which take
    turns; else all are of one, and wait in the order in which they came. With shares there is
    EASY in the order that they give, too.
    """
    trace, jobs = window.jobs, _jobs_of(window, blind=blind)
    found = {
        "window": window.name,
        "gpus": window.gpus,
        "jobs": int(window.came.sum()),
    }
    starts = {
        "": _our_starts(window, trace.project if shares else None, blind=blind),
        "easy_": easy_starts(jobs, window.gpus, tick_s=TICK_S),
    }
    if shares:
        in_turns = _turns(arrivals_of(window, trace.project, blind=blind))
        starts["turns_"] = easy_starts(jobs, window.gpus, tick_s=TICK_S, in_order=in_turns)
    for name, starts_s in starts.items():
        wait_s, slowdown = _means(jobs, starts_s, window.came)
        found |= {f"{name}wait_s": wait_s, f"{name}slowdown": slowdown}
    return found


def _jobs_of(window: Window, *, blind: bool) -> list[PoolJob]:
    trace, allowed_s = window.jobs, walltimes_s(window, blind=blind)
    return [
        PoolJob(at_s, gpus, max(runs_s, 1.0), walltime_s)
        for at_s, gpus, runs_s, walltime_s in zip(
            trace.submit_s.tolist(), trace.gpus.tolist(), trace.runs_s.tolist(), allowed_s,
            strict=True,
        )
    ]  # fmt: skip


def _our_starts(window: Window, projects: Sequence[str] | None, *, blind: bool) -> list[float]:
    """Return when the cycle starts each of the jobs of a window, s."""
    world = world_of(window)
    arrivals = arrivals_of(window, projects, blind=blind)
    for _ in world.play(arrivals, cycle_s=TICK_S, until_all_began=True):
        pass
    starts_s = {each.request.key: each.started_at - NOW for each in world.started}
    return [starts_s[each.request.key] for each in arrivals]


def _turns(arrivals: Sequence[Arrival]) -> InOrder:
    """Return the order that the cycle has by shares, for a pool of the same jobs."""
    waits = [Pending(each.request) for each in arrivals]
    places = {each.request.key: place for place, each in enumerate(arrivals)}
    tuning = Tuning()

    def in_order(waiting: Sequence[int], began_s: Mapping[int, float], now_s: float) -> list[int]:
        running = [
            Running(request, _somewhere(request.gpus), NOW + at_s, NOW + at_s + request.walltime_s)
            for request, at_s in ((waits[place].request, at) for place, at in began_s.items())
        ]
        found = order([waits[at] for at in waiting], running, {}, now=NOW + now_s, tuning=tuning)
        return [places[each.request.key] for each in found.pending]

    return in_order


@lru_cache(maxsize=1024)
def _somewhere(gpus: int) -> Placement:
    """Return a placement on so many GPUs: shares go by their number alone."""
    return Placement(
        gpus=tuple(range(gpus)), nodes=(0,), peak_w=(0.0,), power_cap_w=None, slowdown=0.0,
        locality=Locality.FLEET, sites=(), racks=(), switch_domains=(), storage="",
    )  # fmt: skip


def world_of(window: Window) -> World:
    """Return the idle fleet of a window: nothing but GPUs is short in it."""
    fleet = make_arrays(
        racks=window.gpus // NODE_GPUS, nodes=1, gpus=NODE_GPUS,
        budget_w=_PLENTY_W, zone_w=_PLENTY_W, pdu_w=_PLENTY_W,
    )  # fmt: skip
    return World(fleet)


def arrivals_of(
    window: Window, projects: Sequence[str] | None = None, *, blind: bool = False
) -> list[Arrival]:
    """Return the jobs of a window as they come; ``projects``: whose they are, or all are of one."""
    jobs = _jobs_of(window, blind=blind)
    return [
        Arrival(each.at_s, _request(f"j{place:06}/train", each, project), each.runs_s)
        for place, (each, project) in enumerate(
            zip(jobs, projects or [""] * len(jobs), strict=True)
        )
    ]


def past_of(window: Window, *, blind: bool = False) -> list[Ran]:
    """Return for what shares of their walltimes jobs ran that had ended before a window."""
    past, allowed_s = window.past, past_walltimes_s(window, blind=blind)
    return [
        Ran(Like("", "", gpus, walltime_s), min(runs_s / walltime_s, 1.0))
        for gpus, runs_s, walltime_s in zip(
            past.gpus.tolist(), past.runs_s.tolist(), allowed_s, strict=True
        )
    ]


def _request(key: str, job: PoolJob, project: str) -> Request:
    return make_request(key, project=project, gpus=job.gpus, walltime_s=job.walltime_s)


def _means(
    jobs: Sequence[PoolJob], starts_s: Sequence[float], came: NDArray[np.bool_]
) -> tuple[float, float]:
    wait_s = np.array(starts_s) - np.array([each.at_s for each in jobs])
    runs_s = np.array([each.runs_s for each in jobs])
    slowdown = np.maximum((wait_s + runs_s) / np.maximum(runs_s, _LEAST_RUN_S), 1.0)
    return float(wait_s[came].mean()), float(slowdown[came].mean())
