"""Memory errors. Xid errors are ``telemetry.models.XidEvent``."""

from __future__ import annotations

from django.db import models

from fleet.models import Gpu


class EccEvent(models.Model):
    """A GPU counted uncorrected memory errors between two readings."""

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, related_name="ecc_events")
    since = models.DateTimeField(help_text="The reading before: they came after it")
    at = models.DateTimeField(help_text="The reading that showed them")
    count = models.BigIntegerField(help_text="How many came in between")
    total = models.BigIntegerField(help_text="What the counter showed: since the driver was loaded")

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [models.UniqueConstraint(fields=["gpu", "at"], name="ecc_event_key")]
        indexes = [models.Index(fields=["-at"], name="ecc_event_at")]

    def __str__(self) -> str:
        return f"{self.gpu}: {self.count} at {self.at:%H:%M:%S}"
