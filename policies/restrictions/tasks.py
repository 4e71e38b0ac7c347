"""Celery tasks of restrictions."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from policies.restrictions import ledger, store


@shared_task
def follow() -> None:
    """End expired restrictions, and write the due steps of ledgers."""
    now = timezone.now()
    store.expire(now)
    ledger.follow(now)
