"""Curtailments: what a grid asked of a site, what that would cost, and what was kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from admission.core.curtailment.cost import SURE
from policies.restrictions.models import Restriction

__all__ = ["Curtailment", "Record"]


#: So many of the last count for what became of what was said.
RECORD_OF = 200


@dataclass(frozen=True)
class Record:
    """How many were answered beforehand and are over, and of how many that came true.

    ``as_said``: the work that was lost lies in the band; ``held_of_sure``: of those said to be kept
    with :data:`SURE` or more, these were.
    """

    answered: int
    as_said: int
    sure: int
    held_of_sure: int


class CurtailmentQuerySet(models.QuerySet["Curtailment"]):
    """Queries of curtailments."""

    def open(self, now: datetime) -> CurtailmentQuerySet:
        """Those that are to be met now or later."""
        return self.filter(canceled_at=None, ends_at__gt=now)

    def unjudged(self, now: datetime) -> CurtailmentQuerySet:
        """Those that are over, and that nobody has judged yet."""
        was = Q(canceled_at=None) | Q(canceled_at__gt=F("starts_at"))
        return self.filter(was, ends_at__lte=now, judged_at=None)

    def record(self) -> Record:
        """What became of the last of what was said beforehand. One query."""
        told = self.filter(result__lost_as_said__in=(True, False)).order_by("-ends_at")
        rows = told.values_list("result__lost_as_said", "estimate__sure", "result__verdict")
        found = [(bool(said), float(sure), verdict) for said, sure, verdict in rows[:RECORD_OF]]
        sure_of = [verdict for _, sure, verdict in found if sure >= SURE]
        return Record(
            answered=len(found),
            as_said=sum(as_said for as_said, _, _ in found),
            sure=len(sure_of),
            held_of_sure=sum(verdict == "held" for verdict in sure_of),
        )


class Curtailment(models.Model):
    """A request to draw less at a site, from when until when."""

    site = models.CharField(max_length=200)
    asked = models.JSONField(help_text="by_w, to_w or by_share")
    source = models.CharField(max_length=300, help_text="user:NAME or openadr:EVENT/INTERVAL")
    reason = models.CharField(max_length=500)
    target_w = models.FloatField(help_text="What the site may draw")
    baseline_w = models.FloatField(
        null=True, help_text="What it drew before on average; null: there were no readings"
    )
    baseline_s = models.FloatField(default=0.0, help_text="How many seconds of readings that is of")
    announced_at = models.DateTimeField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(help_text="Earlier than asked for where it was canceled")
    restriction = models.ForeignKey(
        Restriction, on_delete=models.PROTECT, related_name="+", help_text="By which it is held"
    )
    estimate = models.JSONField(help_text="What it would cost, as worked out beforehand")
    canceled_at = models.DateTimeField(null=True)
    canceled_by = models.CharField(max_length=200, blank=True)
    judged_at = models.DateTimeField(null=True)
    result = models.JSONField(default=dict, help_text="What was kept of it, by meters")
    #: of an event of OpenADR: its program and event, for the report; "" for others
    program_id = models.CharField(max_length=128, blank=True)
    event_id = models.CharField(max_length=128, blank=True)
    interval_id = models.IntegerField(null=True)
    reported_at = models.DateTimeField(null=True)

    objects = CurtailmentQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-starts_at", "-id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(ends_at__gte=F("starts_at")), name="curtailment_ends_after_it_starts"
            ),
            models.UniqueConstraint(
                fields=["source"],
                condition=Q(canceled_at=None) & ~Q(event_id=""),
                name="curtailment_once_for_an_interval",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["-starts_at", "-id"], name="curtailment_starts"),
            models.Index(
                fields=["ends_at"], condition=Q(judged_at=None), name="curtailment_unjudged"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.site} to {self.target_w:.0f} W from {self.starts_at:%Y-%m-%d %H:%M:%S}"

    def state_at(self, now: datetime) -> str:
        """Return ``announced``, ``active``, ``over``, ``canceled`` or the verdict on it."""
        if self.canceled_at is not None and self.canceled_at <= self.starts_at:
            return "canceled"
        if self.judged_at is not None:
            return str(self.result["verdict"])
        if now >= self.ends_at:
            return "over"
        return "active" if now >= self.starts_at else "announced"
