"""What happened on the fleet in a span, in one list: as far as its reader may know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.db.models import Q, QuerySet

from accounts.visibility import ANOTHER, Visibility
from admission.jobs.models import Attempt
from policies.incidents import visible as seen_incidents
from policies.incidents.models import Incident
from policies.playbooks import visible as seen_runs
from policies.playbooks.models import PlaybookRun
from policies.restrictions import visible as seen_restrictions
from policies.restrictions.models import Restriction

__all__ = ["KINDS", "MOST", "Happening", "happenings"]

#: The kinds of happenings, each of which is the first tag of its own.
KINDS = ("incident", "restriction", "playbook", "job")
#: So many are told, the newest.
MOST = 1000


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that began or ended. ``tags`` begin with its kind."""

    at: datetime
    what: str
    tags: tuple[str, ...]
    data: str


def happenings(
    start: datetime, end: datetime, visibility: Visibility, tags: Collection[str] = ()
) -> list[Happening]:
    """Return what began or ended from ``start`` to ``end``, with all of ``tags``, the newest first.

    Of a job of another project it is told that one began or ended, and where; it has no name. One
    query for each kind, and two more for readers who do not see all jobs.
    """
    of_kind = {
        "incident": _incidents, "restriction": _restrictions, "playbook": _runs, "job": _jobs,
    }  # fmt: skip
    asked = [kind for kind in KINDS if kind in tags]
    found = [
        each
        for kind in asked or KINDS
        for each in of_kind[kind](start, end, visibility)
        if start <= each.at <= end and set(tags) <= set(each.tags)
    ]
    return sorted(found, key=lambda each: each.at, reverse=True)[:MOST]


def _within(rows: QuerySet[Any], start: datetime, end: datetime, *names: str) -> Iterable[Any]:
    """Return the newest rows of which one of the moments ``names`` is in the span."""
    either = Q()
    for name in names:
        either |= Q(**{f"{name}__range": (start, end)})
    return rows.filter(either).order_by(f"-{names[0]}", "-pk")[:MOST]


def _incidents(start: datetime, end: datetime, visibility: Visibility) -> Iterator[Happening]:
    rows = Incident.objects.seen_by(visibility)
    found = _within(rows, start, end, "opened_at", "resolved_at")
    for row in seen_incidents.incidents(found, visibility):
        tags = _tags("incident", row.severity, row.site)
        yield Happening(row.opened_at, f"{row.number} opened", (*tags, "begin"), row.title)
        if row.resolved_at is not None:
            yield Happening(row.resolved_at, f"{row.number} {row.state}", (*tags, "end"), row.title)


def _restrictions(start: datetime, end: datetime, visibility: Visibility) -> Iterator[Happening]:
    rows = Restriction.objects.seen_by(visibility)
    found = _within(rows, start, end, "issued_at", "ended_at")
    for row in seen_restrictions.rows(found, visibility):
        what, tags = f"{row.kind} on {row.scope}", _tags("restriction", row.kind)
        yield Happening(row.issued_at, f"{what} issued", (*tags, "begin"), row.reason)
        if row.ended_at is not None:
            yield Happening(row.ended_at, f"{what} ended", (*tags, "end"), row.ended_why)


def _runs(start: datetime, end: datetime, visibility: Visibility) -> Iterator[Happening]:
    rows = PlaybookRun.objects.seen_by(visibility)
    found = _within(rows, start, end, "started_at", "ended_at")
    for row in visibility.veiled(found, *seen_runs.RUN):
        what, tags = f"{row.playbook} on {row.scope}", _tags("playbook", row.playbook)
        yield Happening(row.started_at, f"{what} started", (*tags, "begin"), "")
        if row.ended_at is not None:
            yield Happening(row.ended_at, f"{what} {row.state}", (*tags, "end"), row.why)


def _jobs(start: datetime, end: datetime, visibility: Visibility) -> Iterator[Happening]:
    found = list(_within(Attempt.objects.all(), start, end, "started_at", "ended_at"))
    names = visibility.shown([row.key for row in found])
    for row, name in zip(found, names, strict=True):
        gpus = sum(len(held) for held in row.placement.get("gpus", {}).values())
        sites = row.placement.get("sites", ())
        where = f"{gpus} GPUs at {', '.join(sites)}" if sites else f"{gpus} GPUs"
        tags = _tags("job", *sites)
        if row.started_at is not None:
            yield Happening(row.started_at, f"{name} started", (*tags, "begin"), where)
        if row.ended_at is not None and row.started_at is not None:
            outcome = cast(str, row.outcome) or "ended"
            # Why it ended may name others.
            why = "" if name == ANOTHER else visibility.text(row.why)
            yield Happening(row.ended_at, f"{name} {outcome}", (*tags, "end"), why or where)


def _tags(*given: str) -> tuple[str, ...]:
    return tuple(each for each in given if each)
