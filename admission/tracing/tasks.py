"""Celery tasks of traces."""

from __future__ import annotations

import time

from celery import shared_task
from django.utils import timezone

from admission.tracing import export

#: A task sends no further request after this, s.
_BUDGET_S = 20.0


@shared_task
def send() -> None:
    """Send the traces of jobs that are over, where a collector is set."""
    end = time.monotonic() + _BUDGET_S
    while export.step(timezone.now()) and time.monotonic() < end:
        pass
