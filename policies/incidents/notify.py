"""Queueing notifications: those that rules, playbooks and people send, and those of incidents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db.models import Prefetch

from policies.firings import Severity
from policies.incidents import follow
from policies.incidents.channels.alertmanager import RENEW
from policies.incidents.channels.content import Content, Event, Told, clip
from policies.incidents.matchers import Subject, Subjects
from policies.incidents.models import (
    RANK,
    Delivery,
    Incident,
    IncidentMember,
    NotificationChannel,
    Silence,
)
from policies.incidents.notices import Last, Situation, event_now, fingerprint
from policies.incidents.rows import subject_of_row
from policies.incidents.writing import writing

__all__ = ["UnknownChannel", "queue_due", "send", "warn_of_silences"]

#: Incidents of one round; the rest comes with the next.
_ROUND = 200
#: Firings that a notification names.
_SHOWN = 20
_SUBJECT = 300
_BODY = 10_000


class UnknownChannel(LookupError):
    """No notification channel has this name."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        super().__init__(
            f"there is no notification channel {', '.join(map(repr, self.names))}: "
            "see /api/v1/notification-channels"
        )


def send(
    channels: Sequence[str],
    subject: str,
    body: str,
    incident: Incident | int | None = None,
    *,
    key: str,
    now: datetime,
    severity: Severity = Severity.INFO,
) -> int:
    """Queue a message on each of ``channels``, by name. Return how many are new.

    ``key`` tells the message from all others: called again with it, nothing is queued twice. Raises
    :class:`UnknownChannel` before anything is queued. One that is switched off is passed over.
    """
    found = list(NotificationChannel.objects.filter(name__in=channels))
    if missing := set(channels) - {channel.name for channel in found}:
        raise UnknownChannel(missing)
    row = Incident.objects.filter(pk=incident).first() if isinstance(incident, int) else incident
    content = Content(
        event=Event.MESSAGE,
        key=key,
        group=_group(row) if row else f"headroom-{key}",
        title=clip(subject, _SUBJECT),
        severity=severity.value,
        at=now.isoformat(),
        body=clip(body, _BODY),
        **(_facts(row) if row else {}),
    )
    return _queue([_delivery(each, row, content, now) for each in found if each.enabled])


def _queue(rows: Sequence[Delivery]) -> int:
    before = Delivery.objects.filter(
        channel__in=[row.channel_id for row in rows], key__in=[row.key for row in rows]
    ).count()
    Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows) - before


def _delivery(
    channel: NotificationChannel,
    incident: Incident | None,
    content: Content,
    now: datetime,
    digest: str = "",
) -> Delivery:
    return Delivery(
        channel=channel,
        incident=incident,
        key=clip(content.key, 200),
        event=content.event.value,
        subject=clip(content.title, _SUBJECT),
        content=msgspec.to_builtins(content),
        fingerprint=digest,
        queued_at=now,
        next_at=now,
    )


# --- What incidents call for ---------------------------------------------------------------------


def queue_due(*, now: datetime) -> int:
    """Queue the notifications of incidents that are due, and set when to look at each again.

    Returns how many notifications were queued.
    """
    if not Incident.objects.filter(notify_at__lte=now).exists():
        return 0
    with writing():
        follow.mark_silenced(now=now)
        showing = IncidentMember.objects.filter(
            cleared_at=None, dismissed=False, inhibited_by="", silence=None
        ).order_by("id")
        due = list(
            Incident.objects.filter(notify_at__lte=now)
            .order_by("notify_at", "id")
            .prefetch_related(Prefetch("members", showing, to_attr="showing"))[:_ROUND]
        )
        channels = list(NotificationChannel.objects.enabled())
        told = _last_told(due)
        rows: list[Delivery] = []
        for incident in due:
            view = _View(incident, now)
            rows += [
                row
                for channel in channels
                if (row := view.delivery(channel, told.get((incident.pk, channel.pk))))
            ]
            incident.notify_at = view.next_look(channels)
        Incident.objects.bulk_update(due, ["notify_at"])
        return _queue(rows)


@dataclass(frozen=True)
class _Told:
    last: Last
    #: its place among all that the channel was told of the incident, from 1: the end of its key
    number: int


def _last_told(incidents: Sequence[Incident]) -> dict[tuple[int, int], _Told]:
    """Return the last notification that each channel had of each incident. One query."""
    rows = (
        Delivery.objects.filter(incident__in=incidents)
        .exclude(event=Event.MESSAGE.value)
        .order_by("incident_id", "channel_id", "-id")
        .distinct("incident_id", "channel_id")
    )
    return {
        (row.incident_id or 0, row.channel_id): _Told(
            Last(Event(row.event), row.fingerprint, row.queued_at),
            int(row.key.rpartition(".")[2]),
        )
        for row in rows
    }


class _View:
    """One incident, as channels see it."""

    def __init__(self, incident: Incident, now: datetime) -> None:
        self._incident = incident
        self._now = now
        members: list[IncidentMember] = incident.showing  # type: ignore[attr-defined]
        self._muted_until = [
            each.muted_until for each in members if each.muted_until and each.muted_until > now
        ]
        self._members = [
            each for each in members if not (each.muted_until and each.muted_until > now)
        ]
        self._subjects = Subjects([subject_of_row(each) for each in self._members])

    def delivery(self, channel: NotificationChannel, told: _Told | None) -> Delivery | None:
        """Return the notification that is due on ``channel`` now, if any."""
        members = self._seen_by(channel)
        # Opened again, it is news to whoever has not heard that it was over.
        worth = f"{self._incident.severity} {self._incident.reopened_count}"
        digest = fingerprint(self._incident.state, worth, [each.key for each in members])
        event = event_now(
            Situation(self._incident.state, bool(members), digest),
            told.last if told else None,
            now=self._now,
            repeat=_repeat(channel),
            renews=_renews(channel),
        )
        if event is None or (event is Event.RESOLVED and not channel.send_resolved):
            return None
        number = told.number + 1 if told else 1
        content = self._content(channel, event, members, number)
        return _delivery(channel, self._incident, content, self._now, digest)

    def next_look(self, channels: Iterable[NotificationChannel]) -> datetime | None:
        """Return when there may be something to tell again; None: not before something happens."""
        if self._incident.is_over:
            return None
        waits = [_repeat(channel) for channel in channels] or [_long()]
        due = self._now + min(waits)
        return min([due, *self._muted_until])

    def _seen_by(self, channel: NotificationChannel) -> list[IncidentMember]:
        if RANK[Severity(self._incident.severity)] < RANK[Severity(channel.min_severity)]:
            return []
        matching = self._subjects.matching(channel.parsed).tolist()
        return [each for each, seen in zip(self._members, matching, strict=True) if seen]

    def _content(
        self,
        channel: NotificationChannel,
        event: Event,
        members: Sequence[IncidentMember],
        number: int,
    ) -> Content:
        group = _group(self._incident)
        return Content(
            event=event,
            key=f"{group}.{channel.pk}.{number}",
            group=group,
            title=self._incident.title,
            severity=self._incident.severity,
            at=self._now.isoformat(),
            count=len(members),
            firings=tuple(_told(each) for each in members[:_SHOWN]),
            **_facts(self._incident),
        )


def _group(incident: Incident) -> str:
    """Return a name that identifies the incident, also among other installations."""
    return f"headroom-{incident.number}-{int(incident.opened_at.timestamp())}"


def _facts(incident: Incident) -> dict[str, Any]:
    return {
        "incident": incident.number,
        "state": incident.state,
        "rule": incident.rule,
        "site": incident.site,
        "scope_kind": incident.scope_kind,
        "scope": incident.scope_name,
        "opened_at": incident.opened_at.isoformat(),
        "acknowledged_by": incident.acknowledged_by,
        "assignee": incident.assignee,
        "resolved_at": incident.resolved_at.isoformat() if incident.resolved_at else "",
        "resolution": incident.resolution,
        "url": f"{settings.PUBLIC_URL}/incidents/{incident.number}" if settings.PUBLIC_URL else "",
    }


def _told(member: IncidentMember) -> Told:
    return Told(
        rule=member.rule,
        scope_kind=member.scope_kind,
        scope=member.scope_name,
        severity=member.severity,
        summary=member.summary,
        since=member.since.isoformat(),
        values=member.values,
    )


def _renews(channel: NotificationChannel) -> bool:
    return channel.kind == NotificationChannel.Kind.ALERTMANAGER


def _long() -> timedelta:
    return timedelta(hours=settings.INCIDENT_REPEAT_H)


def _repeat(channel: NotificationChannel) -> timedelta:
    return min(RENEW, _long()) if _renews(channel) else _long()


# --- Silences that are about to end --------------------------------------------------------------


def warn_of_silences(*, now: datetime) -> int:
    """Warn, once, of silences that end soon. Return how many were warned of.

    Told are the channels that will hear of what the silence keeps quiet now, if it just ends, and
    the timelines of those incidents.
    """
    ending = Silence.objects.active(now).filter(
        warned_at=None, expires_at__lte=now + Silence.WARN_AT_MOST
    )
    count = 0
    for silence in [each for each in ending if each.warn_at <= now]:
        with writing():
            # Another worker may have been faster.
            if Silence.objects.filter(pk=silence.pk, warned_at=None).update(warned_at=now):
                _warn(silence, now)
                count += 1
    return count


def _warn(silence: Silence, now: datetime) -> None:
    follow.mark_silenced(now=now)
    members = list(
        IncidentMember.objects.filter(
            silence=silence, cleared_at=None, dismissed=False, inhibited_by=""
        ).select_related("incident")
    )
    minutes = max(1, round((silence.expires_at - now).total_seconds() / 60))
    subject = f"Silence {silence.pk} of {silence.author} ends in {minutes} min"
    body = (
        f"It keeps {len(members)} firings quiet: {', '.join(silence.matchers)}. "
        f"Reason: {silence.reason}. Make a new silence if that still holds."
    )
    subjects = [subject_of_row(each) for each in members]
    names = [
        channel.name
        for channel in NotificationChannel.objects.enabled()
        if _would_hear(channel, subjects)
    ]
    send(names, subject, body, key=f"headroom-silence-{silence.pk}-warning", now=now)
    for incident in {each.incident_id: each.incident for each in members}.values():
        follow.note(incident, "silence_ends", f"{subject}.", {"silence": silence.pk}, "system", now)


def _would_hear(channel: NotificationChannel, subjects: Sequence[Subject]) -> bool:
    lowest = RANK[Severity(channel.min_severity)]
    loud = [each for each in subjects if RANK[each.severity] >= lowest]
    return bool(Subjects(loud).matching(channel.parsed).any())
