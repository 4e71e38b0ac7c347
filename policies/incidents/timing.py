"""When an incident is told of, and when it is over: the waits, from the settings."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

__all__ = ["group_interval", "group_wait", "quiet_time", "reopen_time", "sooner"]


def quiet_time() -> timedelta:
    """How long all members have to be clear until an incident resolves by itself."""
    return timedelta(seconds=settings.INCIDENT_QUIET_S)


def reopen_time() -> timedelta:
    """How long after that the same group opens it again, rather than a new one."""
    return timedelta(minutes=settings.INCIDENT_REOPEN_MIN)


def group_wait() -> timedelta:
    """How long to wait for the rest of a group until channels are told."""
    return timedelta(seconds=settings.INCIDENT_GROUP_WAIT_S)


def group_interval() -> timedelta:
    """How long to wait for more members of an incident that channels know."""
    return timedelta(seconds=settings.INCIDENT_GROUP_INTERVAL_S)


def sooner(first: datetime | None, second: datetime) -> datetime:
    return second if first is None else min(first, second)
