"""Which jobs may go on in another scheduler, and in which. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from admission.core.response.fallback import Fallback
from headroom.schedulers import words
from headroom.schedulers.contract import CAN_MOVE, SchedulerJob

__all__ = ["is_allowed", "may_move", "next_of"]


def may_move(kind: str, told: SchedulerJob) -> bool:
    """Say whether a job can be submitted elsewhere: its owner says so, and it can start again.

    Elements of arrays stay: they are parts of one script.
    """
    return (
        kind in CAN_MOVE
        and told.can_requeue
        and "_" not in told.ref
        and bool(words.read(told.comment).move_to)
    )


def is_allowed(state: Fallback, home: str, sites: Collection[str]) -> bool:
    """Say whether a job in a fallback state may run in a scheduler whose nodes are at ``sites``."""
    if state is Fallback.REGIONAL:
        return any(site != home for site in sites)
    return state is not Fallback.LOCAL_ONLY or home in sites


def next_of(
    names: Iterable[str], open_to: Mapping[str, bool], *, but: str = "", last: str = ""
) -> str:
    """Return the first of ``names`` that takes jobs now, after ``last`` in a circle; "": none.

    ``open_to`` says of each known scheduler whether it may be used; ``but`` is where the job is.
    """
    usable = [name for name in names if open_to.get(name) and name != but]
    if not usable:
        return ""
    place = usable.index(last) + 1 if last in usable else 0
    return usable[place % len(usable)]
