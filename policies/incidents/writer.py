"""Recording a plan, all incidents at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import F, Q

from accounts.audit import SYSTEM
from headroom.numbers import plain
from policies.firings import Firing, Severity
from policies.incidents.grouping import Group, member_key
from policies.incidents.metrics import TURNS
from policies.incidents.models import RANK, Incident, IncidentMember, TimelineEntry
from policies.incidents.plan import Arrival, Plan
from policies.incidents.rows import by_incident, firing_of
from policies.incidents.timing import group_interval, group_wait, reopen_time, sooner

__all__ = ["Recorder", "entry", "mark_quiet", "note_members"]

_SHOWN = 20
_BATCH = 2000
_INCIDENT_STATE = [
    "title",
    "severity",
    "state",
    "playbook",
    "acknowledged_at",
    "acknowledged_by",
    "quiet_since",
    "resolved_at",
    "reopened_count",
    "notify_at",
]
_MEMBER_STATE = [
    "version",
    "severity",
    "summary",
    "values",
    "labels",
    "playbook",
    "since",
    "fired_at",
    "cleared_at",
    "times",
    "inhibited_by",
    "silence",
    "dismissed",
    "handed_over",
    "group_key",
]


class Recorder:
    """Writes the changes of a plan, all incidents at once."""

    def __init__(self, rows: Sequence[IncidentMember], decided: Plan, now: datetime) -> None:
        self._plan = decided
        self._now = now
        self._rows = {row.key: row for row in rows}
        self._incidents: dict[str, Incident] = {}
        self._new: set[int] = set()
        self._left: set[int] = set()
        self._touched: dict[int, Incident] = {}
        self._entries: list[TimelineEntry] = []
        self._active = Counter(row.incident_id for row in rows if not row.dismissed)

    def record(self) -> list[Incident]:
        """Write, and return the incidents in which nothing fired before."""
        self._release()
        opened = self._arrive()
        self._change()
        self._mark_inhibited()
        self._mark_silenced()
        Incident.objects.bulk_update(
            self._touched.values(),
            _INCIDENT_STATE,
        )
        TimelineEntry.objects.bulk_create(self._entries, batch_size=_BATCH)
        # After the incidents are written, which know nothing of it yet.
        mark_quiet(self._left, self._now)
        return opened

    def _touch(self, incident: Incident) -> Incident:
        return self._touched.setdefault(incident.pk, incident)

    def _say(self, incident_id: int, kind: str, text: str, **data: Any) -> None:
        self._entries.append(entry(incident_id, kind, text, data, self._now))

    def _release(self) -> None:
        """Take guests out of the incident of the firing that explained them."""
        if not self._plan.released:
            return
        leaving = [self._rows[key] for key in self._plan.released]
        IncidentMember.objects.filter(pk__in=[row.pk for row in leaving]).update(
            cleared_at=self._now, inhibited_by=""
        )
        for incident_id, rows in by_incident(leaving).items():
            self._active[incident_id] -= len(rows)
            who = _named([firing_of(row) for row in rows])
            text = f"{who} goes on by itself: nothing explains it any more."
            keys = [row.key for row in rows[:_SHOWN]]
            self._say(incident_id, "released", text, count=len(rows), members=keys)
        self._left = {row.incident_id for row in leaving}

    def _arrive(self) -> list[Incident]:
        opened: list[Incident] = []
        if not self._plan.arrivals:
            return opened
        self._incidents = self._find_incidents(list(self._plan.arrivals))
        self._open_new()
        for home, arrivals in self._plan.arrivals.items():
            incident = self._touch(self._incidents[home])
            if not self._active[incident.pk]:
                opened.append(incident)
            self._join(incident, arrivals)
        self._save_members()
        return opened

    def _find_incidents(self, homes: list[str]) -> dict[str, Incident]:
        """Return by group the incident that is unresolved, or was resolved a short while ago."""
        lately = Q(resolved_at=None) | Q(resolved_at__gte=self._now - reopen_time())
        rows = Incident.objects.filter(lately, group_key__in=homes).order_by(
            "group_key", F("resolved_at").desc(nulls_first=True)
        )
        return {row.group_key: self._touched.get(row.pk, row) for row in rows.distinct("group_key")}

    def _open_new(self) -> None:
        new = [
            self._new_incident(home, arrivals)
            for home, arrivals in self._plan.arrivals.items()
            if home not in self._incidents
        ]
        for incident in Incident.objects.bulk_create(new, batch_size=_BATCH):
            self._incidents[incident.group_key] = incident
            self._new.add(incident.pk)

    def _new_incident(self, home: str, arrivals: Sequence[Arrival]) -> Incident:
        own = [each for each in arrivals if each.group.key == home] or list(arrivals)
        group = own[0].group
        scope = own[0].firing.scope if len(own) == 1 else group.scope or own[0].firing.scope
        return Incident(
            title=_title(group, [each.firing for each in own]),
            group_key=home,
            rule=group.rule,
            severity=_worst([each.firing.severity for each in own]),
            site=own[0].subject.site,
            scope_kind=scope.kind,
            scope_name=scope.name,
            opened_at=self._now,
        )

    def _join(self, incident: Incident, arrivals: Sequence[Arrival]) -> None:
        own = [each.firing for each in arrivals if each.group.key == incident.group_key]
        guests = [each.firing for each in arrivals if each.group.key != incident.group_key]
        if own:
            self._join_own(incident, own)
        if guests:
            text = f"{_named(guests)} is explained by this."
            self._say(incident.pk, "inhibited", text, **_shown(guests))
        self._active[incident.pk] += len(arrivals)
        incident.quiet_since = None

    def _join_own(self, incident: Incident, firings: Sequence[Firing]) -> None:
        before = self._active[incident.pk]
        if incident.is_over:
            self._reopen(incident, firings)
        elif incident.pk in self._new:
            TURNS.labels("opened").inc()
            self._say(incident.pk, "opened", _told(firings), **_shown(firings))
            incident.notify_at = sooner(incident.notify_at, self._now + group_wait())
        else:
            kind = "joined" if before else "fired_again"
            self._say(incident.pk, kind, _told(firings), **_shown(firings))
            incident.notify_at = sooner(incident.notify_at, self._now + group_interval())
        if before:
            incident.title = f"{incident.rule}: {before + len(firings)} firings"[:300]
        self._raise(incident, _worst([firing.severity for firing in firings]))
        wanted = (firing.playbook for firing in firings if firing.playbook)
        incident.playbook = incident.playbook or next(wanted, "")

    def _reopen(self, incident: Incident, firings: Sequence[Firing]) -> None:
        incident.state = Incident.State.OPEN
        incident.resolved_at = incident.acknowledged_at = None
        incident.acknowledged_by = ""
        incident.reopened_count += 1
        incident.notify_at = self._now + group_wait()
        TURNS.labels("reopened").inc()
        self._say(incident.pk, "reopened", _told(firings), **_shown(firings))

    def _raise(self, incident: Incident, severity: Severity) -> None:
        was = Severity(incident.severity)
        if RANK[severity] <= RANK[was]:
            return
        incident.severity = severity.value
        incident.notify_at = sooner(incident.notify_at, self._now)
        self._say(incident.pk, "severity", f"Severity rises from {was} to {severity}.")

    def _save_members(self) -> None:
        """Write the arriving members. One that has fired in this incident before keeps its row."""
        arrivals = [
            (self._incidents[home], each)
            for home, coming in self._plan.arrivals.items()
            for each in coming
        ]
        keys = [each.subject.key for _, each in arrivals]
        times: dict[tuple[int, str], int] = {}
        if reused := {incident.pk for incident, _ in arrivals} - self._new:
            known = IncidentMember.objects.filter(incident__in=reused, key__in=keys)
            times = {
                (incident, key): count
                for incident, key, count in known.values_list("incident", "key", "times")
            }
        IncidentMember.objects.bulk_create(
            [
                self._member(incident, each, times.get((incident.pk, each.subject.key), 0) + 1)
                for incident, each in arrivals
            ],
            batch_size=_BATCH,
            update_conflicts=True,
            unique_fields=["incident", "key"],
            update_fields=_MEMBER_STATE,
        )

    def _member(self, incident: Incident, arrival: Arrival, times: int) -> IncidentMember:
        firing, subject = arrival.firing, arrival.subject
        return IncidentMember(
            incident=incident,
            key=subject.key,
            group_key=arrival.group.key,
            rule=firing.rule,
            version=firing.version,
            scope_kind=firing.scope.kind,
            scope_name=firing.scope.name,
            site=subject.site,
            severity=firing.severity,
            summary=firing.summary,
            values=plain(firing.values),
            labels=firing.labels,
            playbook=firing.playbook,
            since=firing.since,
            fired_at=firing.at,
            cleared_at=None,
            times=times,
            inhibited_by=arrival.inhibited_by,
            silence_id=arrival.silence,
        )

    def _change(self) -> None:
        """Update members that fire on in another version or severity."""
        rows = [self._rows[key] for key in self._plan.changed]
        for row in rows:
            firing = self._plan.changed[row.key]
            row.version, row.severity = firing.version, firing.severity
            row.summary, row.values = firing.summary, plain(firing.values)
            row.playbook, row.labels = firing.playbook, firing.labels
            self._raise(self._touch(row.incident), firing.severity)
        IncidentMember.objects.bulk_update(
            rows,
            ["version", "severity", "summary", "values", "playbook", "labels"],
            batch_size=_BATCH,
        )

    def _mark_inhibited(self) -> None:
        by_source: dict[str, list[IncidentMember]] = {}
        for key, source in self._plan.inhibited.items():
            by_source.setdefault(source, []).append(self._rows[key])
        for source, rows in by_source.items():
            IncidentMember.objects.filter(pk__in=[row.pk for row in rows]).update(
                inhibited_by=source
            )
            for incident_id, members in by_incident(rows).items():
                who = _named([firing_of(row) for row in members])
                kind = "inhibited" if source else "uninhibited"
                why = f"is explained by {source}" if source else "is explained by nothing any more"
                self._say(incident_id, kind, f"{who} {why}.", count=len(members))
                if not source:
                    self._tell_again(members[0].incident)

    def _mark_silenced(self) -> None:
        by_silence: dict[int | None, list[IncidentMember]] = {}
        for key, silence in self._plan.silenced.items():
            by_silence.setdefault(silence, []).append(self._rows[key])
        for silence, rows in by_silence.items():
            IncidentMember.objects.filter(pk__in=[row.pk for row in rows]).update(silence=silence)
            for incident_id, members in by_incident(rows).items():
                who = _named([firing_of(row) for row in members])
                kind = "silenced" if silence else "unsilenced"
                why = f"is silenced by silence {silence}" if silence else "is silenced no more"
                self._say(incident_id, kind, f"{who} {why}.", silence=silence)
                if not silence:
                    self._tell_again(members[0].incident)

    def _tell_again(self, incident: Incident) -> None:
        touched = self._touch(incident)
        if not touched.is_over:
            touched.notify_at = sooner(touched.notify_at, self._now + group_wait())


def entry(
    incident_id: int, kind: str, text: str, data: dict[str, Any], now: datetime
) -> TimelineEntry:
    return TimelineEntry(
        incident_id=incident_id, kind=kind, text=text, data=plain(data), by=SYSTEM, at=now
    )


def note_members(
    kind: str, verb: str, rows: Mapping[int, Sequence[IncidentMember]], now: datetime
) -> None:
    """Add one entry for each incident, about those of its members that ``rows`` names."""
    TimelineEntry.objects.bulk_create(
        entry(
            incident_id,
            kind,
            f"{_named([firing_of(member) for member in members])} {verb}.",
            {"count": len(members), "members": [each.key for each in members[:_SHOWN]]},
            now,
        )
        for incident_id, members in rows.items()
    )


def mark_quiet(incidents: Iterable[int], now: datetime) -> None:
    """Note since when nothing fires in those of ``incidents`` in which nothing does."""
    firing = IncidentMember.objects.filter(cleared_at=None, dismissed=False)
    Incident.objects.unresolved().filter(pk__in=incidents, quiet_since=None).exclude(
        pk__in=firing.filter(incident__in=incidents).values("incident")
    ).update(quiet_since=now)


def _named(firings: Sequence[Firing]) -> str:
    """Name one firing, or say how many there are and of which kind."""
    first = firings[0]
    if len(firings) == 1:
        return f"{first.rule} on {first.scope}"
    kinds = {firing.scope.kind for firing in firings}
    what = kinds.pop().replace("_", " ") if len(kinds) == 1 else "thing"
    return f"{first.rule} on {len(firings)} {what}s"


def _title(group: Group, firings: Sequence[Firing]) -> str:
    if len(firings) == 1:
        return (firings[0].summary or _named(firings))[:300]
    return f"{_named(firings)} of {group.scope or 'the fleet'}"[:300]


def _told(firings: Sequence[Firing]) -> str:
    return firings[0].summary or _named(firings) if len(firings) == 1 else _named(firings)


def _shown(firings: Sequence[Firing]) -> dict[str, Any]:
    return {
        "count": len(firings),
        "firings": [
            {
                "key": member_key(firing),
                "rule": firing.rule,
                "version": firing.version,
                "scope": {"kind": firing.scope.kind.value, "name": firing.scope.name},
                "severity": firing.severity.value,
                "since": firing.since,
                "values": firing.values,
                "summary": firing.summary,
            }
            for firing in firings[:_SHOWN]
        ],
    }


def _worst(severities: Iterable[Severity]) -> Severity:
    return max(severities, key=RANK.__getitem__)
