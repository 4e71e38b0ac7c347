"""Where the time of the fleet's GPUs went, by hour and by day.

No foreign keys: rows outlive racks, projects and jobs, and keep the names that these had.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

__all__ = ["AccountedHour", "DayAccount", "HourAccount", "HourRestriction", "HourSteps", "HourWait"]


class AccountedHour(models.Model):
    """An hour of which there is an account."""

    hour = models.DateTimeField(unique=True, help_text="Its start")
    computed_at = models.DateTimeField()
    gpus = models.PositiveIntegerField(help_text="Of the fleet, as it was when it was computed")
    has_restrictions = models.BooleanField(
        default=False, db_default=False, help_text="What restrictions took is told apart"
    )

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H:%M}"


class _Whose(models.Model):
    """Whose GPUs they were; empty: nobody held them."""

    project = models.CharField(max_length=60, blank=True)
    job_class = models.CharField(max_length=60, blank=True)
    phase = models.CharField(max_length=60, blank=True, help_text="As the specification names it")

    class Meta:
        abstract = True


class HourAccount(_Whose):
    """What the time of GPUs of one rack went to in an hour, while one attempt held them or none."""

    hour = models.DateTimeField()
    site = models.CharField(max_length=200)
    rack = models.CharField(max_length=200, help_text="Its name at the site")
    attempt_id = models.BigIntegerField(null=True, help_text="Null: nobody held them")
    us = ArrayField(models.BigIntegerField(), help_text="µs of GPUs by cause, in their order")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["hour", "site", "rack"], name="goodput_hour_rack"),
            models.Index(fields=["project", "hour"], name="goodput_hour_project"),
        ]

    def __str__(self) -> str:
        return f"{self.site}/{self.rack} {self.hour:%Y-%m-%d %H:%M}"


class DayAccount(_Whose):
    """The sum of the hours of one day (UTC), by site."""

    day = models.DateField()
    site = models.CharField(max_length=200)
    us = ArrayField(models.BigIntegerField(), help_text="µs of GPUs by cause, in their order")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["day"], name="goodput_day")]

    def __str__(self) -> str:
        return f"{self.site} {self.day}"


class HourWait(models.Model):
    """Demand of one project that waited in an hour, by the dominant reason."""

    hour = models.DateTimeField()
    project = models.CharField(max_length=60)
    job_class = models.CharField(max_length=60)
    reason = models.CharField(max_length=30, help_text="Token; empty: none was told")
    demand_us = models.BigIntegerField(help_text="GPUs that were waited for, times how long, µs")
    wanted_us = models.BigIntegerField(help_text="Of it, what stood against GPUs that were free")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["hour"], name="goodput_wait_hour")]

    def __str__(self) -> str:
        return f"{self.project} {self.reason} {self.hour:%Y-%m-%d %H:%M}"


class HourRestriction(models.Model):
    """What a restriction took of the time of GPUs in an hour: of one project, or of nobody."""

    hour = models.DateTimeField()
    restriction_id = models.BigIntegerField()
    site = models.CharField(max_length=200)
    project = models.CharField(max_length=60, blank=True, help_text="Empty: nobody held them")
    us = models.BigIntegerField(help_text="µs of GPUs: of a cap what was capped, else drained")
    shared_us = models.BigIntegerField(help_text="Of it, while others asked for the same")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["restriction_id", "hour"], name="goodput_restriction_hour"),
            models.Index(fields=["hour"], name="goodput_hour_restriction"),
        ]

    def __str__(self) -> str:
        return f"{self.restriction_id} {self.hour:%Y-%m-%d %H:%M}"


class HourSteps(models.Model):
    """Iterations of the jobs of one project in an hour, and the FLOPs of those that moved on."""

    hour = models.DateTimeField()
    project = models.CharField(max_length=60)
    job_class = models.CharField(max_length=60)
    moved = models.FloatField(help_text="That moved a model on")
    repeated = models.FloatField(help_text="That had been made before")
    missed = models.FloatField(help_text="That restarts, pauses, caps and throttling took")
    model_flop = models.FloatField(
        default=0.0, db_default=0.0, help_text="That models took, of jobs that state it of a step"
    )
    peak_flop = models.FloatField(
        default=0.0, db_default=0.0, help_text="That their GPUs could have computed meanwhile"
    )
    stated_gpu_s = models.FloatField(
        default=0.0, db_default=0.0, help_text="Their productive time, GPU-seconds"
    )

    class Meta:
        indexes: ClassVar = [models.Index(fields=["hour"], name="goodput_steps_hour")]

    def __str__(self) -> str:
        return f"{self.project} {self.hour:%Y-%m-%d %H:%M}"
