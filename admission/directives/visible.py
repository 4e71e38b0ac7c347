"""The directives of jobs as a reader may see them: some name a job of another project."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from accounts.visibility import Visibility
from admission.directives.models import Directive

__all__ = ["directives"]

_FIELDS = ("cause", "reason", "evidence", "note", "ended_by", "ended_why")


def directives(rows: Iterable[Directive], visibility: Visibility) -> list[Directive]:
    """Return directives with their ledgers as the reader may see them. Not to be saved.

    Two queries at most, where ``rows`` come with their events.
    """
    found = visibility.veiled(rows, *_FIELDS)
    if visibility.sees_all:
        return found
    events = [event for row in found for event in row.events.all()]
    by_row: dict[int, list[Any]] = {row.pk: [] for row in found}
    for event in visibility.veiled(events, "text", "data"):
        by_row[event.directive_id].append(event)
    for row in found:
        row._prefetched_objects_cache = {"events": by_row[row.pk]}  # type: ignore[attr-defined]
    return found
