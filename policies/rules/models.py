"""Rules: their versions, scopes under way, episodes, faults and replays."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from policies.documents.models import Version
from policies.firings import Severity
from policies.rules.modes import Mode
from policies.scopes import MOST_NAME, Scope, ScopeKind


class RuleVersion(Version):
    """A version of a rule."""


class RuleProgress(models.Model):
    """The phases of a version on those scopes that are pending, firing or clearing."""

    version = models.OneToOneField(
        RuleVersion, on_delete=models.CASCADE, related_name="progress", primary_key=True
    )
    #: of the last evaluation, Unix s
    at = models.FloatField()
    #: by name of the scope: phase, since, fired at, clear since (Unix s or null)
    scopes = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"{self.version}: {len(self.scopes)} scopes"


class RuleEpisode(models.Model):
    """One time that a version fired on one scope, or would have."""

    MODES: ClassVar = [(mode.value, mode.value) for mode in Mode]

    version = models.ForeignKey(RuleVersion, on_delete=models.PROTECT, related_name="episodes")
    #: the rule's name, since episodes are mostly looked for by it
    rule = models.CharField(max_length=100)
    mode = models.CharField(max_length=10, choices=MODES)
    scope_kind = models.CharField(max_length=20)
    scope_name = models.CharField(max_length=MOST_NAME)
    severity = models.CharField(max_length=10, choices=[(s.value, s.value) for s in Severity])
    since = models.DateTimeField()
    fired_at = models.DateTimeField()
    cleared_at = models.DateTimeField(null=True, blank=True)
    summary = models.TextField()
    values = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    #: what it restricts: kind, scope_kind, scope_name, value, lease_s
    restricts = models.JSONField(default=list)
    #: whether it opens an incident, and the playbook of that
    has_incident = models.BooleanField(default=False)
    playbook = models.CharField(max_length=100, blank=True)
    channels = models.JSONField(default=list)
    #: whether incidents and channels have heard that it fired, and that it cleared
    told_fired = models.BooleanField(default=False)
    told_cleared = models.BooleanField(default=False)

    class Meta:
        ordering: ClassVar = ["-fired_at", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["version", "scope_kind", "scope_name"],
                condition=Q(cleared_at__isnull=True),
                name="rule_one_open_episode",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["rule", "-fired_at"], name="rule_episode_by_rule"),
            models.Index(fields=["version", "-fired_at"], name="rule_episode_by_version"),
            models.Index(
                fields=["rule"], condition=Q(cleared_at__isnull=True), name="rule_episode_open"
            ),
            models.Index(
                fields=["id"],
                condition=Q(told_fired=False) | Q(cleared_at__isnull=False, told_cleared=False),
                name="rule_episode_untold",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rule} on {self.scope}"

    @property
    def scope(self) -> Scope:
        return Scope(ScopeKind(self.scope_kind), self.scope_name)


class RuleFault(models.Model):
    """A version that could not be evaluated on some scopes, though their readings are there."""

    version = models.ForeignKey(RuleVersion, on_delete=models.CASCADE, related_name="faults")
    status = models.CharField(max_length=40)
    message = models.CharField(max_length=200)
    count = models.PositiveIntegerField()
    names = models.JSONField(default=list)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["version", "status"], name="rule_fault_once"),
        ]

    def __str__(self) -> str:
        return f"{self.version}: {self.message}"


class RuleReplay(models.Model):
    """A version run over recorded telemetry, beside the one that was active."""

    class States(models.TextChoices):
        WAITING = "waiting", "Waiting"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    version = models.ForeignKey(RuleVersion, on_delete=models.CASCADE, related_name="replays")
    start_at = models.DateTimeField()
    end_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=States.choices, default=States.WAITING)
    by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True)
    result = models.JSONField(null=True, blank=True)
    done_s = models.FloatField(
        default=0.0, db_default=0.0, help_text="So much of its span is replayed, s"
    )

    class Meta:
        ordering: ClassVar = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"replay of {self.version}"

    @property
    def whole_s(self) -> float:
        """The length of its span, s."""
        return (self.end_at - self.start_at).total_seconds()
