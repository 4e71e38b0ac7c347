"""Which running jobs give way: the least work lost for the watts that are needed, by place.

Whoever wants watts says where and how many (:class:`Need`), and which jobs could go
(:class:`Candidate`); :func:`least_loss` chooses. Work counts in GPU-seconds since the last
checkpoint: that is what has to be done again. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from policies.headroom.reach import ROUNDING_W, Need, Reach

if TYPE_CHECKING:
    from admission.core.snapshot import Running

__all__ = [
    "LEAST_LOST_GPU_S",
    "SAVE_S",
    "USUAL_SAVE_S",
    "Candidate",
    "Choice",
    "least_loss",
    "lost_by",
    "lost_gpu_s",
    "rank_by_watts_per_lost_work",
    "ranked",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: So long a job may take to save before it is ended, s, by who ends it.
SAVE_S = {
    "preemption": 90.0,
    "fallback": 120.0,
    "restriction": 120.0,
    "shedding": 15.0,
    "growth": 90.0,
    "shrinking": 90.0,
    "defragmentation": 90.0,
}
#: For every other owner of a stop, such as a person.
USUAL_SAVE_S = 60.0
#: A job that has just written its checkpoint loses this much at least, GPU·s: of those that lose
#: nothing the larger go first, and so the fewer.
LEAST_LOST_GPU_S = 1.0
#: What all together free counts as so much of it: sums in another order differ by less.
_ALL = 1.0 - 1e-12
#: Nodes of the search for the best set. Two hundred candidates take some tens of ms.
_SEARCH_STEPS = 2_000


def lost_gpu_s(
    *, gpus: int, started_at: float, last_checkpoint_at: float | None, now: float
) -> float:
    """Return the work that would have to be done again if a job ended now, GPU·s.

    Times are Unix seconds; without a checkpoint all of it since the start.
    """
    since = started_at if last_checkpoint_at is None else max(last_checkpoint_at, started_at)
    return gpus * max(now - since, 0.0)


def lost_by(running: Sequence[Running], now: float) -> Floats:
    """Return the work that each of ``running`` would have to do again if it ended now, GPU·s."""
    return np.array(
        [
            lost_gpu_s(
                gpus=len(each.placement.gpus),
                started_at=each.started_at,
                last_checkpoint_at=each.last_checkpoint_at,
                now=now,
            )
            for each in running
        ],
        dtype=np.float64,
    )


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A running job that could give way, the power that frees on its nodes, and the work it loses.

    ``nodes`` are rows of the inventory, ``watts`` what would be free on each of them, W. ``tier``:
    those of a higher one go only if all of the lower ones together are not enough.
    """

    key: str
    nodes: tuple[int, ...]
    watts: tuple[float, ...]
    lost_gpu_s: float
    tier: int = 0

    @property
    def total_w(self) -> float:
        return float(sum(self.watts))

    @property
    def watts_per_lost_gpu_s(self) -> float:
        return self.total_w / max(self.lost_gpu_s, LEAST_LOST_GPU_S)


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates in the order in which they give way: most watts for the least work first.

    By tier before that. Deterministic: of two that are alike the name decides.
    """
    return sorted(candidates, key=lambda each: (each.tier, -each.watts_per_lost_gpu_s, each.key))


def rank_by_watts_per_lost_work(running: Sequence[Running], now: float) -> Ints:
    """Return places in ``running`` in the order in which these give way, by their reserved power.

    As :func:`ranked`, of jobs of one tier. Deterministic: of two that are alike the name decides.
    """
    keys = [each.request.key for each in running]
    by_key = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    watts = np.array([each.placement.total_w for each in running])
    worth = watts / np.maximum(lost_by(running, now), LEAST_LOST_GPU_S)
    return by_key[np.argsort(-worth[by_key], kind="stable")]


# --- Who goes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The jobs that give way, in order of rank; the work they lose, and the power still short.

    ``short_w`` is aligned with the needs: above 0 where all candidates together do not free enough.
    """

    chosen: tuple[Candidate, ...]
    lost_gpu_s: float
    short_w: tuple[float, ...]

    @property
    def is_enough(self) -> bool:
        return not any(short > ROUNDING_W for short in self.short_w)


def least_loss(candidates: Sequence[Candidate], needs: Sequence[Need], reach: Reach) -> Choice:
    """Choose the candidates that meet each need and lose the least work.

    Of a need that they cannot meet as much as they can is met. Higher tiers come in only for what
    the lower ones leave. Optimal where the search ends within its steps, which it does with some
    tens of candidates; never worse than taking them by rank.
    """
    order = ranked(candidates)
    freed_w = _freed(order, needs, reach)
    asked_w = np.array([need.watts for need in needs], dtype=np.float64)
    left_w, chosen = asked_w.copy(), np.zeros(len(order), dtype=bool)
    tiers = np.array([each.tier for each in order], dtype=np.int64)
    for tier in np.unique(tiers).tolist():
        if not (left_w > ROUNDING_W).any():
            break
        rows = np.flatnonzero((tiers == tier) & (freed_w > 0).any(axis=1))
        lost = np.array([order[row].lost_gpu_s for row in rows], dtype=np.float64)
        within_reach_w = np.minimum(left_w, _ALL * freed_w[rows].sum(axis=0))
        chosen[rows[_cover(freed_w[rows], within_reach_w, lost)]] = True
        left_w = np.maximum(asked_w - freed_w[chosen].sum(axis=0), 0.0)
    taken = tuple(each for each, is_in in zip(order, chosen.tolist(), strict=True) if is_in)
    return Choice(taken, sum(each.lost_gpu_s for each in taken), tuple(left_w.tolist()))


def _freed(candidates: Sequence[Candidate], needs: Sequence[Need], reach: Reach) -> Floats:
    """Return the power that each candidate frees for each need, W: (candidates, needs)."""
    column = {reach.place_of(need): at for at, need in enumerate(needs)}
    freed = np.zeros((len(candidates), len(needs)))
    for row, each in enumerate(candidates):
        for place, watts in zip(*reach.carried(each.nodes, each.watts), strict=True):
            at = column.get(int(place))
            if at is not None:
                freed[row, at] = watts
    return freed


def _cover(freed_w: Floats, need_w: Floats, lost: Floats) -> Ints:
    """Return the rows that together free ``need_w`` in every column, with the least loss."""
    cost = np.maximum(lost, LEAST_LOST_GPU_S)
    greedy = _without_the_needless(_greedy(freed_w, need_w, cost), freed_w, need_w, cost)
    return _Search(freed_w, need_w, cost, greedy).best()


def _greedy(freed_w: Floats, need_w: Floats, cost: Floats) -> list[int]:
    """Return rows that meet ``need_w``: each time the one that meets most of it for its loss.

    With each that is taken the others can only become worth less. So a row is weighed anew when it
    comes first, and is taken if it still does: few are, where thousands are short at once.
    """
    scale = np.where(need_w > 0, 1.0 / np.maximum(need_w, ROUNDING_W), 0.0)
    worth = np.minimum(freed_w, need_w) @ scale / cost
    first = list(zip((-worth).tolist(), range(len(cost)), strict=True))
    heapq.heapify(first)
    left_w, chosen = need_w, []
    while first and (left_w > ROUNDING_W).any():
        _, row = first[0]
        anew = (-float(np.minimum(freed_w[row], left_w) @ scale / cost[row]), row)
        # Pushed in its place it comes first again, or another does.
        heapq.heapreplace(first, anew)
        if first[0] == anew:
            heapq.heappop(first)
            chosen.append(row)
            left_w = np.maximum(left_w - freed_w[row], 0.0)
    return chosen


def _without_the_needless(
    chosen: list[int], freed_w: Floats, need_w: Floats, cost: Floats
) -> list[int]:
    """Leave out, the costliest first, those that are not needed beside the others."""
    kept, kept_w = [], freed_w[chosen].sum(axis=0)
    for row in sorted(chosen, key=lambda row: -cost[row]):
        others_w = kept_w - freed_w[row]
        if (others_w >= need_w - ROUNDING_W).all():
            kept_w = others_w
        else:
            kept.append(row)
    return kept


class _Search:
    """Branch and bound from a good set on: in or out, the best candidate first."""

    def __init__(self, freed_w: Floats, need_w: Floats, cost: Floats, start: list[int]) -> None:
        order = np.argsort(-(np.minimum(freed_w, need_w).sum(axis=1) / cost), kind="stable")
        self._order = order
        self._freed_w, self._need_w, self._cost = freed_w[order], need_w, cost[order]
        self._best, self._best_cost = sorted(start), float(cost[start].sum())
        # What those from a row on can still free: where that is too little there is no way on.
        self._rest_w = np.cumsum(self._freed_w[::-1], axis=0)[::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            per_w = np.where(self._freed_w > 0, self._cost[:, None] / self._freed_w, np.inf)
        #: the least that a watt costs from a row on, by column
        self._per_w = np.minimum.accumulate(per_w[::-1], axis=0)[::-1]

    def best(self) -> Ints:
        """Return the rows of the cheapest set that was found within the steps."""
        stack: list[tuple[int, Floats, float, tuple[int, ...]]] = [(0, self._need_w, 0.0, ())]
        for _ in range(_SEARCH_STEPS):
            if not stack:
                break
            row, left_w, cost, taken = stack.pop()
            if not (left_w > ROUNDING_W).any():
                if cost < self._best_cost:
                    self._best = sorted(self._order[list(taken)].tolist())
                    self._best_cost = cost
                continue
            if row == len(self._cost) or self._is_hopeless(row, left_w, cost):
                continue
            stack.append((row + 1, left_w, cost, taken))
            with_it = np.maximum(left_w - self._freed_w[row], 0.0)
            stack.append((row + 1, with_it, cost + float(self._cost[row]), (*taken, row)))
        return np.array(self._best, dtype=np.int64)

    def _is_hopeless(self, row: int, left_w: Floats, cost: float) -> bool:
        open_ = left_w > ROUNDING_W
        if (self._rest_w[row][open_] < left_w[open_] - ROUNDING_W).any():
            return True
        least = float((left_w[open_] * self._per_w[row][open_]).max())
        return cost + least >= self._best_cost * (1.0 - 1e-12)
