"""In which order jobs are tried: priority, time waited, fair share of their project, deadline.

Each comes to points, and the most points go first. Waiting is worth more points without end, the
others are bounded, so whatever waits comes to the front in the end.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from admission.core.request import Request
from admission.core.snapshot import Pending, ProjectShare, Running, Tuning

__all__ = ["Order", "order", "tried"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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

    @cached_property
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
    it. What is kept back moves nobody: neither it nor a project of which nothing else is there.
    """
    requests = [each.request for each in pending]
    priority = np.array([each.priority for each in requests], dtype=np.float64)
    submitted_at = np.array([each.submitted_at for each in requests], dtype=np.float64)
    waited = np.maximum(now - submitted_at, 0.0) / tuning.wait_s_per_point
    urgent = _deadline_points(requests, now, tuning)
    by_key = _ranks([each.key for each in requests])
    base = priority + waited + urgent
    by_need = (by_key, submitted_at, -base)
    kept_back = np.array([each.is_kept_back(now) for each in pending], dtype=np.bool_)
    share = _share_points(pending, running, projects, gpus, by_need, kept_back, tuning)
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
    # Nothing keeps a deadline that has passed, so it puts nobody else off any more.
    points: Floats = np.where(at < now, 0.0, tuning.deadline_points * (1.0 - left))
    return points


def _share_points(
    pending: Sequence[Pending],
    running: Sequence[Running],
    projects: Mapping[str, ProjectShare],
    gpus: int,
    by_need: tuple[Floats | Ints, ...],
    kept_back: Bools,
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
    asked = np.array([each.request.gpus for each in pending], dtype=np.float64)
    cost_s = tuning.fair_share_horizon_s * np.where(kept_back, 0.0, asked)
    # Who has nothing that could run or does shares with nobody.
    shares_now = np.zeros(len(names), dtype=np.bool_)
    shares_now[project[~kept_back]] = True
    shares_now[[row[each.request.project] for each in running]] = True
    # Not what all ask for: then one that asks for less would change how others compare.
    total_s = float(used_s[shares_now].sum()) + tuning.fair_share_horizon_s * gpus
    for each in running:
        used_s[row[each.request.project]] += tuning.fair_share_horizon_s * each.request.gpus
    ahead_s = _before_in_group(cost_s, project, by_need)
    due_s = weight / max(float(weight[shares_now].sum()), 1e-9) * total_s
    had_s = used_s[project] + ahead_s
    times = np.divide(
        had_s, due_s[project], out=np.full(len(had_s), np.inf), where=due_s[project] > 0
    )
    points: Floats = tuning.fair_share_points * np.exp2(-times)
    return points


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


# --- How far a cycle looks ------------------------------------------------------------------------


def tried(found: Order, depth: int, now: float) -> Bools:
    """Return which jobs of an order a cycle tries: no more than ``depth`` of those that can run.

    Projects share the depth evenly, and in each its users; what one does not use, others have. Of
    its own the first in order are tried. What is kept back counts nothing, and is not tried anyway.
    """
    can_run = np.array([not each.is_kept_back(now) for each in found.pending], dtype=np.bool_)
    within = ~can_run
    places = np.flatnonzero(can_run)
    if len(places) <= depth:
        within[places] = True
        return within
    jobs = [found.pending[place] for place in places.tolist()]
    project = _numbered([each.request.project for each in jobs])
    user = _numbered([(each.request.project, each.user) for each in jobs])
    rank = np.arange(len(jobs))
    of_user = _turns(user, (rank,))
    of_project = _turns(project, (rank, of_user))
    within[places[np.lexsort((rank, of_project))[:depth]]] = True
    return within


def _numbered(values: Sequence[Hashable]) -> Ints:
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(each, len(number)) for each in values], dtype=np.int64)


def _turns(group: Ints, keys: tuple[Ints, ...]) -> Ints:
    """Return the place of each in its group, from 0, by ``keys``, the last of them first."""
    return _before_in_group(np.ones(len(group)), group, keys).astype(np.int64)
