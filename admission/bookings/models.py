"""Bookings of hosts, from when until when, and for whom."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import models
from django.db.models import F, Q

from admission.jobs.models import Project
from policies.scopes import MOST_NAME

__all__ = ["Booking"]


class BookingQuerySet(models.QuerySet["Booking"]):
    """Queries of bookings."""

    def live(self, now: datetime) -> BookingQuerySet:
        """Those that have begun or will, and that nobody has ended."""
        return self.filter(ended_at=None, ends_at__gt=now)


class Booking(models.Model):
    """Hosts that are kept for a project, or for maintenance. Its start was promised."""

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, null=True, related_name="bookings",
        help_text="Whose jobs may run there; null: nobody's, it is maintenance",
    )  # fmt: skip
    scope_kind = models.CharField(max_length=20, blank=True, help_text="Empty: some hosts")
    scope_name = models.CharField(max_length=MOST_NAME, blank=True)
    nodes = models.JSONField(help_text="Names of its hosts, as they were when it was made")
    gpus = models.PositiveIntegerField(help_text="That these have")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=500)
    made_by = models.CharField(max_length=200)
    made_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, help_text="Before its time; null: nobody ended it")
    ended_by = models.CharField(max_length=200, blank=True)

    objects = BookingQuerySet.as_manager()

    class Meta:
        ordering = ["starts_at", "id"]
        constraints = [
            models.CheckConstraint(condition=Q(ends_at__gt=F("starts_at")), name="booking_lasts"),
        ]
        indexes = [
            # Each cycle asks for those that nobody has ended.
            models.Index(fields=["ends_at"], condition=Q(ended_at=None), name="booking_live"),
        ]

    def __str__(self) -> str:
        return f"{self.what}, {self.starts_at:%Y-%m-%d %H:%M} to {self.ends_at:%Y-%m-%d %H:%M}"

    @property
    def what(self) -> str:
        """What is booked, in words."""
        if self.scope_kind:
            return f"{self.scope_kind.replace('_', ' ')} {self.scope_name}"
        return f"{len(self.nodes)} host{'' if len(self.nodes) == 1 else 's'}"

    def is_known_to(self, projects: Collection[int]) -> bool:
        """Say whether whoever may know of ``projects`` (ids) is told whose it is, and what for."""
        return self.project_id is None or self.project_id in projects

    def state_at(self, now: datetime) -> str:
        """Return ``ahead``, ``running``, ``over`` or ``ended`` (before its time)."""
        if self.ended_at is not None:
            return "ended"
        if now >= self.ends_at:
            return "over"
        return "running" if now >= self.starts_at else "ahead"
