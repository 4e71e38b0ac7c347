"""Findings against GPUs, and how far the readings have been looked at."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from fleet.models import Gpu
from telemetry.lemons.rules import RULES, Metric


class LemonFindingQuerySet(models.QuerySet["LemonFinding"]):
    def open(self) -> LemonFindingQuerySet:
        """Findings that hold."""
        return self.filter(ended_at__isnull=True)

    def lemons(self) -> int:
        """Return how many GPUs they are about. One query."""
        found: int = self.aggregate(gpus=models.Count("gpu", distinct=True))["gpus"]
        return found


class LemonFinding(models.Model):
    """A GPU gives less clock, or gets hotter, than its peers under the same load."""

    class Metrics(models.TextChoices):
        HOT_CORE = Metric.HOT_CORE.value, "Hot core"
        HOT_MEMORY = Metric.HOT_MEMORY.value, "Hot memory"
        SLOW_CLOCK = Metric.SLOW_CLOCK.value, "Slow clock"

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, related_name="lemon_findings")
    metric = models.CharField(max_length=20, choices=Metrics.choices)
    since = models.DateTimeField(help_text="Begin of the window with which it was found")
    seen_at = models.DateTimeField(help_text="End of the last window that showed it")
    ended_at = models.DateTimeField(null=True, blank=True)
    score = models.FloatField(help_text="By how many spreads of its peers it is worse, on average")
    own = models.FloatField(help_text="What the GPU had in that window, °C or MHz")
    peers_median = models.FloatField(help_text="What its peers had under the same load")
    peers = models.IntegerField()
    among = models.CharField(max_length=10, help_text="Who they are: of its rack, job, node …")

    objects = LemonFindingQuerySet.as_manager()

    class Meta:
        ordering = ["-score", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["gpu", "metric"],
                condition=Q(ended_at__isnull=True),
                name="lemon_finding_one_open",
            )
        ]

    def __str__(self) -> str:
        return f"{self.gpu} {self.get_metric_display()}"

    @property
    def difference(self) -> float:
        """How much worse than its peers, in :attr:`unit`, above 0."""
        return abs(self.own - self.peers_median)

    @property
    def unit(self) -> str:
        return RULES[Metric(self.metric)].unit


class LemonWatch(models.Model):
    """One row: up to when windows have been looked at."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"until {self.until}"
