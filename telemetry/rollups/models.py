"""Marks of readings not rolled up yet, the progress of roll-ups, and the carriers of jobs."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class RollupMark(models.Model):
    """Readings were stored that a roll-up does not have yet.

    Written in the transaction that stores the readings, and never changed: a reading that comes
    while its bucket is computed has a mark of its own, which stays.
    """

    source = models.CharField(max_length=63, help_text="The sample table")
    width_s = models.IntegerField(help_text="Of the bucket: 60 or 3600")
    bucket = models.DateTimeField(help_text="Its start")
    blocks = ArrayField(
        models.IntegerField(), null=True, help_text="Ids divided by 1,024; null: all"
    )
    noted_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["source", "width_s", "bucket"], name="rollup_mark_bucket")]

    def __str__(self) -> str:
        return f"{self.source} {self.width_s} s {self.bucket:%Y-%m-%d %H:%M}"


class RollupProgress(models.Model):
    """Up to where the roll-ups of one sample table are complete, but for late readings."""

    source = models.CharField(max_length=63)
    width_s = models.IntegerField()
    done_until = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "width_s"], name="rollup_progress_key")
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.width_s} s until {self.done_until:%Y-%m-%d %H:%M}"


class JobCarrier(models.Model):
    """The GPUs that carried a job within one hour. No foreign keys: rows outlive GPUs and jobs."""

    job_id = models.BigIntegerField()
    hour = models.DateTimeField()
    gpu_ids = ArrayField(models.IntegerField())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job_id", "hour"], name="job_carrier_key")]

    def __str__(self) -> str:
        return f"job {self.job_id} at {self.hour:%Y-%m-%d %H}: {len(self.gpu_ids)} GPUs"
