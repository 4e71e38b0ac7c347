"""Celery tasks of service levels."""

from __future__ import annotations

import time

from celery import shared_task
from django.utils import timezone

from admission.slos import measuring


@shared_task
def measure() -> None:
    """Do one step of measuring."""
    measuring.step(time.time())


@shared_task
def forget() -> None:
    """Drop judgments and samples that no objective can ask for any more."""
    measuring.prune(timezone.now())
