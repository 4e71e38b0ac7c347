"""When a channel is told of an incident, and of which event. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from policies.incidents.channels.content import Event

__all__ = ["Last", "Situation", "event_now", "fingerprint"]

_ACKNOWLEDGED = "acknowledged"
_OVER = ("resolved", "closed")


@dataclass(frozen=True)
class Situation:
    """An incident as a channel would see it."""

    #: open, acknowledged, resolved or closed
    state: str
    #: whether a firing shows: one that fires, unsilenced and unexplained
    shows: bool
    #: of what would be told
    fingerprint: str


@dataclass(frozen=True)
class Last:
    """The last notification that a channel had of an incident."""

    event: Event
    fingerprint: str
    at: datetime

    @property
    def state(self) -> str:
        """The state that the incident had then."""
        return self.fingerprint.partition(":")[0]


def fingerprint(state: str, severity: str, keys: Iterable[str]) -> str:
    """Return a digest of a notification's content: it changes when there is news."""
    text = "\n".join([severity, *sorted(keys)])
    return f"{state}:{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def event_now(
    situation: Situation, last: Last | None, *, now: datetime, repeat: timedelta, renews: bool
) -> Event | None:
    """Return the event to notify of now, or None.

    Of an incident that it never heard of, a channel does not hear that it is over. While it is
    acknowledged, nothing is repeated, but to a channel that ``renews``.
    """
    told = last is not None and last.event is not Event.RESOLVED
    if situation.state in _OVER:
        return Event.RESOLVED if told else None
    if not situation.shows:
        return None
    if last is None or not told:
        return Event.OPENED if last is None else Event.REOPENED
    if situation.state == _ACKNOWLEDGED and last.state != _ACKNOWLEDGED:
        return Event.ACKNOWLEDGED
    if last.fingerprint != situation.fingerprint:
        return Event.UPDATED
    is_due = now >= last.at + repeat and (renews or situation.state != _ACKNOWLEDGED)
    return Event.REPEATED if is_due else None
