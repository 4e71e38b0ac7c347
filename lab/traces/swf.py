"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2.

One line for each job with 18 numbers, -1 for what is not known; lines that begin with ``;`` are
comments (https://www.cs.huji.ac.il/labs/parallel/workload/swf.html). The format counts processors,
so one has to say how many of them stand for a GPU.
"""

from __future__ import annotations

import math
from pathlib import Path

from lab.traces.trace import Builder, Job, JobTrace, TraceError, lines_of

__all__ = ["load"]

_FIELDS = 18
#: Places of the numbers that are used, from 0.
_SUBMIT, _WAIT, _RUN, _ALLOCATED = 1, 2, 3, 4
_REQUESTED, _REQUESTED_S, _STATUS, _USER, _GROUP = 7, 8, 10, 11, 12
#: Canceled; with no time that it ran, before it began.
_CANCELED = 5.0


def load(path: Path, *, processors_per_gpu: float = 1.0) -> JobTrace:
    """Return the jobs of a log, gzipped or not; the group stands for the project, else the user.

    A job has as many GPUs as its processors (allocated ones, else requested ones) come to, rounded
    up. Jobs that were canceled before they began are left out and counted. Raises
    :class:`~lab.traces.TraceError`.
    """
    if not processors_per_gpu > 0.0:
        raise TraceError(f"processors_per_gpu must be above 0, not {processors_per_gpu}")
    found = Builder(path)
    for line, text in enumerate(lines_of(path), start=1):
        if not text.strip() or text.lstrip().startswith(";"):
            continue
        cells = text.split()
        if len(cells) != _FIELDS:
            found.refuse(line, "fields", f"{len(cells)} in place of {_FIELDS}")
            continue
        try:
            values = [float(cell) for cell in cells]
        except ValueError as error:
            found.refuse(line, "fields", str(error))
            continue
        _add(found, line, values, processors_per_gpu)
    return found.trace()


def _add(found: Builder, line: int, values: list[float], processors_per_gpu: float) -> None:
    if values[_STATUS] == _CANCELED and values[_RUN] <= 0:
        found.leave_out("jobs canceled before they began")
        return
    processors = values[_ALLOCATED] if values[_ALLOCATED] > 0 else values[_REQUESTED]
    found.add(
        line,
        Job(
            submit_s=values[_SUBMIT],
            runs_s=values[_RUN],
            gpus=math.ceil(processors / processors_per_gpu) if math.isfinite(processors) else 0,
            project=_named(values),
            walltime_s=_known(values[_REQUESTED_S]),
            wait_s=_known(values[_WAIT]),
        ),
    )


def _known(value: float) -> float:
    return value if value >= 0.0 else math.nan


def _named(values: list[float]) -> str:
    for kind, place in (("group", _GROUP), ("user", _USER)):
        if values[place] >= 0:
            return f"{kind}-{values[place]:g}"
    return ""
