"""Celery tasks that watch all the others."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from config import clock_steps, condition, health, own_incident, watchdog
from config.clock import Moment
from telemetry import set_back, stream

log = structlog.get_logger(__name__)


@shared_task
def watch() -> None:
    """Look at the server's condition: follow steps of the clock, report troubles, and beat."""
    now = Moment.now()
    by_s = condition.note_clock(stream.connection(), now)
    if by_s:
        set_back.note(by_s)
        rows = clock_steps.follow(by_s, timezone.now())
        log.warning("clock_was_set", by_s=round(by_s, 1), rows_brought_back=rows)
    found = health.look()
    own_incident.follow(condition.troubles(found), timezone.now())
    if condition.in_control(found):
        watchdog.push(now)
