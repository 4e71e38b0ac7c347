"""Jobs behind the demand of a virtual cluster of Helios, as its minutes tell it.

The published table has a row for each minute with the GPUs that run and wait (SenseTime's cluster
Earth, May 2020; Hu et al., "Characterization and Prediction of Deep Learning Workloads in
Large-Scale GPU Datacenters", SC 2021). It does not say which job they are of. A rise of the demand
is taken for one job that comes, a fall for the ends of those that have been there the longest;
jobs of whole nodes of eight GPUs and smaller ones are told apart, as the table does.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from lab.traces.trace import Builder, Job, JobTrace, rows_of

__all__ = ["load"]

_BIG = ("running_gpu_num_noless_8", "pending_gpu_num_noless_8")
_SMALL = ("running_gpu_num_less_8", "pending_gpu_num_less_8")
#: The largest job that one rise is taken for; a greater one is of several.
_MOST_GPUS = {_BIG: 64, _SMALL: 7}
_LEAST_GPUS = {_BIG: 8, _SMALL: 1}


def load(path: Path) -> JobTrace:
    """Return the jobs of the table of one virtual cluster, gzipped or not.

    Those that still run at its end are left out and counted. Raises
    :class:`~lab.traces.TraceError`.
    """
    found = Builder(path)
    demands = {kind: _Demand(found, path.name.partition(".")[0], kind) for kind in (_BIG, _SMALL)}
    for line, row in rows_of(path, ("time", *_BIG, *_SMALL)):
        at = "time"
        try:
            now_s = datetime.fromisoformat(row["time"]).replace(tzinfo=UTC).timestamp()
            gpus = {}
            for kind in demands:
                gpus[kind] = 0
                for at in kind:
                    gpus[kind] += int(row[at])
        except ValueError:
            found.refuse(line, at, f"{row[at]!r} cannot be read")
            continue
        for kind, demand in demands.items():
            demand.step(line, now_s, gpus[kind])
    for demand in demands.values():
        for _ in demand.here:
            found.leave_out("jobs that run at its end")
    return found.trace()


class _Demand:
    """The demand of one kind of jobs from minute to minute."""

    def __init__(self, found: Builder, project: str, kind: tuple[str, str]) -> None:
        self._found, self._project = found, project
        self._most, self._least = _MOST_GPUS[kind], _LEAST_GPUS[kind]
        #: line, s and GPUs of the jobs that are there, the oldest first
        self.here: deque[tuple[int, float, int]] = deque()

    def step(self, line: int, now_s: float, gpus: int) -> None:
        while (more := gpus - sum(each[2] for each in self.here)) >= self._least:
            self.here.append((line, now_s, min(more, self._most)))
        # An end of so many at once that none is left over, the oldest first.
        while self.here and sum(each[2] for each in self.here) - self.here[0][2] >= gpus:
            began, since_s, size = self.here.popleft()
            job = Job(submit_s=since_s, runs_s=now_s - since_s, gpus=size, project=self._project)
            self._found.add(began, job)
