"""Prometheus metrics of directives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import Counter

if TYPE_CHECKING:
    from admission.directives.models import DirectiveEvent

EVENTS = Counter(
    "headroom_directive_events_total", "Lines of the ledger of directives.", ["kind", "event"]
)
VERDICTS = Counter(
    "headroom_directive_verdicts_total", "What came of directives.", ["kind", "outcome"]
)


def count(events: Iterable[DirectiveEvent]) -> None:
    """Count lines of the ledger."""
    for event in events:
        EVENTS.labels(str(event.directive.kind), str(event.kind)).inc()
        if event.kind == "verdict":
            VERDICTS.labels(str(event.directive.kind), str(event.directive.outcome)).inc()
