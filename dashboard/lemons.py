"""Lemons in words, and the list of them."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from dashboard import units
from fleet.models import Gpu
from telemetry.lemons.models import LemonFinding
from telemetry.lemons.rules import Metric

_AMONG = {
    "rack": "in its rack",
    "zone": "in its cooling zone",
    "site": "at its site",
    "job": "on its job",
    "node": "on its node",
}


@dataclass(frozen=True, slots=True)
class Lemon:
    """A finding and its sentence, which goes on from the GPU's name."""

    finding: LemonFinding
    sentence: str

    @property
    def words(self) -> str:
        """The symptom, in two words."""
        return self.finding.get_metric_display().lower()


def lemon(finding: LemonFinding) -> Lemon:
    """Return ``finding`` in words."""
    return Lemon(finding, _sentence(finding))


def of_gpu(gpu: Gpu) -> list[Lemon]:
    """Return the open findings on a GPU, the worst first."""
    return [lemon(finding) for finding in LemonFinding.objects.open().filter(gpu=gpu)]


def listed(*, ended: bool) -> QuerySet[LemonFinding]:
    """Return open findings, the worst first; or ended ones, the newest first."""
    findings = LemonFinding.objects.select_related("gpu__node__rack__site", "gpu__model")
    if ended:
        return findings.filter(ended_at__isnull=False).order_by("-ended_at", "-pk")
    return findings.filter(ended_at__isnull=True).order_by("-score", "pk")


def _sentence(finding: LemonFinding) -> str:
    peers = f"{units.count(finding.peers, 'peer')} {_AMONG[finding.among]} at the same load"
    off = units.number(finding.difference)
    match Metric(finding.metric):
        case Metric.HOT_CORE:
            return f"runs {off} °C hotter than {peers}"
        case Metric.HOT_MEMORY:
            return f"has memory {off} °C hotter than {peers}"
        case Metric.SLOW_CLOCK:
            share = units.percent(finding.difference / finding.peers_median)
            return f"runs {off} MHz ({share}) slower than {peers}"
