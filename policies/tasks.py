"""Celery tasks that put the parts of policies together."""

from __future__ import annotations

import time

from celery import shared_task
from django.utils import timezone

from policies import loop
from policies.rules import store, under_way


@shared_task
def evaluate() -> bool:
    """Do one round of the policy loop; False where another process is at it, or a part failed."""
    done = loop.evaluate_once(time.time())
    return done is not None and not done.failed


@shared_task
def forget() -> None:
    """Delete old episodes and replays of rules."""
    store.prune(timezone.now())


@shared_task
def follow_replays() -> None:
    """Give up replays of rules whose worker has ended."""
    under_way.give_up_dead()
