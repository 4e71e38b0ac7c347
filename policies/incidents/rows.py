"""Members of incidents, from rows to the values that decisions are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policies.firings import Firing, Severity
from policies.incidents.matchers import Subject
from policies.incidents.models import Incident, IncidentMember
from policies.incidents.plan import Known
from policies.scopes import Scope, ScopeKind

__all__ = ["active_members", "by_incident", "firing_of", "known_of", "subject_of_row"]


def active_members(keys: Sequence[str] | None = None) -> list[IncidentMember]:
    """Return the members that fire, with their incidents. Two queries."""
    members = IncidentMember.objects.filter(cleared_at=None).order_by("id")
    rows = list(members if keys is None else members.filter(key__in=keys))
    incidents = Incident.objects.in_bulk({row.incident_id for row in rows})
    for row in rows:
        # One object for each incident, however many members it has.
        row.incident = incidents[row.incident_id]
    return rows


def subject_of_row(row: IncidentMember) -> Subject:
    """Return the fields of a member that matchers look at."""
    return Subject(
        key=row.key,
        rule=row.rule,
        severity=Severity(row.severity),
        scope=Scope(ScopeKind(row.scope_kind), row.scope_name),
        site=row.site,
        labels=row.labels,
    )


def known_of(row: IncidentMember) -> Known:
    return Known(
        subject=subject_of_row(row),
        version=row.version,
        playbook=row.playbook,
        group_key=row.group_key,
        home_key=row.incident.group_key,
        inhibited_by=row.inhibited_by,
        silence=row.silence_id,
        dismissed=row.dismissed,
    )


def firing_of(row: IncidentMember) -> Firing:
    return Firing(
        rule=row.rule,
        version=row.version,
        scope=Scope(ScopeKind(row.scope_kind), row.scope_name),
        severity=Severity(row.severity),
        since=row.since,
        at=row.fired_at,
        summary=row.summary,
        values=row.values,
        labels=row.labels,
        playbook=row.playbook,
    )


def by_incident(rows: Iterable[IncidentMember]) -> dict[int, list[IncidentMember]]:
    found: dict[int, list[IncidentMember]] = {}
    for row in rows:
        found.setdefault(row.incident_id, []).append(row)
    return found
