"""Scale-out and scale-in in worlds, beside scaling by the depth of the queue. In one process.

First a rack with one rigid and one elastic job, which may grow to four times its GPUs. Its budget
is such that both together draw 85 % of it, or half of it: there it is not to grow, here it is. A
third job holds what else is free until the two have begun, so that each way begins alike.

Then windows of published traces. The rule for them and for the seeds was committed before the
first run, and nothing was tuned on them: of each trace the two hours, beginning at a whole quarter
of a day, whose demand is the median; jobs thinned to a demand of 0.7 of 48 GPUs at two sites, whose
racks may draw 75 % of what is written on their parts; seeds 1, 2 and 3. Jobs of even lines are
elastic, from half to four times their GPUs (32 at most), and the share of their work in which their
GPUs wait in line is drawn from 0, 2, 10 and 40 %. Each attempt takes 150 s until it goes on.

All are told by the same functions which jobs start, under the same controller where it is on:

- ``ours``: the built-in policy.
- ``fixed``: the same without any scaling.
- ``queue``: under the same budgets and controller, jobs grow to all they may as soon as nobody
  waits, five minutes after their start, and shrink to what they asked for while somebody does.
- ``blind``: the same by free GPUs alone, as where nobody looks at power.

``PARTS=scenes`` leaves the traces out; ``PARTS=development`` has the windows to develop on in place
of those that are judged: the 35th and the 65th percentile of demand, and seed 11. ``TRACES`` is the
folder of the traces.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench import report
from bench.scaling_worlds import (
    RUN,
    SCENES,
    Outcome,
    Played,
    development_parts,
    scene_parts,
    trace_parts,
)
from lab.spread import run_all

__all__ = ["run"]

_TRACES = Path(os.environ.get("TRACES", "../shared/data"))
#: The runs on traces by what PARTS says.
_OF_TRACES: dict[str, Callable[[Path], list[Played]]] = {
    "": trace_parts, "scenes": lambda _: [], "development": development_parts,
}  # fmt: skip


def run() -> None:
    """Print what each way of scaling came to; exit with 1 where a bar is missed."""
    chosen = os.environ.get("PARTS", "")
    parts = [*scene_parts(), *_OF_TRACES[chosen](_TRACES)]
    found = [ended.value() for ended in run_all(RUN, parts)]
    for each in sorted(found, key=lambda one: one.order):
        print(each.told(), flush=True)
    figures = _scenes(found) | _traces(found)
    report.show("scaling", figures)
    if not chosen:
        report.keep("scaling", figures)
    if missed := list(_missed(figures)):
        raise SystemExit(f"missed: {', '.join(missed)}")


def _scenes(found: Iterable[Outcome]) -> dict[str, Any]:
    by = {(each.scene, each.way): each for each in found if each.scene in SCENES}
    figures: dict[str, Any] = {}
    for (scene, way), each in sorted(by.items()):
        name = f"{scene}_{way}"
        figures |= {
            f"{name}_moves": each.moves, f"{name}_over_s": each.over_s,
            f"{name}_throttled_gpu_s": each.throttled_gpu_s,
            f"{name}_unexpected_gpu_s": each.unexpected_gpu_s,
            f"{name}_work_gpu_h": each.work_gpu_h,
        }  # fmt: skip
    return figures


def _traces(found: Iterable[Outcome]) -> dict[str, Any]:
    """Return sums over windows and seeds by way, and in how many of them ours did more work."""
    of_traces = [each for each in found if each.scene not in SCENES]
    figures: dict[str, Any] = {}
    ways = sorted({each.way for each in of_traces})
    for way in ways:
        mine = [each for each in of_traces if each.way == way]
        figures |= {
            f"traces_{way}_work_gpu_h": sum(each.work_gpu_h for each in mine),
            f"traces_{way}_over_s": sum(each.over_s for each in mine),
            f"traces_{way}_throttled_gpu_s": sum(each.throttled_gpu_s for each in mine),
            f"traces_{way}_unexpected_gpu_s": sum(each.unexpected_gpu_s for each in mine),
            f"traces_{way}_kwh": sum(each.kwh for each in mine),
            f"traces_{way}_moves": sum(each.moves for each in mine),
        }
    by = {(each.scene, each.seed, each.way): each.work_gpu_h for each in of_traces}
    for other in (way for way in ways if way != "ours"):
        wins = [by[scene, seed, "ours"] > by[scene, seed, other] for scene, seed, way in by
                if way == other]  # fmt: skip
        figures[f"traces_more_than_{other}"] = sum(wins)
        figures["traces_runs"] = len(wins)
    return figures


def _missed(figures: dict[str, Any]) -> Iterable[str]:
    bars = {
        "tight_ours_moves": figures["tight_ours_moves"] == 0,
        "tight_ours_over_s": figures["tight_ours_over_s"] == 0.0,
        "tight_ours_throttled_gpu_s": figures["tight_ours_throttled_gpu_s"]
        <= figures["tight_fixed_throttled_gpu_s"],
        "tight_ours_unexpected_gpu_s": figures["tight_ours_unexpected_gpu_s"] == 0.0,
        "roomy_ours_unexpected_gpu_s": figures["roomy_ours_unexpected_gpu_s"] == 0.0,
        "roomy_ours_moves": figures["roomy_ours_moves"] >= 1,
        "roomy_ours_over_s": figures["roomy_ours_over_s"] == 0.0,
    }
    if "traces_runs" in figures:
        ours = figures["traces_ours_work_gpu_h"]
        bars |= {
            "traces_ours_over_s": figures["traces_ours_over_s"] == 0.0,
            "traces_ours_work_gpu_h": ours > figures["traces_queue_work_gpu_h"],
        }
    return (name for name, is_kept in bars.items() if not is_kept)
