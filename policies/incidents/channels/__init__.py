"""The kinds of channels: the request that each sends for a notification.

``prepare`` of a kind is a pure function from the content, the channel's address and secret and a
clock to a request. :mod:`policies.incidents.channels.email` alone sends by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from policies.incidents.channels import alertmanager, email, pagerduty, slack, webhook
from policies.incidents.channels.content import Content, Destination, HttpRequest

__all__ = ["PREPARE", "check_destination", "email", "shown"]

#: By kind: the request that tells of a content.
PREPARE: Mapping[str, Callable[[Content, Destination, float], HttpRequest]] = {
    "webhook": webhook.prepare,
    "slack": slack.prepare,
    "pagerduty": pagerduty.prepare,
    "alertmanager": alertmanager.prepare,
}
_CHECKS: Mapping[str, Callable[[Destination], None]] = {
    "email": email.check,
    "webhook": webhook.check,
    "slack": slack.check,
    "pagerduty": pagerduty.check,
    "alertmanager": alertmanager.check,
}
_URL = re.compile("(https?://[^/?#]+)/?(.*)", re.DOTALL | re.IGNORECASE)


def check_destination(kind: str, destination: Destination) -> None:
    """Raise BadDestination or outgoing.Forbidden where nothing could be sent there."""
    _CHECKS[kind](destination)


def shown(target: str) -> str:
    """Return what people may see of an address: of a URL where it goes.

    The rest of a URL is often a key: whoever has that of a Slack webhook may write to its channel.
    """
    found = _URL.fullmatch(target)
    return f"{found[1]}/\N{HORIZONTAL ELLIPSIS}" if found is not None and found[2] else target
