"""Celery tasks of goodput."""

from __future__ import annotations

import time

from celery import shared_task
from django.utils import timezone

from admission.goodput import hours

#: A task begins no further hour after this, s.
_BUDGET_S = 20.0


@shared_task
def account() -> bool:
    """Compute the hours of the account that are due; False where another process is at it."""
    end = time.monotonic() + _BUDGET_S
    while (found := hours.step(time.time())) and time.monotonic() < end:
        pass
    return found is not None


@shared_task
def forget() -> None:
    """Drop hours and days past their retention."""
    hours.prune(timezone.now())
