"""Celery tasks of curtailments."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from admission.curtailments import judging


@shared_task
def judge() -> None:
    """Judge curtailments that are over."""
    judging.judge_due(timezone.now())
