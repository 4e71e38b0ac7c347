"""Windows of published traces on which waits and ranges of starts are judged.

The rule was written down and committed before the first run, and no parameter was chosen on them:

- A window is as long as it takes for some hundreds of jobs to come: a day of Philly, 14 days of a
  virtual cluster of Helios, three days of openb. It begins at a whole multiple of that. Jobs that
  run then come with it, at its beginning, with what is left of them. Windows in which fewer than a
  hundred jobs come are left out.
- Left out is what was looked at before: all that overlaps a window of :mod:`lab.approaches.windows`
  or what its rules were made on, the six days of Philly that ranges of starts were made on, and
  Helios' virtual cluster vc6YE. So is the last part of a trace, which is not whole.
- What is left is ranked by its demand: the GPUs that its jobs would hold on average if none waited.
  Of Philly and openb the 50th, 75th and 100th percentiles are taken, and the 100th of each of the
  six virtual clusters of Helios with most GPU hours.
- Of Acme there is no table of jobs: jobs like those of its clusters are drawn from what was
  published of them (:mod:`bench.acme_like`), with seeds 1 and 2; the second day of each is taken.
- How long jobs ran that ended before a window is known, as on any fleet that has run for a while:
  of the last 2,000.
- The fleet has as many GPUs as that demand, in whole nodes of eight, and no fewer than the largest
  job needs. GPUs are all that is short. So it is full on average, and queues come and go.
- Walltimes are those of :class:`lab.traces.arrivals.Manner`: of the usual steps the next that is at
  least twice what the job runs. "Blind" all jobs state the longest of them, which tells nothing.

Parameters are chosen on :func:`others`, which share no moment with them: of Philly and openb the
25th, 60th and 90th percentiles of what is left when the windows above are taken away, of Helios'
virtual clusters the 100th, and days like Acme's with seeds 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.acme_like import CLUSTERS, FILE, acme_like
from lab.approaches.comparison import LOADERS, Setup
from lab.approaches.windows import WINDOWS, setup_of
from lab.traces import JobTrace
from lab.traces.arrivals import Manner

__all__ = ["NODE_GPUS", "Window", "others", "past_walltimes_s", "walltimes_s", "windows"]

NODE_GPUS = 8
_DAY_S = 86_400.0
_DAYS = {"philly": 1.0, "helios": 14.0, "openb": 3.0}
_PERCENTILES = {"philly": (50, 75, 100), "helios": (100,), "openb": (50, 75, 100)}
_OTHERS = {"philly": (25, 60, 90), "helios": (100,), "openb": (25, 60, 90)}
_SEEDS, _OTHER_SEEDS = (1, 2), (3, 4)
_FILES = {"philly": "philly-jobs/jobs.csv.gz", "openb": "alibaba-openb-jobs/pods_default.csv.gz"}
_LEAST_JOBS = 100
_MOST_PAST = 2_000
_HELIOS, _HELIOS_SEEN, _HELIOS_CLUSTERS = "helios-earth-vc-queue", "vc6YE", 6
#: Days of Philly that ranges of starts were made on: from the first, and how many.
_ESTIMATES = (44.0, 6.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """A part of a trace: ``jobs`` come to so many ``gpus``."""

    name: str
    jobs: JobTrace
    #: of each job, whether it came in this window; the others ran already when it begins
    came: NDArray[np.bool_]
    gpus: int
    #: jobs that had ended when it began, in the order in which they did
    past: JobTrace


def windows(data: Path) -> Iterator[Window]:
    """Yield the windows; ``data`` is the folder of the traces. Raises ``TraceError``."""
    yield from _windows(data, others=False)


def others(data: Path) -> Iterator[Window]:
    """Yield the windows that parameters are chosen on. Raises ``TraceError``."""
    yield from _windows(data, others=True)


def _windows(data: Path, *, others: bool) -> Iterator[Window]:
    for form in ("philly", "openb"):
        path = data / _FILES[form]
        yield from _of_trace(form, form, LOADERS[form](path), _seen(form, data), others=others)
    traces = {
        path.name.partition(".")[0]: LOADERS["helios"](path)
        for path in sorted((data / _HELIOS).glob("vc*.csv.gz"))
        if not path.name.startswith(_HELIOS_SEEN)
    }
    for name in sorted(traces, key=lambda each: -traces[each].gpu_s.sum())[:_HELIOS_CLUSTERS]:
        yield from _of_trace("helios", f"helios-{name}", traces[name], [], others=others)
    for cluster in CLUSTERS:
        for seed in _OTHER_SEEDS if others else _SEEDS:
            trace = acme_like(data / FILE, cluster, seed=seed)
            yield _window(f"{cluster.lower()}-like-{seed}", trace, _DAY_S, 2.0 * _DAY_S)


def _seen(form: str, data: Path) -> list[tuple[float, float]]:
    """Return the parts of a trace that were looked at before, s: from when to when."""
    setups = [setup_of(each, data) for each in WINDOWS if each.form == form]
    if form == "philly":
        setups.append(Setup(trace=data / _FILES[form]))
    spans = [(each.from_h, each.from_h + each.hours * each.faster) for each in setups]
    found = [(3600.0 * from_h, 3600.0 * to_h) for from_h, to_h in spans]
    if form == "philly":
        first, days = _ESTIMATES
        found.append((_DAY_S * first, _DAY_S * (first + days)))
    return found


def _of_trace(
    form: str, name: str, trace: JobTrace, seen: list[tuple[float, float]], *, others: bool
) -> Iterator[Window]:
    lasts_s = _DAYS[form] * _DAY_S
    starts = [
        at
        for at in np.arange(0.0, float(trace.submit_s[-1]) - lasts_s, lasts_s).tolist()
        if not any(from_s < at + lasts_s and at < to_s for from_s, to_s in seen)
        and len(trace.between(at, at + lasts_s)) >= _LEAST_JOBS
    ]
    demand = [trace.demand_gpus(at, at + lasts_s) for at in starts]
    ranked = np.argsort(demand, kind="stable")
    percentiles, chosen = _PERCENTILES[form], _at(ranked, _PERCENTILES[form])
    if others:
        left = ranked[~np.isin(ranked, chosen)]
        percentiles, chosen = _OTHERS[form], _at(left, _OTHERS[form])
    for percentile, place in zip(percentiles, chosen, strict=False):
        yield _window(f"{name}-{percentile}", trace, starts[place], starts[place] + lasts_s)


def _at(ranked: NDArray[np.int64], percentiles: tuple[int, ...]) -> list[int]:
    """Return what stands at some percentiles of a ranking; nothing where it is empty."""
    if not len(ranked):
        return []
    return [int(ranked[round(each / 100.0 * (len(ranked) - 1))]) for each in percentiles]


def _window(name: str, trace: JobTrace, from_s: float, to_s: float) -> Window:
    jobs = trace.over(from_s, to_s)
    need = max(trace.demand_gpus(from_s, to_s), float(jobs.gpus.max()))
    ends_s = trace.submit_s + trace.runs_s
    past = np.argsort(ends_s, kind="stable")[: int((ends_s <= from_s).sum())]
    return Window(
        name=name,
        jobs=jobs,
        came=np.isin(jobs.line, trace.between(from_s, to_s).line),
        gpus=NODE_GPUS * int(np.ceil(need / NODE_GPUS)),
        past=trace.take(past[-_MOST_PAST:]),
    )


def walltimes_s(window: Window, *, blind: bool = False) -> list[float]:
    """Return what each job of a window says that it may run for, s."""
    stated = _stated_s(window.jobs)
    return [max(stated)] * len(stated) if blind else stated


def past_walltimes_s(window: Window, *, blind: bool = False) -> list[float]:
    """Return what each job said that had ended before a window, s."""
    return [max(_stated_s(window.jobs))] * len(window.past) if blind else _stated_s(window.past)


def _stated_s(jobs: JobTrace) -> list[float]:
    manner = Manner()
    wanted = (manner.walltime_times * jobs.runs_s).tolist()
    return [next((step for step in manner.walltimes_s if step >= each), each) for each in wanted]
