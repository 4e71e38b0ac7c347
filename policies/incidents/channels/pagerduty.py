"""PagerDuty: Events API v2. By the dedup key, one incident is one alert there."""

from __future__ import annotations

from typing import Any

import msgspec

from policies.incidents.channels.content import (
    BadDestination,
    Content,
    Destination,
    Event,
    HttpRequest,
    clip,
    json_request,
)
from policies.incidents.outgoing import check_url

__all__ = ["EVENTS_URL", "check", "prepare"]

EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
_SUMMARY = 1024
_ACTIONS = {Event.ACKNOWLEDGED: "acknowledge", Event.RESOLVED: "resolve"}
_SEVERITIES = {"critical": "critical", "warning": "warning", "info": "info"}


def check(destination: Destination) -> None:
    if destination.target:
        check_url(destination.target)
    if not destination.secret:
        raise BadDestination("secret", "give the routing key of a PagerDuty integration")


def prepare(content: Content, destination: Destination, _now: float) -> HttpRequest:
    """Return the request; an empty target is PagerDuty's own address."""
    action = _ACTIONS.get(content.event, "trigger")
    value: dict[str, Any] = {
        "routing_key": destination.secret,
        "event_action": action,
        "dedup_key": content.group,
    }
    if action == "trigger":
        value |= {"client": "Headroom", "payload": _payload(content)}
        if content.url:
            value |= {
                "client_url": content.url,
                "links": [{"href": content.url, "text": content.incident}],
            }
    return json_request(destination.target or EVENTS_URL, value, content.key)


def _payload(content: Content) -> dict[str, Any]:
    return {
        "summary": clip(content.headline, _SUMMARY),
        "source": content.scope or content.site or "headroom",
        "severity": _SEVERITIES.get(content.severity, "warning"),
        "timestamp": content.opened_at or content.at,
        "component": content.scope_kind,
        "group": content.site,
        "class": content.rule,
        "custom_details": {
            "text": "\n".join(content.lines),
            "firings": [msgspec.to_builtins(each) for each in content.firings],
            "count": content.count,
        },
    }
