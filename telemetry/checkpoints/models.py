"""The latest checkpoint of each job at each site."""

from __future__ import annotations

from django.db import models

from fleet.models import Site

__all__ = ["CheckpointFact"]


class CheckpointFact(models.Model):
    """What is known of the checkpoints of one job in the store of one site.

    ``step`` and what belongs to it are null where none counts there, the lag where it is the store
    at the loop, ``lag_steps`` and ``lag_s`` where there is nothing to resume from.
    """

    job = models.CharField(max_length=200, help_text="Name of the job")
    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="checkpoint_facts")
    run = models.CharField(max_length=128, help_text="The training run")
    lease_epoch = models.BigIntegerField(help_text="Start of the run for which this was told")
    epoch = models.BigIntegerField(null=True, help_text="Start of the run that saved it")
    step = models.BigIntegerField(null=True, help_text="The last step that is in it")
    saved_at = models.DateTimeField(null=True)
    verified_at = models.DateTimeField(
        null=True, help_text="When all of it had been read there, by the clock of the store"
    )
    bytes = models.BigIntegerField(null=True)
    digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of its manifest")
    lag_checkpoints = models.BigIntegerField(null=True, help_text="Behind the store at the loop")
    lag_steps = models.BigIntegerField(null=True)
    lag_s = models.FloatField(null=True)
    lag_bytes = models.BigIntegerField(null=True)
    sent_bytes_per_s = models.FloatField(
        null=True, help_text="Measured when bytes went there last, with what was read back"
    )
    told_at = models.DateTimeField(help_text="By the clock of the machine that told")
    received_at = models.DateTimeField(help_text="When the server received it")

    class Meta:
        ordering = ["job", "site__name"]
        constraints = [
            models.UniqueConstraint(fields=["job", "site"], name="checkpoint_fact_key"),
        ]

    def __str__(self) -> str:
        return f"{self.job} at {self.site}: {self.run} at step {self.step}"
