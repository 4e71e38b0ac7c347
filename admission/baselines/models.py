"""What gangs drew, how warm they were and what their steps and saves took, hour by hour.

No foreign keys: rows outlive racks, projects and jobs, and keep the names that these had.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

__all__ = ["GangHour"]


class GangHour(models.Model):
    """An hour of one attempt in one rack. Null: not known.

    What is of the gang as a whole, its waits and its saves, stands in the rack where most of it
    is, and is null in the others: so each hour of a gang counts once.
    """

    hour = models.DateTimeField(help_text="Its start")
    site = models.CharField(max_length=200)
    rack = models.CharField(max_length=200, help_text="Its name at the site")
    project = models.CharField(max_length=60)
    phase = models.CharField(max_length=60, help_text="As the specification names it")
    attempt_id = models.BigIntegerField()
    causes = ArrayField(
        models.CharField(max_length=60), help_text="What held the gang back; empty: a normal hour"
    )
    power_w = models.FloatField(null=True, help_text="Of a GPU, while it works")
    temp_c = models.FloatField(null=True, help_text="Of a GPU, while it works")
    c_per_w = models.FloatField(null=True, help_text="Above what its cooling zone supplies")
    link_latency_s = models.FloatField(null=True, help_text="Of the links that begin in the rack")
    sync_s = models.FloatField(null=True, help_text="That a step waits for other ranks")
    save_s = models.FloatField(null=True, help_text="That a save takes at most")
    save_bytes_per_s = models.FloatField(null=True, help_text="At least")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["hour"], name="baselines_hour"),
            models.Index(fields=["project", "phase", "hour"], name="baselines_project_phase"),
            models.Index(fields=["attempt_id", "hour"], name="baselines_attempt"),
        ]

    def __str__(self) -> str:
        return f"{self.project}/{self.phase} at {self.site}/{self.rack} {self.hour:%Y-%m-%d %H:%M}"
