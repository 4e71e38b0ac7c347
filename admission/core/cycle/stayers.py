"""Jobs that run on, as columns: whose they are, and what is lost of each that is stopped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from admission.core.cycle.order import ranks_of
from admission.core.response.shedding import LEAST_LOST_GPU_S, lost_by
from admission.core.snapshot import Running

__all__ = ["Stayers"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Stayers:
    """What preemption goes by, of jobs that run: a row for each."""

    running: tuple[Running, ...]
    row_of: dict[str, int]
    is_preemptible: Bools
    priority: Floats
    #: Unix seconds
    started_at: Floats
    #: work since the last checkpoint, GPU seconds: at least what one that has just saved loses
    lost: Floats
    #: projects and classes, and the place of each job's among them
    projects: tuple[str, ...]
    project: Ints
    classes: tuple[str, ...]
    job_class: Ints
    #: goes up with the key, which tells equals apart
    by_key: Floats
    #: the rows in the order in which what is due to others is asked back: of those of equal
    #: priority the newest first, whose projects took last what was not theirs
    asked_back: Ints

    @classmethod
    def of(cls, running: Sequence[Running], now: float) -> Stayers:
        """Return the columns of jobs as they are at ``now`` (Unix s)."""
        requests = [each.request for each in running]
        keys = [each.key for each in requests]
        by_key = ranks_of(keys)
        priority = np.array([each.priority for each in requests], dtype=np.float64)
        started_at = np.array([each.started_at for each in running], dtype=np.float64)
        projects, project = _coded(each.project for each in requests)
        classes, job_class = _coded(each.job_class for each in requests)
        return cls(
            running=tuple(running),
            row_of={key: row for row, key in enumerate(keys)},
            is_preemptible=np.array([each.preemptible for each in requests], dtype=np.bool_),
            priority=priority,
            started_at=started_at,
            lost=np.maximum(lost_by(running, now), LEAST_LOST_GPU_S),
            projects=projects,
            project=project,
            classes=classes,
            job_class=job_class,
            by_key=by_key,
            asked_back=np.lexsort((by_key, -started_at, priority)),
        )


def _coded(names: Iterable[str]) -> tuple[tuple[str, ...], Ints]:
    """Return the names, each once, and the place of each given one among them."""
    number: dict[str, int] = {}
    codes = [number.setdefault(name, len(number)) for name in names]
    return tuple(number), np.array(codes, dtype=np.int64)
