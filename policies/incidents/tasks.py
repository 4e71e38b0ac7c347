"""Celery tasks: notifications on their way, incidents that have gone quiet, silences that end."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from policies.incidents import follow, notify, outbox
from policies.incidents.models import Incident

__all__ = ["deliver", "warn_of_silences"]


@shared_task
def deliver() -> None:
    """Resolve quiet incidents, queue notifications that are due, and begin to send."""
    now = timezone.now()
    if follow.has_quiet(now=now):
        follow.settle(now=now)
    if Incident.objects.filter(state=Incident.State.CLOSED).exists():
        follow.settle_closed(now=now)
    notify.queue_due(now=now)
    outbox.deliver(now=now)


@shared_task
def warn_of_silences() -> None:
    """Warn of silences that end soon, and delete old notifications."""
    now = timezone.now()
    notify.warn_of_silences(now=now)
    outbox.prune(now=now)
