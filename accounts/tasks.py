"""Celery tasks: the audit log's way to syslog, and housekeeping."""

from __future__ import annotations

from celery import shared_task

from accounts import shipping
from accounts.sessions.store import SessionStore

#: Steps of one call, so that a long backlog gives way to other tasks.
_STEPS = 20


@shared_task
def ship_audit() -> None:
    """Bring new entries to the receiver."""
    for _ in range(_STEPS):
        if not shipping.step().count:
            return


@shared_task
def forget_sessions() -> None:
    """Remove sessions that are over."""
    SessionStore.clear_expired()
