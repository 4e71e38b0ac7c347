from django.core.validators import MinValueValidator
from django.db import models

from fleet.models import validators


class Site(models.Model):
    """A building, or a hall of one, with its own utility feed."""

    name = models.CharField(max_length=200, unique=True, validators=[validators.without_slash])
    budget_w = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), validators.finite],
        help_text="What the site may draw, W. Empty: its power domains say.",
    )
    time_zone = models.CharField(max_length=64, default="UTC", validators=[validators.time_zone])

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
