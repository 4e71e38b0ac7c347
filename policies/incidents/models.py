"""Incidents with their members and timeline, silences, and notifications on their way out."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from accounts.visibility import Visibility
from policies.firings import Severity
from policies.incidents.matchers import BadMatcher, Matcher, parse_matchers
from policies.scopes import MOST_NAME, Scope, ScopeKind

__all__ = [
    "RANK",
    "SCOPE_KINDS",
    "SEVERITIES",
    "Delivery",
    "Incident",
    "IncidentMember",
    "NotificationChannel",
    "Silence",
    "TimelineEntry",
]

SEVERITIES = [(each.value, each.value) for each in Severity]
SCOPE_KINDS = [(each.value, each.value) for each in ScopeKind]
#: From the least to the worst.
RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


class IncidentQuerySet(models.QuerySet["Incident"]):
    def seen_by(self, visibility: Visibility) -> IncidentQuerySet:
        """Those that the reader may see: not about a job that is hidden from them."""
        return self.filter(visibility.seen_rows())

    def unresolved(self) -> IncidentQuerySet:
        """Incidents that somebody may still have to look at."""
        return self.exclude(state__in=Incident.OVER)


class Incident(models.Model):
    """Firings that belong together, from the first until all have been quiet for a while."""

    class State(models.TextChoices):
        OPEN = "open", "Open"
        ACKNOWLEDGED = "acknowledged", "Acknowledged"
        #: All has cleared, its runs are over, and what they restricted is given back.
        RESOLVED = "resolved", "Resolved"
        #: A person closed it while something fired or was in force: that counts no more in it.
        CLOSED = "closed", "Closed"

    #: Nobody has to look at it any more.
    OVER = (State.RESOLVED, State.CLOSED)

    title = models.CharField(max_length=300)
    group_key = models.CharField(max_length=750, help_text="What its firings have in common")
    rule = models.CharField(max_length=300)
    severity = models.CharField(max_length=8, choices=SEVERITIES)
    state = models.CharField(max_length=12, choices=State.choices, default=State.OPEN)
    site = models.CharField(max_length=200, blank=True)
    scope_kind = models.CharField(max_length=12, choices=SCOPE_KINDS)
    scope_name = models.CharField(max_length=MOST_NAME)
    playbook = models.CharField(max_length=200, blank=True, help_text="What its rule wants to run")
    opened_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=200, blank=True)
    assignee = models.CharField(max_length=200, blank=True)
    quiet_since = models.DateTimeField(
        null=True, blank=True, help_text="Since when none of its members fires"
    )
    resolved_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was resolved, or closed by a person"
    )
    resolved_by = models.CharField(max_length=200, blank=True, help_text="Empty: by itself")
    resolution = models.TextField(blank=True, help_text="Why somebody closed it")
    reopened_count = models.PositiveIntegerField(default=0)
    notify_at = models.DateTimeField(
        null=True, blank=True, help_text="When channels are to be looked at next"
    )

    objects = IncidentQuerySet.as_manager()

    class Meta:
        ordering = ["-opened_at", "-id"]
        constraints = [
            # Two processes that see the same firing at once cannot open two.
            models.UniqueConstraint(
                fields=["group_key"],
                condition=~Q(state__in=["resolved", "closed"]),
                name="incident_one_per_group",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["resolved", "closed"], resolved_at__isnull=False)
                | (~Q(state__in=["resolved", "closed"]) & Q(resolved_at__isnull=True)),
                name="incident_resolved_has_time",
            ),
        ]
        indexes = [
            models.Index(fields=["-opened_at", "-id"], name="incident_opened"),
            models.Index(fields=["group_key", "-resolved_at"], name="incident_group"),
            models.Index(
                fields=["notify_at"], condition=Q(notify_at__isnull=False), name="incident_notify"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.number} {self.title}"

    @property
    def number(self) -> str:
        """The number by which people call it."""
        return f"INC-{self.pk}"

    @property
    def is_over(self) -> bool:
        return self.state in self.OVER

    @property
    def scope(self) -> Scope:
        """The scope of its first firing, or the common one where several came at once."""
        return Scope(ScopeKind(self.scope_kind), self.scope_name)


class IncidentMember(models.Model):
    """One rule on one scope, within an incident. It may fire several times there."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="members")
    key = models.CharField(max_length=1000, help_text="Tells the firing from all others")
    group_key = models.CharField(max_length=750, help_text="Of the group that is its own")
    rule = models.CharField(max_length=300)
    version = models.PositiveIntegerField()
    scope_kind = models.CharField(max_length=12, choices=SCOPE_KINDS)
    scope_name = models.CharField(max_length=MOST_NAME)
    site = models.CharField(max_length=200, blank=True)
    severity = models.CharField(max_length=8, choices=SEVERITIES)
    summary = models.TextField(blank=True)
    values = models.JSONField(default=dict, help_text="What its condition looked at, when it fired")
    labels = models.JSONField(default=dict)
    playbook = models.CharField(max_length=200, blank=True)
    since = models.DateTimeField(help_text="Since when its condition holds")
    fired_at = models.DateTimeField(help_text="When it had held for long enough")
    cleared_at = models.DateTimeField(null=True, blank=True)
    times = models.PositiveIntegerField(default=1, help_text="How often it has fired here")
    inhibited_by = models.CharField(
        max_length=1000, blank=True, help_text="Key of the firing that explains it"
    )
    silence = models.ForeignKey(
        "Silence", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    muted_until = models.DateTimeField(null=True, blank=True)
    muted_by = models.CharField(max_length=200, blank=True)
    muted_reason = models.CharField(max_length=500, blank=True)
    handed_over = models.BooleanField(
        default=False, help_text="The policy loop knows of it, and runs its playbook"
    )
    dismissed = models.BooleanField(
        default=False, help_text="Its incident was closed while it fired; it counts no more"
    )

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["incident", "key"], name="incident_member_key"),
            models.UniqueConstraint(
                fields=["key"],
                condition=Q(cleared_at__isnull=True),
                name="incident_member_fires_once",
            ),
        ]

    def __str__(self) -> str:
        return self.key


class TimelineEntry(models.Model):
    """One thing that happened in an incident. Rows are never changed: a trigger sees to it."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="timeline")
    at = models.DateTimeField()
    kind = models.CharField(max_length=40, help_text="A stable token, such as opened")
    by = models.CharField(max_length=200, help_text="User name, or 'system'")
    text = models.TextField()
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["at", "id"]
        indexes = [models.Index(fields=["incident", "at", "id"], name="timeline_incident_at")]
        verbose_name_plural = "timeline entries"

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.kind} {self.text}"


def check_matchers(value: object) -> None:
    """Refuse matchers that :func:`parse_matchers` refuses. A validator of model fields."""
    try:
        parse_matchers(value)
    except BadMatcher as error:
        raise ValidationError(str(error)) from error


class SilenceQuerySet(models.QuerySet["Silence"]):
    def active(self, now: datetime) -> SilenceQuerySet:
        """Silences in force at ``now``."""
        return self.filter(starts_at__lte=now, expires_at__gt=now)


class Silence(models.Model):
    """For a while, nobody is told of firings that match. They are still recorded and acted upon."""

    #: The most and the least time before its end at which its author's channels hear of it.
    WARN_AT_MOST = timedelta(minutes=15)
    WARN_SHARE = 0.1

    matchers = models.JSONField(validators=[check_matchers])
    author = models.CharField(max_length=200)
    reason = models.CharField(max_length=500)
    created_at = models.DateTimeField()
    starts_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    warned_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = SilenceQuerySet.as_manager()

    class Meta:
        ordering = ["-starts_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(expires_at__gte=models.F("starts_at")), name="silence_ends_after_start"
            )
        ]
        indexes = [models.Index(fields=["expires_at"], name="silence_expires")]

    def __str__(self) -> str:
        return f"silence {self.pk} of {self.author}"

    @property
    def parsed(self) -> tuple[Matcher, ...]:
        return parse_matchers(self.matchers)

    @property
    def warn_at(self) -> datetime:
        """When channels are warned of its end: a tenth of its length before, at most 15 min."""
        length = self.expires_at - self.starts_at
        return self.expires_at - min(self.WARN_AT_MOST, self.WARN_SHARE * length)


class NotificationChannelQuerySet(models.QuerySet["NotificationChannel"]):
    def enabled(self) -> NotificationChannelQuerySet:
        return self.filter(enabled=True)

    def failing(self) -> NotificationChannelQuerySet:
        """Those on which the last sending failed."""
        return self.enabled().exclude(last_error="")


class NotificationChannel(models.Model):
    """Where notifications go."""

    class Kind(models.TextChoices):
        EMAIL = "email", "Email"
        WEBHOOK = "webhook", "Webhook"
        SLACK = "slack", "Slack"
        PAGERDUTY = "pagerduty", "PagerDuty"
        ALERTMANAGER = "alertmanager", "Alertmanager"

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    target = models.CharField(
        max_length=1000, blank=True, help_text="An address: URL, or email addresses with commas"
    )
    secret = models.CharField(
        max_length=500,
        blank=True,
        help_text="Webhook: key of signatures. PagerDuty: routing key. Alertmanager: bearer token",
    )
    min_severity = models.CharField(
        max_length=8, choices=SEVERITIES, default=Severity.WARNING.value
    )
    matchers = models.JSONField(default=list, blank=True, validators=[check_matchers])
    enabled = models.BooleanField(default=True)
    send_resolved = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    failures = models.PositiveIntegerField(default=0, help_text="Failed sendings in a row")
    not_before = models.DateTimeField(
        null=True, blank=True, help_text="After failures nothing is sent before this"
    )
    last_error = models.CharField(max_length=500, blank=True)

    objects = NotificationChannelQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def parsed(self) -> tuple[Matcher, ...]:
        return parse_matchers(self.matchers)


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def seen_by(self, visibility: Visibility) -> DeliveryQuerySet:
        """Those that the reader may see: not of an incident that is hidden from them."""
        seen = Incident.objects.seen_by(visibility).order_by()
        return self if visibility.sees_all else self.filter(Q(incident=None) | Q(incident__in=seen))

    def waiting(self) -> DeliveryQuerySet:
        return self.filter(state=Delivery.State.QUEUED)


class Delivery(models.Model):
    """One notification on one channel: the outbox. Its content is as it was when it was queued."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    channel = models.ForeignKey(
        NotificationChannel, on_delete=models.CASCADE, related_name="deliveries"
    )
    incident = models.ForeignKey(
        Incident, on_delete=models.CASCADE, null=True, related_name="deliveries"
    )
    key = models.CharField(max_length=200, help_text="The same for every try: idempotency key")
    event = models.CharField(max_length=20)
    subject = models.CharField(max_length=300)
    content = models.JSONField(default=dict, help_text="What is told, before it takes a form")
    fingerprint = models.CharField(max_length=64, blank=True, help_text="Digest of what it tells")
    state = models.CharField(max_length=8, choices=State.choices, default=State.QUEUED)
    attempts = models.PositiveIntegerField(default=0)
    queued_at = models.DateTimeField()
    next_at = models.DateTimeField(help_text="Not tried before this")
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        ordering = ["-queued_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["channel", "key"], name="delivery_once"),
        ]
        indexes = [
            models.Index(
                fields=["next_at", "id"], condition=Q(state="queued"), name="delivery_waiting"
            ),
            models.Index(fields=["incident", "channel", "-id"], name="delivery_of_incident"),
        ]
        verbose_name_plural = "deliveries"

    def __str__(self) -> str:
        return f"{self.event} on {self.channel_id}: {self.subject}"
