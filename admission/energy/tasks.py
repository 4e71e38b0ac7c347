"""Celery tasks of the ledger of energy."""

from __future__ import annotations

import time

from celery import shared_task
from django.utils import timezone

from admission.energy import following, ledger


@shared_task
def close_hours() -> bool:
    """Close the hours whose roll-ups are whole; False where another process is at it."""
    return ledger.close_due(time.time())


@shared_task
def follow_grid() -> bool:
    """Ask what grids were and will be, where a source is set; False: in vain."""
    return following.follow(timezone.now())


@shared_task
def forget() -> None:
    """Forget nodes, racks and jobs by hour past their retention."""
    ledger.prune(timezone.now())
