"""Prometheus metrics of restrictions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import Counter

if TYPE_CHECKING:
    from policies.restrictions.models import RestrictionEvent

EVENTS = Counter(
    "headroom_restriction_events_total", "Lines of the ledger of restrictions.", ["event"]
)


def count(events: Iterable[RestrictionEvent]) -> None:
    """Count lines of the ledger."""
    for event in events:
        EVENTS.labels(str(event.kind)).inc()
