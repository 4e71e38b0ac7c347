from django.db import models

from accounts.edge import names
from fleet import bounds
from fleet.models import validators


class Site(models.Model):
    """A building, or a hall of one, with its own utility feed."""

    name = models.CharField(
        max_length=200, unique=True, validators=[names.plain, validators.without_slash]
    )
    budget_w = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(bounds.MOST_PLACE_W),
        help_text="What the site may draw, W. Empty: its power domains say.",
    )
    time_zone = models.CharField(max_length=64, default="UTC", validators=[validators.time_zone])

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
