"""The dead-man's switch: reports each minute that all is in control, and else is silent.

An alarm about a system that is dead cannot come from that system. So somebody else listens, and
raises the alarm when nothing is heard: an Alertmanager, or a service for heartbeats.
"""

from __future__ import annotations

import structlog
import urllib3
from django.conf import settings

from config.clock import Moment
from telemetry import stream

__all__ = ["push"]

log = structlog.get_logger(__name__)

EVERY_S = 60.0
_TIMEOUT_S = 5.0
_PUSHED = "watchdog:pushed"
#: As an Alertmanager takes it (POST /api/v2/alerts); others take any body. Without times in it, no
#: clock matters: it is resolved when it has not come for as long as the Alertmanager says.
_ALERT = [
    {
        "labels": {"alertname": "HeadroomWatchdog", "severity": "none"},
        "annotations": {"summary": "Headroom's loops are done. Raise the alarm when this ends."},
    }
]


def push(now: Moment) -> bool:
    """Send the report to ``WATCHDOG_URL``, where a minute has passed. True: it arrived."""
    if not settings.WATCHDOG_URL or not _is_due(now):
        return False
    token = settings.WATCHDOG_TOKEN
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = urllib3.request(
            "POST",
            settings.WATCHDOG_URL,
            json=_ALERT,
            headers=headers,
            timeout=_TIMEOUT_S,
            retries=False,
        )
    except urllib3.exceptions.HTTPError as error:
        # Its text may hold the address, which may hold a secret.
        log.warning("watchdog_not_told", error=type(error).__name__)
        return False
    if answer.status >= 300:
        log.warning("watchdog_not_told", status=answer.status)
        return False
    stream.connection().set(_PUSHED, str(now))
    return True


def _is_due(now: Moment) -> bool:
    kept = stream.connection().get(_PUSHED)
    if not isinstance(kept, bytes):
        return True
    try:
        age_s = Moment.parse(kept.decode()).age_s(now)
    except ValueError:
        return True
    return not 0 <= age_s < EVERY_S - 1
