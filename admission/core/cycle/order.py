"""In which order jobs are tried: priority, time waited, fair share of their project, deadline.

Each comes to points, and the most points go first. Waiting is worth more points without end, the
others are bounded, so whatever waits comes to the front in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from admission.core.request import Request
from admission.core.snapshot import Pending, ProjectShare, Running, Tuning

__all__ = ["Order", "order"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NOBODY = ProjectShare("")


@dataclass(frozen=True, eq=False)
class Order:
    """Pending jobs in the order in which they are tried, the first first, with their points."""

    pending: tuple[Pending, ...]
    priority: Floats
    waited: Floats
    share: Floats
    deadline: Floats

    def __len__(self) -> int:
        return len(self.pending)

    @property
    def points(self) -> Floats:
        return self.priority + self.waited + self.share + self.deadline

    def sentence(self, place: int) -> str:
        """Return the points of the job at ``place`` (from 0) in words."""
        parts = [f"{self.priority[place]:g} of priority", f"{self.waited[place]:.1f} for waiting"]
        parts.append(f"{self.share[place]:.1f} for its project's share")
        if self.deadline[place]:
            parts.append(f"{self.deadline[place]:.1f} for its deadline")
        total = float(self.points[place])
        return f"{place + 1} of {len(self)} by points: {total:.1f} = {' + '.join(parts)}"


def order(
    pending: Sequence[Pending],
    running: Sequence[Running],
    projects: Mapping[str, ProjectShare],
    *,
    gpus: int,
    now: float,
    tuning: Tuning,
) -> Order:
    """Return ``pending`` in the order in which they are tried, on a fleet of so many ``gpus``.

    A job counts against its project's share from the moment it is queued, for those of the project
    that come after it. So projects take turns, and what a job asks for moves none that is ahead of
    it.
    """
    requests = [each.request for each in pending]
    priority = np.array([each.priority for each in requests], dtype=np.float64)
    submitted_at = np.array([each.submitted_at for each in requests], dtype=np.float64)
    waited = np.maximum(now - submitted_at, 0.0) / tuning.wait_s_per_point
    urgent = _deadline_points(requests, now, tuning)
    by_key = _ranks([each.key for each in requests])
    base = priority + waited + urgent
    by_need = (by_key, submitted_at, -base)
    share = _share_points(pending, running, projects, gpus, by_need, tuning)
    places = np.lexsort((by_key, submitted_at, -(base + share)))
    return Order(
        tuple(pending[place] for place in places.tolist()),
        priority[places],
        waited[places],
        share[places],
        urgent[places],
    )


def _ranks(keys: list[str]) -> Ints:
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return ranks


def _deadline_points(requests: Sequence[Request], now: float, tuning: Tuning) -> Floats:
    at = np.array([each.deadline_at or np.inf for each in requests], dtype=np.float64)
    left = np.clip((at - now) / tuning.deadline_within_s, 0.0, 1.0)
    points: Floats = tuning.deadline_points * (1.0 - left)
    return points


def _share_points(
    pending: Sequence[Pending],
    running: Sequence[Running],
    projects: Mapping[str, ProjectShare],
    gpus: int,
    by_need: tuple[Floats | Ints, ...],
    tuning: Tuning,
) -> Floats:
    """Halve the points each time that a project has used another whole fair share.

    ``by_need`` puts the jobs of a project in order, the last key first, as ``lexsort`` has it.
    """
    requests = [each.request for each in pending] + [each.request for each in running]
    names = sorted({each.project for each in requests})
    row = {name: place for place, name in enumerate(names)}
    shares = [projects.get(name, _NOBODY) for name in names]
    weight = np.array([max(each.weight, 0.0) for each in shares], dtype=np.float64)
    used_s = np.array([each.used_gpu_s for each in shares], dtype=np.float64)
    project = np.array([row[each.request.project] for each in pending], dtype=np.int64)
    cost_s = tuning.fair_share_horizon_s * np.array(
        [0 if _is_kept_back(each) else each.request.gpus for each in pending], dtype=np.float64
    )
    for each in running:
        used_s[row[each.request.project]] += tuning.fair_share_horizon_s * each.request.gpus
    # Not what all ask for: then one that asks for less would change how others compare.
    total_s = sum(each.used_gpu_s for each in shares) + tuning.fair_share_horizon_s * gpus
    ahead_s = _before_in_group(cost_s, project, by_need)
    due_s = weight / max(weight.sum(), 1e-9) * total_s
    had_s = used_s[project] + ahead_s
    times = np.divide(
        had_s, due_s[project], out=np.full(len(had_s), np.inf), where=due_s[project] > 0
    )
    points: Floats = tuning.fair_share_points * np.exp2(-times)
    return points


def _is_kept_back(pending: Pending) -> bool:
    return bool(pending.held_by or pending.spec_error or pending.waits_for)


def _before_in_group(values: Floats, group: Ints, keys: tuple[Floats | Ints, ...]) -> Floats:
    """Return for each the sum of the values that come before it in its group, by ``keys``."""
    places = np.lexsort((*keys, group))
    sums = np.cumsum(values[places]) - values[places]
    firsts = np.append(True, np.diff(group[places]) != 0)[: len(places)]
    # What the groups before it came to is carried from the first of each group on.
    offsets = np.maximum.accumulate(np.where(firsts, sums, 0.0)) if len(places) else sums
    out = np.empty(len(values))
    out[places] = sums - offsets
    return out
