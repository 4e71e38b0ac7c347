"""The base model of every kind of document: one row for each version."""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar

from django.db import models
from django.db.models import F, Q

__all__ = ["States", "Version", "VersionQuerySet"]

V = TypeVar("V", bound="Version")


class States(models.TextChoices):
    """From the first to the last; a version may skip some, and never goes back."""

    DRAFT = "draft", "Draft"
    #: evaluated and recorded, without effect
    SHADOW = "shadow", "Shadow"
    #: it counts on a share of the fleet
    CANARY = "canary", "Canary"
    ACTIVE = "active", "Active"
    RETIRED = "retired", "Retired"


class VersionQuerySet(models.QuerySet[V]):
    """Queries of versions of any kind."""

    def active(self) -> Self:
        """Those that count in full: one of each name, at most."""
        return self.filter(state=States.ACTIVE)

    def counting(self) -> Self:
        """Those that have effects."""
        return self.filter(state__in=[States.CANARY, States.ACTIVE])

    def live(self) -> Self:
        """Those that are evaluated."""
        return self.filter(state__in=[States.SHADOW, States.CANARY, States.ACTIVE])

    def newest(self) -> Self:
        """Of each name the active version, or else the last."""
        is_active = models.Case(models.When(state=States.ACTIVE, then=1), default=0)
        same = self.model._default_manager.filter(name=models.OuterRef("name"))
        best = same.order_by(is_active.desc(), "-number").values("pk")[:1]
        return self.filter(pk=models.Subquery(best))


class Version(models.Model):
    """A document as somebody wrote it once. Its text never changes: a trigger sees to that."""

    States = States

    name = models.CharField(max_length=100)
    number = models.PositiveIntegerField(help_text="1 for the first of its name")
    text = models.TextField(help_text="YAML")
    note = models.CharField(max_length=500, blank=True)
    state = models.CharField(max_length=10, choices=States.choices, default=States.DRAFT)
    share = models.FloatField(null=True, blank=True, help_text="Of a canary: where it counts")
    author = models.CharField(max_length=200)
    reviewer = models.CharField(
        max_length=200, blank=True, help_text="Who had it count first; never the author"
    )
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField(help_text="When it came to its state")
    activated_at = models.DateTimeField(null=True, blank=True)

    objects = VersionQuerySet.as_manager()

    class Meta:
        abstract = True
        ordering: ClassVar = ["name", "-number"]
        constraints: ClassVar[list[Any]] = [
            models.UniqueConstraint(fields=["name", "number"], name="%(class)s_number"),
            models.UniqueConstraint(
                fields=["name"], condition=Q(state="active"), name="%(class)s_one_active"
            ),
            models.UniqueConstraint(
                fields=["name"], condition=Q(state="canary"), name="%(class)s_one_canary"
            ),
            models.CheckConstraint(
                condition=~Q(reviewer=F("author")), name="%(class)s_reviewer_is_another"
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["canary", "active"]) | ~Q(reviewer=""),
                name="%(class)s_counts_when_reviewed",
            ),
            models.CheckConstraint(
                condition=Q(state="canary", share__gt=0, share__lt=1)
                | (~Q(state="canary") & Q(share__isnull=True)),
                name="%(class)s_share_of_canaries",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.number}"
