"""FCFS with EASY backfill on a pool of GPUs: the plain scheduler that ours is held against.

Jobs start in the order in which they came, or in one that is given. The first that does not fit has
its GPUs kept from the moment at which enough of what runs is over by its walltime; others go ahead
of it if they end by then, or use GPUs that it leaves over (Lifka, "The ANL/IBM SP Scheduling
System", JSSPP 1995). It knows nothing of where GPUs stand, nor of power or heat.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["InOrder", "PoolJob", "easy_starts"]


@dataclass(frozen=True)
class PoolJob:
    """A job: when it comes, for how long it really runs and says that it may run (s)."""

    at_s: float
    gpus: int
    runs_s: float
    walltime_s: float


#: Returns the places of jobs that wait in order; given these, when each of those that run began, by
#: place, and the time, s.
InOrder = Callable[[Sequence[int], Mapping[int, float], float], list[int]]


def easy_starts(
    jobs: Sequence[PoolJob], gpus: int, *, tick_s: float, in_order: InOrder | None = None
) -> list[float]:
    """Return when each of ``jobs`` starts on so many ``gpus``, s. They are in order of their time.

    It looks at whole multiples of ``tick_s`` whenever something has come or ended. Without
    ``in_order`` those wait in the order in which they came.
    """
    pool = _Pool(jobs, gpus, in_order)
    come = 0
    while come < len(jobs) or pool.waiting:
        comes_s = jobs[come].at_s if come < len(jobs) else float("inf")
        now_s = tick_s * -(-round(min(comes_s, pool.next_end_s) / tick_s, 6) // 1)
        pool.end_by(now_s)
        while come < len(jobs) and jobs[come].at_s <= now_s:
            pool.waiting.append(come)
            come += 1
        pool.start(now_s)
    return [pool.starts_s[place] for place in range(len(jobs))]


class _Pool:
    def __init__(self, jobs: Sequence[PoolJob], gpus: int, in_order: InOrder | None) -> None:
        self._jobs, self._free, self._in_order = jobs, gpus, in_order
        #: places of jobs, the first that is to start first
        self.waiting: list[int] = []
        self.starts_s: dict[int, float] = {}
        #: when they really end
        self._ends: list[tuple[float, int]] = []
        #: by place: when their walltime is up
        self._ends_by: dict[int, float] = {}

    @property
    def next_end_s(self) -> float:
        return self._ends[0][0] if self._ends else float("inf")

    def end_by(self, now_s: float) -> None:
        while self._ends and self._ends[0][0] <= now_s:
            _, place = heapq.heappop(self._ends)
            del self._ends_by[place]
            self._free += self._jobs[place].gpus

    def start(self, now_s: float) -> None:
        if self._in_order is not None:
            began_s = {place: self.starts_s[place] for place in self._ends_by}
            self.waiting = self._in_order(self.waiting, began_s, now_s)
        while self.waiting and self._jobs[self.waiting[0]].gpus <= self._free:
            self._begin(self.waiting.pop(0), now_s)
        if not self.waiting:
            return
        kept_at_s, spare = self._kept(now_s)
        for place in self.waiting[1:]:
            job = self._jobs[place]
            is_short = now_s + job.walltime_s <= kept_at_s
            if job.gpus > self._free or not (is_short or job.gpus <= spare):
                continue
            spare -= 0 if is_short else job.gpus
            self._begin(place, now_s)
        self.waiting = [place for place in self.waiting if place not in self.starts_s]

    def _kept(self, now_s: float) -> tuple[float, int]:
        """Return from when on the first has its GPUs, s, and how many it leaves over then."""
        need, free, at_s = self._jobs[self.waiting[0]].gpus, self._free, now_s
        for end_s, place in sorted((end_s, place) for place, end_s in self._ends_by.items()):
            if free >= need and end_s > at_s:
                break
            free, at_s = free + self._jobs[place].gpus, end_s
        return at_s, free - need

    def _begin(self, place: int, now_s: float) -> None:
        job = self._jobs[place]
        self._free -= job.gpus
        self.starts_s[place] = now_s
        self._ends_by[place] = now_s + job.walltime_s
        heapq.heappush(self._ends, (now_s + job.runs_s, place))
