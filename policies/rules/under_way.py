"""Replays that are under way: whose worker lives, and how far it is.

A worker holds a lock of the database for as long as it runs a replay, and the lock ends with it,
however it ends: a replay that is running and whose lock is free has no worker.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import structlog
from django.utils import timezone

from fleet import locks
from policies.rules.models import RuleReplay

__all__ = ["WORKER_ENDED", "give_up_dead", "hold", "note"]

log = structlog.get_logger(__name__)

WORKER_ENDED = "the worker that ran it has ended"
#: First of the two keys of the lock; the second is the replay's.
_LOCK_CLASS = 0x5250


def hold(replay_id: int) -> AbstractContextManager[bool]:
    """Hold the lock of a replay; the value is False where another process holds it."""
    # The keys of locks have 31 bits. Two replays that share one would wait for each other.
    return locks.only_one(_LOCK_CLASS, replay_id % 2**31)


def note(replay_id: int, done_s: float) -> None:
    """Keep how much of its span is replayed, s, for those who wait."""
    RuleReplay.objects.filter(pk=replay_id).update(done_s=done_s)


def give_up_dead() -> int:
    """Say of replays whose worker has ended that they failed. Return how many there were."""
    running = RuleReplay.objects.filter(state=RuleReplay.States.RUNNING)
    return sum(_give_up(pk) for pk in running.values_list("pk", flat=True))


def _give_up(replay_id: int) -> int:
    with hold(replay_id) as is_free:
        if not is_free:
            return 0
        # It may have come to its end since it was listed.
        row = RuleReplay.objects.filter(pk=replay_id, state=RuleReplay.States.RUNNING)
        given_up = row.update(
            state=RuleReplay.States.FAILED, error=WORKER_ENDED, finished_at=timezone.now()
        )
    if given_up:
        log.warning("replay_given_up", replay=replay_id)
    return given_up
