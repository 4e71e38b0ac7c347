"""The content of a notification, before it takes the form of a channel; and its destination."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = [
    "BadDestination",
    "Content",
    "Destination",
    "Event",
    "HttpRequest",
    "Told",
    "clip",
    "json_request",
]


class Event(enum.StrEnum):
    """The event of a notification."""

    OPENED = "opened"
    REOPENED = "reopened"
    UPDATED = "updated"
    REPEATED = "repeated"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    #: a rule, a playbook or a person has something to say
    MESSAGE = "message"


class BadDestination(ValueError):
    """Nothing could be sent there. ``field``: which part of the channel is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Told(msgspec.Struct, frozen=True):
    """One firing of the incident."""

    rule: str
    scope_kind: str
    scope: str
    severity: str
    summary: str
    since: str
    values: dict[str, Any] = {}


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """One notification. Times are ISO 8601, UTC."""

    event: Event
    #: the same for each try
    key: str
    #: the same for all that is told of one incident, and for nothing else
    group: str
    title: str
    severity: str
    at: str
    body: str = ""
    incident: str = ""
    state: str = ""
    rule: str = ""
    site: str = ""
    scope_kind: str = ""
    scope: str = ""
    opened_at: str = ""
    acknowledged_by: str = ""
    assignee: str = ""
    resolved_at: str = ""
    resolution: str = ""
    url: str = ""
    #: firings that show, and the first of them
    count: int = 0
    firings: tuple[Told, ...] = ()

    @property
    def headline(self) -> str:
        """The notification in one line."""
        if self.event is Event.MESSAGE:
            return self.title
        return f"[{self.severity}] {self.incident} {self.event}: {self.title}"

    @property
    def lines(self) -> list[str]:
        """The rest, as plain text."""
        said = [self.body] if self.body else []
        said += [f"{each.severity}: {each.summary or each.rule}" for each in self.firings]
        if self.count > len(self.firings):
            said.append(f"… and {self.count - len(self.firings)} more")
        if self.acknowledged_by:
            said.append(f"Acknowledged by {self.acknowledged_by}.")
        if self.assignee:
            said.append(f"Assigned to {self.assignee}.")
        if self.resolution:
            said.append(f"Closed: {self.resolution}")
        return said


@dataclass(frozen=True)
class Destination:
    """Where a channel sends to."""

    target: str
    secret: str


@dataclass(frozen=True)
class HttpRequest:
    url: str
    body: bytes
    headers: dict[str, str]


def json_request(url: str, value: Any, key: str, **headers: str) -> HttpRequest:
    """Return a request with ``value`` as JSON and ``key`` as its idempotency key."""
    return HttpRequest(
        url,
        msgspec.json.encode(value),
        {
            "Content-Type": "application/json",
            "User-Agent": "headroom",
            "Idempotency-Key": key,
            **headers,
        },
    )


def clip(text: str, length: int) -> str:
    """Return ``text``, cut to ``length`` characters where it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"
