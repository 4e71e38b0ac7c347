"""Actions of people on incidents, silences and channels. The audit log has a line for each."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from accounts import audit
from accounts.models import User
from headroom.numbers import plain
from policies.incidents import follow, notify
from policies.incidents.metrics import TURNS
from policies.incidents.models import Incident, IncidentMember, NotificationChannel, Silence
from policies.incidents.timing import sooner
from policies.incidents.writing import writing

__all__ = [
    "WrongState",
    "acknowledge",
    "assign",
    "close",
    "comment",
    "create_silence",
    "delete_channel",
    "end_silence",
    "mute_member",
    "save_channel",
    "send_test",
]

#: The longest silence, and the longest that one member can be muted.
MAX_SILENCE = timedelta(days=30)


class WrongState(Exception):
    """An incident or a channel is not in a state for it. The message says why, and the way out."""


def _locked(incident: Incident) -> Incident:
    """Return the incident as it is now. Inside of ``writing()``."""
    return Incident.objects.get(pk=incident.pk)


def _unresolved(incident: Incident) -> Incident:
    row = _locked(incident)
    if row.is_over:
        raise WrongState(f"{row.number} is {row.state}: it opens again by itself if it fires again")
    return row


def _record(
    actor: User,
    row: Incident,
    kind: str,
    text: str,
    now: datetime,
    changed: dict[str, Any],
    **data: Any,
) -> None:
    follow.note(row, kind, text, data, actor.get_username(), now)
    audit.record(actor, f"incident.{kind}", row.number, **plain(data) | changed)


def acknowledge(actor: User, incident: Incident, *, now: datetime) -> Incident:
    """Acknowledge an incident: its notifications are no longer repeated. The first one counts."""
    with writing():
        row = _unresolved(incident)
        if row.state == Incident.State.ACKNOWLEDGED:
            return row
        was = audit.state(row)
        row.state = Incident.State.ACKNOWLEDGED
        row.acknowledged_at, row.acknowledged_by = now, actor.get_username()
        row.notify_at = now
        fields = ["state", "acknowledged_at", "acknowledged_by", "notify_at"]
        if not row.assignee:
            row.assignee = actor.get_username()
            fields.append("assignee")
        row.save(update_fields=fields)
        changed = audit.changes(was, audit.state(row))
        text = f"Acknowledged by {row.acknowledged_by}."
        _record(actor, row, "acknowledged", text, now, changed)
        return row


def assign(actor: User, incident: Incident, assignee: str, *, now: datetime) -> Incident:
    """Assign it to a user, by name; "" to nobody. Raises ValidationError for an unknown user."""
    if assignee and not User.objects.filter(username=assignee, is_active=True).exists():
        raise ValidationError({"assignee": f"there is no active user {assignee!r}"})
    with writing():
        row = _unresolved(incident)
        if row.assignee == assignee:
            return row
        was = audit.state(row)
        before, row.assignee = row.assignee, assignee
        row.save(update_fields=["assignee"])
        text = f"Assigned to {assignee}." if assignee else "Assigned to nobody."
        changed = audit.changes(was, audit.state(row))
        _record(actor, row, "assigned", text, now, changed, before=before, assignee=assignee)
        return row


def comment(actor: User, incident: Incident, text: str, *, now: datetime) -> Incident:
    """Add a comment to the timeline; to that of a resolved incident as well."""
    with writing():
        row = _locked(incident)
        follow.note(row, "comment", text, {}, actor.get_username(), now)
        told = audit.changes(None, {"text": text})
        audit.record(actor, "incident.comment", row.number, **told)
        return row


def close(actor: User, incident: Incident, reason: str, *, now: datetime) -> Incident:
    """Close it by hand. Members that still fire count no more until they have cleared once.

    It is resolved at once where nothing fires, runs or is in force; else it is closed, its runs
    end, and it is resolved when that is so.
    """
    with writing():
        row = _unresolved(incident)
        was = audit.state(row)
        firing = row.members.filter(cleared_at=None).update(dismissed=True)
        goes_on = firing or follow.kept_open([row.pk], now)
        row.state = Incident.State.CLOSED if goes_on else Incident.State.RESOLVED
        row.resolved_at = row.notify_at = now
        row.resolved_by, row.resolution = actor.get_username(), reason
        row.quiet_since = row.quiet_since or now
        row.save(
            update_fields=[
                "state",
                "resolved_at",
                "resolved_by",
                "resolution",
                "notify_at",
                "quiet_since",
            ]
        )
        TURNS.labels("closed").inc()
        text = f"Closed by {row.resolved_by}: {reason}"
        changed = audit.changes(was, audit.state(row))
        _record(actor, row, "closed", text, now, changed, reason=reason, still_firing=firing)
        return row


def mute_member(
    actor: User, member: IncidentMember, until: datetime | None, reason: str, *, now: datetime
) -> IncidentMember:
    """Silence one member of an incident up to a time, and not the others; None: end that."""
    if until is not None and not now < until <= now + MAX_SILENCE:
        raise ValidationError(
            {"until": f"give a time from now up to {MAX_SILENCE.days} days ahead"}
        )
    with writing():
        row = IncidentMember.objects.select_related("incident").get(pk=member.pk)
        was = audit.state(row)
        row.muted_until, row.muted_reason = until, reason
        row.muted_by = actor.get_username() if until else ""
        row.save(update_fields=["muted_until", "muted_by", "muted_reason"])
        _look_again(row.incident, until or now)
        kind = "member_silenced" if until else "member_heard"
        what = f"silenced until {until:%Y-%m-%d %H:%M} UTC: {reason}" if until else "heard again"
        data = {"member": row.key, "until": until, "reason": reason}
        changed = audit.changes(was, audit.state(row))
        _record(actor, row.incident, kind, f"{row.key} is {what}", now, changed, **data)
        return row


def _look_again(incident: Incident, at: datetime) -> None:
    if not incident.is_over:
        incident.notify_at = sooner(incident.notify_at, at)
        incident.save(update_fields=["notify_at"])


def create_silence(
    actor: User,
    *,
    matchers: list[str],
    reason: str,
    starts_at: datetime,
    expires_at: datetime,
    now: datetime,
) -> Silence:
    """Silence notifications of firings that match. Raises ValidationError."""
    if not matchers:
        raise ValidationError({"matchers": "give at least one: an empty list would match all"})
    if not max(starts_at, now) < expires_at <= max(starts_at, now) + MAX_SILENCE:
        raise ValidationError(
            {
                "expires_at": "give a time after now and after starts_at, "
                f"at most {MAX_SILENCE.days} days after"
            }
        )
    with writing():
        silence = Silence(
            matchers=matchers,
            reason=reason,
            author=actor.get_username(),
            created_at=now,
            starts_at=starts_at,
            expires_at=expires_at,
        )
        silence.full_clean()
        silence.save()
        audit.record(
            actor,
            "silence.create",
            str(silence.pk),
            matchers=matchers,
            reason=reason,
            starts_at=starts_at.isoformat(),
            expires_at=expires_at.isoformat(),
            **audit.changes(None, audit.state(silence)),
        )
        follow.mark_silenced(now=now)
        return silence


def end_silence(actor: User, silence: Silence, *, now: datetime) -> Silence:
    """End a silence before its time. One that is over stays as it is."""
    with writing():
        row = Silence.objects.get(pk=silence.pk)
        if row.expires_at <= now:
            return row
        was = audit.state(row)
        row.starts_at, row.expires_at = min(row.starts_at, now), now
        row.save(update_fields=["starts_at", "expires_at"])
        told = audit.changes(was, audit.state(row))
        audit.record(actor, "silence.end", str(row.pk), **told)
        follow.mark_silenced(now=now)
        return row


def save_channel(actor: User, channel: NotificationChannel, **given: Any) -> None:
    """Add ``channel``, or change what is ``given`` of one that is there.

    Raises IntegrityError where another one has its name.
    """
    # Somebody has looked at it: what failed before is tried again.
    given |= {"failures": 0, "not_before": None, "last_error": ""}
    is_new = channel.pk is None
    before = None if is_new else audit.state(channel)
    for name, value in given.items():
        setattr(channel, name, value)
    with transaction.atomic():
        channel.save(update_fields=None if is_new else given)
        _record_channel(
            actor, "create" if is_new else "change", channel, before, audit.state(channel)
        )


def delete_channel(actor: User, channel: NotificationChannel) -> None:
    """Delete a channel, with what waits for it and what became of what it was told."""
    with transaction.atomic():
        _record_channel(actor, "delete", channel, audit.state(channel), None)
        channel.delete()


def send_test(actor: User, channel: NotificationChannel, *, now: datetime) -> None:
    """Queue a test message on a channel. Raises WrongState where it is switched off."""
    if not channel.enabled:
        raise WrongState(f"{channel.name} is switched off: switch it on first.")
    body = f"Asked for by {actor.get_username()}. Nothing is wrong."
    key = f"headroom-test-{channel.pk}-{now.timestamp():.6f}"
    with transaction.atomic():
        notify.send([channel.name], "Test message of Headroom", body, key=key, now=now)
        audit.record(actor, "channel.test", channel.name, kind=channel.kind)


def _record_channel(
    actor: User,
    action: str,
    channel: NotificationChannel,
    before: audit.State | None,
    after: audit.State | None,
) -> None:
    """Record a change of a channel in the audit log, with its target and secret masked.

    The address that a channel sends to is often a secret itself.
    """
    told = audit.changes(_masked(before), _masked(after))
    audit.record(actor, f"channel.{action}", channel.name, kind=channel.kind, **told)


def _masked(state: audit.State | None) -> audit.State | None:
    return None if state is None else audit.masked(state, "target")
