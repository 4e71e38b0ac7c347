"""Objectives, their judgments, and the conditions of each minute."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from accounts.models import User
from admission.jobs.models import Job
from policies.documents.models import Version

__all__ = ["ConditionSample", "Slo", "SloJudgment"]


class SloJudgmentQuerySet(models.QuerySet["SloJudgment"]):
    """Queries of judgments."""

    def visible_to(self, user: User) -> SloJudgmentQuerySet:
        """Judgments of jobs that ``user`` may see by name. The others count, too."""
        return self.filter(job__in=Job.objects.visible_to(user).values("name"))


class Slo(Version):
    """A version of a service level objective. Each is judged by itself."""

    #: up to when events were judged; null: none was
    judged_at = models.DateTimeField(null=True, blank=True)


class SloJudgment(models.Model):
    """The judgment of one event by an objective: good or bad."""

    slo = models.ForeignKey(Slo, on_delete=models.CASCADE, related_name="judgments")
    #: what was judged: "job/phase", with "/attempt" where it is a resume
    event = models.CharField(max_length=300)
    is_good = models.BooleanField()
    at = models.DateTimeField(help_text="When it was decided")
    clock_s = models.FloatField(help_text="Time that counted until then, s")
    limit_s = models.FloatField()
    job = models.CharField(max_length=200)
    phase = models.CharField(max_length=60)
    job_class = models.CharField(max_length=60)
    project = models.CharField(max_length=60)

    objects = SloJudgmentQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-at", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["slo", "event"], name="slo_judges_once"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["slo", "at"], name="slo_judgment_at"),
            models.Index(fields=["at"], name="slo_judgment_age"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {'good' if self.is_good else 'bad'}"


class ConditionSample(models.Model):
    """The facts of one site in one minute; null: not known. Columns are those of ``FACTS``."""

    at = models.DateTimeField(help_text="Start of the minute")
    site = models.CharField(max_length=200)
    power_headroom = models.FloatField(null=True)
    cooling_headroom = models.FloatField(null=True)
    uplink_use = models.FloatField(null=True)
    stale_share = models.FloatField(null=True)

    class Meta:
        ordering: ClassVar = ["at", "site"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["at", "site"], name="slo_sample_once"),
        ]

    def __str__(self) -> str:
        return f"{self.site} at {self.at:%Y-%m-%d %H:%M}"
