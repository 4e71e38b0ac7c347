"""Views of pages that users keep under a name."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from accounts.edge.names import plain

__all__ = ["SavedView", "SavedViewQuerySet"]


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    def seen_by(self, user_id: int) -> SavedViewQuerySet:
        """The user's own, and those that somebody shares with all, by name."""
        return self.filter(Q(owner=user_id) | Q(is_shared=True)).order_by("name", "pk")


class SavedView(models.Model):
    """Filters and hidden columns of one page, as its address has them.

    It goes with its owner's account, also where it is shared.
    """

    owner = models.ForeignKey("accounts.User", on_delete=models.CASCADE, related_name="saved_views")
    page = models.CharField(max_length=32, help_text="A page that has saved views")
    name = models.CharField(max_length=200, validators=[plain])
    query = models.CharField(max_length=2000, blank=True, help_text="What follows ? in its address")
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SavedViewQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "page", "name"], name="saved_view_once"),
        ]

    def __str__(self) -> str:
        return f"{self.page}: {self.name}"
