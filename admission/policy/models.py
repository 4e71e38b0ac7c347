"""Versions of the admission policy, and where a shadow would have decided otherwise."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from accounts.models import User
from admission.core.cycle.shadow import Otherwise
from admission.jobs.models import Job, Phase
from policies.documents.models import Version

__all__ = ["AdmissionPolicyVersion", "ShadowDecision", "ShadowProgress"]


class AdmissionPolicyVersion(Version):
    """A version of an admission policy. One is active, whatever its name."""

    class Meta(Version.Meta):
        constraints: ClassVar = [
            *Version.Meta.constraints,
            models.UniqueConstraint(
                fields=["state"], condition=Q(state="active"), name="admission_policy_one_active"
            ),
        ]


class ShadowProgress(models.Model):
    """How many cycles a shadow was asked about, and since when."""

    version = models.OneToOneField(
        AdmissionPolicyVersion, on_delete=models.CASCADE, related_name="progress", primary_key=True
    )
    since = models.DateTimeField()
    asked_at = models.DateTimeField(help_text="The last time")
    cycles = models.PositiveIntegerField(default=0)
    took_s = models.FloatField(default=0.0, help_text="Of the last time")
    reconstructed_until = models.DateTimeField(
        null=True, help_text="What it would have decided before is from records; null: not yet"
    )
    reconstructed_step_s = models.FloatField(null=True)

    def __str__(self) -> str:
        return f"{self.version}: {self.cycles} cycles"


class ShadowDecisionQuerySet(models.QuerySet["ShadowDecision"]):
    def visible_to(self, user: User) -> ShadowDecisionQuerySet:
        """Decisions about jobs that ``user`` may see by name."""
        return self.filter(phase__job__in=Job.objects.visible_to(user))


class ShadowDecision(models.Model):
    """A decision of a shadow that differs for one phase, from the first time to the last."""

    KINDS: ClassVar = [(each.value, each.value) for each in Otherwise]

    version = models.ForeignKey(
        AdmissionPolicyVersion, on_delete=models.CASCADE, related_name="decisions"
    )
    phase = models.ForeignKey(Phase, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=20, choices=KINDS)
    decided = models.CharField(max_length=500, help_text="What was decided, the last time")
    otherwise = models.CharField(max_length=500, help_text="What the shadow would have, then")
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    cycles = models.PositiveIntegerField(default=1, help_text="In which it would have")

    objects = ShadowDecisionQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-last_at", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["version", "phase", "kind"], name="shadow_decision_once"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["version", "-last_at"], name="shadow_decision_of"),
            models.Index(fields=["last_at"], name="shadow_decision_age"),
        ]

    def __str__(self) -> str:
        return f"{self.phase}: {self.kind}"
