"""The last report of each limit on each GPU."""

from __future__ import annotations

from django.db import models

from fleet.models import Node
from headroom.contracts import LimitState


class LimitReport(models.Model):
    """The last report of an agent on one limit on one GPU.

    ``boot_id`` and ``seq`` are those of the batch that said it: a batch that was held up does not
    undo what a later one said.
    """

    STATES = [(state.value, state.value) for state in LimitState]

    agent = models.ForeignKey(
        "telemetry.Agent", on_delete=models.CASCADE, related_name="limit_reports"
    )
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="limit_reports")
    gpu_index = models.SmallIntegerField(
        null=True, help_text="Index of the GPU on its node; null where the node has none"
    )
    limit = models.CharField(max_length=200, help_text="Id of the limit")
    kind = models.CharField(max_length=200)
    state = models.CharField(max_length=20, choices=STATES)
    at = models.DateTimeField(help_text="Since when, by the agent's clock")
    asked = models.FloatField(help_text="W or MHz, as kind says")
    original = models.FloatField(null=True, help_text="In force before")
    applied = models.FloatField(null=True, help_text="In force since, as read back")
    watts_before = models.FloatField(null=True, help_text="Mean power before, W")
    watts_after = models.FloatField(null=True, help_text="Mean power after, W")
    error = models.CharField(max_length=500, blank=True)
    received_at = models.DateTimeField(help_text="When the server received it")
    boot_id = models.CharField(max_length=64)
    seq = models.BigIntegerField()

    class Meta:
        ordering = ["-received_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "node", "limit", "gpu_index"],
                name="limit_report_key",
                nulls_distinct=False,
            )
        ]
        indexes = [
            models.Index(fields=["-received_at", "-id"], name="limit_report_received"),
            models.Index(fields=["limit"], name="limit_report_limit"),
        ]

    def __str__(self) -> str:
        return f"{self.limit} on {self.node} GPU {self.gpu_index}: {self.state}"
