"""Alertmanager: its API v2. It forgets alerts whose end has passed: each is told again in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from policies.incidents.channels.content import (
    Content,
    Destination,
    Event,
    HttpRequest,
    json_request,
)
from policies.incidents.outgoing import check_url

__all__ = ["RENEW", "check", "prepare"]

#: How often an alert is told again, and how long it lasts without that.
RENEW = timedelta(minutes=5)
_LASTS = 3 * RENEW
_PATH = "/api/v2/alerts"


def check(destination: Destination) -> None:
    check_url(destination.target)


def prepare(content: Content, destination: Destination, now: float) -> HttpRequest:
    """Return the request. The target is Alertmanager's own address; the secret a bearer token."""
    alert = {
        "labels": _labels(content),
        "annotations": {"summary": content.title, "description": "\n".join(content.lines)},
        "startsAt": content.opened_at or content.at,
        "endsAt": _ends_at(content, now),
    }
    if content.url:
        alert["generatorURL"] = content.url
    url = destination.target.rstrip("/").removesuffix(_PATH) + _PATH
    request = json_request(url, [alert], content.key)
    if destination.secret:
        request.headers["Authorization"] = f"Bearer {destination.secret}"
    return request


def _labels(content: Content) -> dict[str, Any]:
    """Return the labels that identify the alert; Alertmanager takes an empty label for none."""
    labels = {
        "alertname": content.rule or "headroom-message",
        "severity": content.severity,
        "incident": content.incident,
        "site": content.site,
        content.scope_kind: content.scope,
        "source": "headroom",
    }
    return {name: value for name, value in labels.items() if name and value}


def _ends_at(content: Content, now: float) -> str:
    if content.event is Event.RESOLVED:
        return content.resolved_at or content.at
    return (datetime.fromtimestamp(now, UTC) + _LASTS).isoformat()
