"""Notification channels, and what became of the last notifications, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils import timezone

from accounts.visibility import Visibility
from dashboard.channel_forms import HEARS
from policies.firings import Severity
from policies.incidents import visible
from policies.incidents.channels import shown
from policies.incidents.models import Delivery, NotificationChannel

__all__ = ["Row", "last_told", "rows"]

#: CSS classes of the tags of deliveries.
_TAGS = {Delivery.State.FAILED: " error", Delivery.State.QUEUED: " warning"}


@dataclass(frozen=True, slots=True)
class Row:
    """A channel. ``tag``: the class of its state, with a space before; ``why`` it is so."""

    channel: NotificationChannel
    goes_to: str
    hears: str
    state: str
    tag: str
    why: str

    @classmethod
    def of(cls, channel: NotificationChannel) -> Row:
        """Return the line of a channel."""
        state, tag = _state(channel)
        return cls(channel, _goes_to(channel), _hears(channel), state, tag, channel.last_error)


def rows(channels: Iterable[NotificationChannel], visibility: Visibility) -> list[Row]:
    """Return the lines of channels. One query at most."""
    # What the other side answers may repeat what it was told.
    return [Row.of(each) for each in visibility.veiled(channels, "last_error")]


def _goes_to(channel: NotificationChannel) -> str:
    return shown(channel.target) or "PagerDuty's own address"


def _hears(channel: NotificationChannel) -> str:
    hears = HEARS[Severity(channel.min_severity)]
    return hears if channel.send_resolved else f"{hears}, not of the end"


def _state(channel: NotificationChannel) -> tuple[str, str]:
    if not channel.enabled:
        return "switched off", ""
    if channel.failures:
        times = "time" if channel.failures == 1 else "times in a row"
        return f"failed {channel.failures:,} {times}", " error"
    return ("the last was refused", " error") if channel.last_error else ("ready", "")


@dataclass(frozen=True, slots=True)
class Told:
    """A notification, and the class of the tag of its state."""

    delivery: Delivery
    tag: str
    #: is tried again, and not before then
    waits: bool


def last_told(visibility: Visibility, most: int) -> list[Told]:
    """Return the newest notifications that the reader may see. Two queries at most."""
    found = Delivery.objects.seen_by(visibility).select_related("channel").order_by("-id")[:most]
    now = timezone.now()
    return [
        Told(
            each,
            _TAGS.get(Delivery.State(each.state), ""),
            waits=each.state == Delivery.State.QUEUED and each.attempts > 0 and each.next_at > now,
        )
        for each in visibility.veiled(found, *visible.DELIVERY)
    ]
