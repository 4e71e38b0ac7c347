"""Which events are asked of which fleet and jobs: the rule, written down before the first run.

**Jobs** are those of the Philly trace that come within a window of it. Of all windows that begin on
a whole or half day of the trace, and have no part in the hours that the comparison of approaches
was made on, the one is taken in which work is never short: whose jobs, if nothing waited, would
hold the most GPUs in the hour after the first in which they hold the fewest. Jobs that want more
than a quarter of the fleet are left out, so that no single one is all of its load. (The first rule
was "the most GPU hours". Its window had an empty first hour: with no load there is nothing to take,
and what an empty site draws became the baseline. It was replaced before any policy was judged by
it.) What the trace does not say of jobs is drawn as for that comparison
(:class:`lab.traces.arrivals.Manner`): a quarter of the jobs agree to no slowdown, and they are what
is called the highest class here.

**The fleet** has one site, racks and feeds that carry all of their parts, and cooling for them:
nothing is short but what the grid takes.

**The long one** has hours of its own, in which the fleet is busy: what is taken from a site that
draws little more than it does at rest is nearly all that its jobs draw, and says nothing of a fleet
at work. Windows begin at each quarter of a day, jobs that run then come with it, and windows are
ranked by their demand, the GPUs that jobs would hold on average if none waited. The one at the 90th
percentile is taken, and a share of its lines is kept, spread evenly, so that the demand is nine
tenths of the fleet. (It was played in the window of the others before, in which three tenths of the
fleet were busy. This rule was written down before the first run by it.)

**Events**: after the first hour, 200 of them begin in ten hours, one in each three minutes, on 96
GPUs. Each is announced at the beginning of its three minutes, 30 to 60 s before it has to be met,
asks for 10 to 40 % less than the baseline, and lasts for 60 to 110 s; all three evenly drawn. The
**long one** takes a quarter of the baseline for three hours, announced five minutes before, on 256
GPUs, after the first hour as well; it is compared with the same run without it.

Seeds are 1, 2 and 3. The load counts at each step of the twin, by true watts at the utility, as
its meter reads them (it was the sum of racks before, while the policy held the utility with all
that is lost on the way): an event is met in
time if the first step after its start is within the target, and held for the steps that are. A job
of the highest class is touched that is paused, shrunk or ended while something is asked, or does
less than 0.98 of its full speed over all of that time. (The speed was put in the place of "any GPU
that says that its cap holds it" after the first look at a controller whose caps lie just above what
a job draws: noise meets them, and nobody is slowed.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lab.approaches.comparison import Setup
from lab.traces import JobTrace, TraceError, philly
from policies.restrictions.kinds import HELD_BEFORE

__all__ = [
    "EVENTS",
    "HOURS",
    "LONG",
    "WARM_S",
    "Event",
    "busy_jobs_of",
    "jobs_of",
    "long_event",
    "random_events",
    "spans_held",
]

#: The fleet fills up for so long before anything is asked, s.
WARM_S = 3600.0
HOURS, EVENTS = 10.0, 200
GPUS, GPUS_LONG = 96, 256
NOTICE_S, LASTS_S, SHARE = (30.0, 60.0), (60.0, 110.0), (0.10, 0.40)
LONG = (300.0, 3.0 * 3600.0, 0.25)
_H = 3600.0
#: Loads have come back so long after an event, s.
_SETTLES_S = 30.0
#: Windows of the trace begin so often, h.
_EVERY_H = 12.0
#: Those of the long event begin so often, h; the rank of the one that is taken; and the share of
#: the fleet's GPUs that its jobs would hold.
_BUSY_EVERY_H, _BUSY_RANK, _BUSY = 6.0, 0.9, 0.9


@dataclass(frozen=True)
class Event:
    """One event: announced at a second of the twin, to be met from ``start_s`` to ``end_s``."""

    announced_s: float
    start_s: float
    end_s: float
    #: less than the baseline, as a share of it
    by_share: float


def random_events(seed: int, *, hours: float = HOURS, events: int = EVENTS) -> list[Event]:
    """Return random events, in order: one in each equal part of so many hours."""
    rng = np.random.default_rng([seed, events])
    slot_s = hours * _H / events
    found = []
    for number in range(events):
        announced_s = WARM_S + number * slot_s
        start_s = announced_s + float(rng.uniform(*NOTICE_S))
        end_s = start_s + float(rng.uniform(*LASTS_S))
        found.append(Event(announced_s, start_s, end_s, float(rng.uniform(*SHARE))))
    return found


def long_event() -> Event:
    """Return the event of a quarter for three hours."""
    notice_s, lasts_s, share = LONG
    start_s = WARM_S + notice_s
    return Event(WARM_S, start_s, start_s + lasts_s, share)


def jobs_of(trace: Path, *, hours: float, gpus: int) -> tuple[float, JobTrace]:
    """Return where the window of the rule begins, h, and its jobs.

    Raises :class:`~lab.traces.TraceError`.
    """
    jobs = _small_jobs(trace, gpus)
    free = _starts_h(jobs, hours, _EVERY_H)
    wanted = [_fewest_gpus(jobs, at, hours) for at in free]
    if not any(wanted):
        raise TraceError(f"{trace}: no window of {hours:g} h has jobs for {gpus} GPUs")
    chosen = free[int(np.argmax(wanted))]
    return chosen, jobs.between(chosen * _H, (chosen + hours) * _H)


def busy_jobs_of(trace: Path, *, hours: float, gpus: int) -> tuple[float, JobTrace]:
    """Return where the window of the long event begins, h, and its jobs, which keep a fleet busy.

    Raises :class:`~lab.traces.TraceError`.
    """
    jobs = _small_jobs(trace, gpus)
    starts_h = _starts_h(jobs, hours, _BUSY_EVERY_H)
    demand = np.array([jobs.demand_gpus(at * _H, (at + hours) * _H) for at in starts_h])
    if not demand.any():
        raise TraceError(f"{trace}: no window of {hours:g} h has jobs for {gpus} GPUs")
    place = int(np.argsort(demand, kind="stable")[round(_BUSY_RANK * (len(demand) - 1))])
    chosen = starts_h[place]
    kept = min(_BUSY * gpus / demand[place], 1.0)
    return chosen, jobs.over(chosen * _H, (chosen + hours) * _H).thinned(kept)


def _small_jobs(trace: Path, gpus: int) -> JobTrace:
    """Return the jobs that want no more than a quarter of the fleet."""
    jobs = philly.load(trace)
    return jobs.take(np.flatnonzero(jobs.gpus <= gpus // 4))


def _starts_h(jobs: JobTrace, hours: float, every_h: float) -> list[float]:
    """Return where windows begin, h: without those with hours that something was made on."""
    starts_h = np.arange(0.0, float(jobs.submit_s.max(initial=0.0)) / _H - hours, every_h)
    taken = (Setup.from_h, Setup.from_h + Setup.hours)
    return [at for at in starts_h.tolist() if at + hours <= taken[0] or at >= taken[1]]


def _fewest_gpus(jobs: JobTrace, from_h: float, hours: float) -> float:
    """Return how many GPUs the jobs of a window hold in the hour in which they hold the fewest.

    On average over that hour, if nothing waited, and without the first hour.
    """
    part = jobs.between(from_h * _H, (from_h + hours) * _H)
    ends_s = part.submit_s + part.runs_s
    held = [
        float(
            np.clip(np.minimum(ends_s, at + _H) - np.maximum(part.submit_s, at), 0.0, _H)
            @ part.gpus
        )
        for at in np.arange(_H, hours * _H - 1.0, _H).tolist()
    ]
    return min(held, default=0.0) / _H


def spans_held(events: Sequence[Event]) -> list[tuple[float, float]]:
    """Return the spans that count for no baseline: while events are held, and just after them."""
    before_s = HELD_BEFORE.total_seconds()
    return [(each.start_s - before_s, each.end_s + _SETTLES_S) for each in events]
