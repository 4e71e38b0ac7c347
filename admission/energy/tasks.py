"""Celery tasks of the ledger of energy."""

from __future__ import annotations

import time

from celery import shared_task
from django.utils import timezone

from admission.energy import budgets, following, ledger


@shared_task
def close_hours() -> bool:
    """Close the hours whose roll-ups are whole, and see how budgets stand by them.

    False where another process is at it.
    """
    was_free = ledger.close_due(time.time())
    if was_free:
        budgets.follow(timezone.now())
    return was_free


@shared_task
def follow_grid() -> bool:
    """Ask what grids were and will be, where a source is set; False: in vain."""
    return following.follow(timezone.now())


@shared_task
def forget() -> None:
    """Forget nodes, racks and jobs by hour past their retention."""
    ledger.prune(timezone.now())
