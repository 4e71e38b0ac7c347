"""Slack: an incoming webhook, in blocks. Its limits are those of the Block Kit reference."""

from __future__ import annotations

from typing import Any

from policies.incidents.channels.content import (
    Content,
    Destination,
    Event,
    HttpRequest,
    clip,
    json_request,
)
from policies.incidents.outgoing import check_url

__all__ = ["check", "prepare"]

_HEADER = 150
_TEXT = 3000
_FIELD = 2000
_BUTTON_URL = 3000


def check(destination: Destination) -> None:
    check_url(destination.target)


def prepare(content: Content, destination: Destination, _now: float) -> HttpRequest:
    """Return the request. ``text`` is shown in notifications, and read by screen readers."""
    value = {"text": clip(escape(content.headline), _TEXT), "blocks": _blocks(content)}
    return json_request(destination.target, value, content.key)


def escape(text: str) -> str:
    """Escape the characters that Slack would read as a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _blocks(content: Content) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": clip(content.headline, _HEADER)}}
    ]
    if content.event is not Event.MESSAGE:
        blocks.append({"type": "section", "fields": _fields(content)})
    if content.lines:
        text = clip(escape("\n".join(content.lines)), _TEXT)
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
    if content.url and len(content.url) <= _BUTTON_URL:
        label = {"type": "plain_text", "text": f"Open {content.incident}"}
        button = {"type": "button", "text": label, "url": content.url}
        blocks.append({"type": "actions", "elements": [button]})
    return blocks


def _fields(content: Content) -> list[dict[str, str]]:
    named = {
        "Severity": content.severity,
        "State": content.state,
        "Where": f"{content.scope_kind.replace('_', ' ')} {content.scope}",
        "Firings": str(content.count),
    }
    return [
        {"type": "mrkdwn", "text": clip(f"*{name}*\n{escape(value)}", _FIELD)}
        for name, value in named.items()
    ]
