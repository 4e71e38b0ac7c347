"""Celery tasks of restrictions."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from policies.restrictions import ledger, store


@shared_task
def follow() -> None:
    """Mark what has expired, and write down what became of what was asked."""
    now = timezone.now()
    store.expire(now)
    ledger.follow(now)
