"""When running jobs grow, shrink, or stand elsewhere so that others fit: as the policy states it.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["BUDGET_S", "RETURNS_WITHIN_S", "MoveKind", "MovingPolicy", "within_the_hour"]

#: The time that the budget of moves is for, s.
BUDGET_S = 3600.0
#: What a job that moves is to have is kept for it for so long at most, s: its save, its end and a
#: few cycles. Whoever takes longer waits as others do.
RETURNS_WITHIN_S = 900.0


class MoveKind(StrEnum):
    """Why a running job saves, ends and starts again: also the owner of the directive to it."""

    #: an elastic job has more GPUs then
    GROWTH = "growth"
    #: an elastic job gives back GPUs: they do too little for it, as measured, or one that waits has
    #: them then
    SHRINKING = "shrinking"
    #: one that waits has its GPUs then, and it has as many elsewhere
    DEFRAGMENTATION = "defragmentation"


@dataclass(frozen=True, kw_only=True)
class MovingPolicy:
    """Whether running jobs that agree to be stopped start again on more GPUs, fewer, or others.

    ``least_yield`` and ``undone_below`` are of what an added GPU does beside one that a job has:
    what lies between them is hysteresis.
    """

    #: elastic jobs that hold fewer GPUs than they may get more once these are free
    grows: bool = True
    #: a job begins with more than it asks for where nobody waits for that
    starts_wide: bool = True
    #: elastic jobs give back what did not pay, as measured, and what is beyond what they ask for to
    #: those that wait
    shrinks: bool = True
    #: jobs stand elsewhere so that one that waits fits, which would not else though enough is free
    defragments: bool = False
    #: what is won is at least so many times what saving and starting again costs
    least_return: float = 5.0
    #: a job that began so recently is left alone, s: each move is a new beginning
    least_since_s: float = 300.0
    #: jobs that are moved within an hour at most
    moves_per_h: int = 12
    #: what saving, ending and starting again takes from a job, s
    restart_s: float = 180.0
    #: what is won later than so long from now does not count, s
    horizon_s: float = 4 * 3600.0
    #: a job grows as far as each added GPU is expected to do so much, …
    least_yield: float = 0.1
    #: … and goes back to a size at which it was measured, where each added one does less than this
    undone_below: float = 0.05
    #: share of each power and cooling budget that is left after a growth at full draw, uncapped
    least_margin: float = 0.05
    #: gangs that synchronize grow onto no more nodes than hold them; others onto whatever is left
    packs: bool = True


def within_the_hour(moved_at: Iterable[float], now: float) -> int:
    """Return how many of these moments (Unix s) count against the budget of moves at ``now``."""
    return sum(now - BUDGET_S < at <= now for at in moved_at)
