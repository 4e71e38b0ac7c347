"""From firings to incidents: open, join, reopen, clear, resolve.

The policy loop calls :func:`cleared` and then :func:`fired` each round, with nothing to tell as
well: silences begin and end by the clock, and what a firing has hidden may come to light. Both may
be called again with the same firings; only the first call changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from fleet import snapshot
from headroom.numbers import plain
from policies.firings import Firing
from policies.incidents import declared
from policies.incidents.grouping import member_key
from policies.incidents.metrics import TURNS
from policies.incidents.models import Incident, IncidentMember, Silence, TimelineEntry
from policies.incidents.places import Places
from policies.incidents.plan import Plan, plan, silenced
from policies.incidents.rows import (
    active_members,
    by_incident,
    firing_of,
    known_of,
    subject_of_row,
)
from policies.incidents.timing import quiet_time
from policies.incidents.writer import Recorder, entry, mark_quiet, note_members
from policies.incidents.writing import writing

__all__ = [
    "KEEPS_OPEN",
    "Followed",
    "cleared",
    "fired",
    "has_quiet",
    "kept_open",
    "mark_silenced",
    "note",
    "settle",
    "settle_closed",
    "take",
]


#: Each returns those of some incidents that it keeps from being resolved: playbooks have runs and
#: restrictions, of which incidents know nothing.
KEEPS_OPEN: list[Callable[[Collection[int], datetime], set[int]]] = []


@dataclass(frozen=True)
class Followed:
    """The outcome of handing over firings: incidents opened, and firings begun."""

    #: incidents in which nothing fired before: new, opened again, or gone quiet but not resolved
    opened: list[Incident]
    #: each firing that nothing explains and that was not handed over before, with its incident
    begun: list[tuple[Firing, Incident]]


def fired(firings: list[Firing], *, now: datetime) -> list[Incident]:
    """Put ``firings`` into incidents. Return those in which nothing fired before.

    ``firings`` may be those that are new or all that fire. In one transaction, and a number of
    queries that does not grow with them (but in steps of thousands).
    """
    return take(firings, now=now).opened


def take(firings: Iterable[Firing], *, now: datetime, hand_over: bool = True) -> Followed:
    """As :func:`fired`, and hand over each firing that began, with the incident that it is in.

    Each is handed over once, to whoever says ``hand_over``: the policy loop, which starts their
    playbooks. One that is explained by another is, as soon as that has ended.
    """
    with writing():
        rows = active_members()
        places = Places(snapshot.current())
        decided = plan(
            firings,
            {row.key: known_of(row) for row in rows},
            {row.key: firing_of(row) for row in rows if row.group_key != row.incident.group_key},
            places=places,
            inhibitions=declared.inhibitions(),
            silences=_silences(now),
        )
        opened = Recorder(rows, decided, now).record()
        settle(now=now)
        return Followed(opened, _hand_over() if hand_over else [])


def _hand_over() -> list[tuple[Firing, Incident]]:
    waiting = IncidentMember.objects.filter(
        cleared_at=None, dismissed=False, inhibited_by="", handed_over=False
    ).order_by("id")
    rows = list(waiting.select_related("incident"))
    if rows:
        IncidentMember.objects.filter(pk__in=[row.pk for row in rows]).update(handed_over=True)
    return [(firing_of(row), row.incident) for row in rows]


def cleared(firings: list[Firing], *, now: datetime) -> list[Incident]:
    """Note that ``firings`` have ended. Return the incidents that are resolved by now."""
    with writing():
        keys = [member_key(firing) for firing in firings]
        rows = [row for row in active_members(keys) if not row.dismissed] if keys else []
        if keys:
            IncidentMember.objects.filter(key__in=keys, cleared_at=None).update(cleared_at=now)
        note_members("cleared", "cleared", by_incident(rows), now)
        mark_quiet({row.incident_id for row in rows}, now)
        return settle(now=now)


def has_quiet(*, now: datetime) -> bool:
    """Say whether :func:`settle` would find something: without a lock, for those who ask often."""
    return _quiet(now).exists()


def _quiet(now: datetime) -> QuerySet[Incident]:
    return Incident.objects.unresolved().filter(quiet_since__lte=now - quiet_time())


def settle(*, now: datetime) -> list[Incident]:
    """Resolve the incidents that have been quiet for long enough, and return them.

    Not those of which something is under way or in force yet.
    """
    with writing():
        quiet = list(_quiet(now).order_by("id"))
        kept = kept_open([each.pk for each in quiet], now)
        over = [each for each in quiet if each.pk not in kept]
        for incident in over:
            incident.state = Incident.State.RESOLVED
            incident.resolved_at = incident.notify_at = now
            incident.resolved_by, incident.resolution = "", ""
        TURNS.labels("resolved").inc(len(over))
        Incident.objects.bulk_update(
            over, ["state", "resolved_at", "notify_at", "resolved_by", "resolution"]
        )
        TimelineEntry.objects.bulk_create(
            entry(each.pk, "resolved", "Resolved: all its firings have cleared.", {}, now)
            for each in over
        )
        return over


def settle_closed(*, now: datetime) -> list[Incident]:
    """Resolve the incidents that a person closed, once nothing of them goes on; return them."""
    with writing():
        fires = IncidentMember.objects.filter(cleared_at=None).values("incident")
        closed = Incident.objects.filter(state=Incident.State.CLOSED)
        still = list(closed.exclude(pk__in=fires).order_by("id"))
        kept = kept_open([each.pk for each in still], now)
        over = [each for each in still if each.pk not in kept]
        for incident in over:
            incident.state = Incident.State.RESOLVED
        Incident.objects.bulk_update(over, ["state"])
        TimelineEntry.objects.bulk_create(
            entry(each.pk, "resolved", "Resolved: what fired when it was closed is over.", {}, now)
            for each in over
        )
        return over


def kept_open(incidents: Collection[int], now: datetime) -> set[int]:
    """Return those of ``incidents`` of which something is under way or in force yet."""
    if not incidents:
        return set()
    return set[int]().union(*(keeps(incidents, now) for keeps in KEEPS_OPEN))


def mark_silenced(*, now: datetime) -> None:
    """Note on each member whether a silence keeps it quiet now."""
    with writing():
        rows = active_members()
        quiet = silenced([subject_of_row(row) for row in rows], _silences(now))
        changed = {
            row.key: quiet.get(row.key) for row in rows if quiet.get(row.key) != row.silence_id
        }
        Recorder(rows, Plan(silenced=changed), now).record()


def note(
    incident: Incident | int, kind: str, text: str, data: dict[str, Any], by: str, now: datetime
) -> TimelineEntry:
    """Add to the timeline. ``incident``: itself or its id."""
    key = incident if isinstance(incident, int) else incident.pk
    return TimelineEntry.objects.create(
        incident_id=key, kind=kind, text=text, data=plain(data), by=by, at=now
    )


def _silences(now: datetime) -> list[tuple[int, Any]]:
    return [(each.pk, each.parsed) for each in Silence.objects.active(now).order_by("id")]
