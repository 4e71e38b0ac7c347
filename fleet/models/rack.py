from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models

from accounts.edge import names
from fleet import bounds
from fleet.kinds import Side
from fleet.models import validators
from fleet.models.cooling import CoolingZone
from fleet.models.power import PowerDomain
from fleet.models.site import Site


class Rack(models.Model):
    """A rack: its place, its budget, its two feeds and its cooling zone."""

    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="racks")
    name = models.CharField(max_length=200, validators=[names.plain])
    row = models.CharField(max_length=50, validators=[names.plain], blank=True)
    position = models.PositiveIntegerField(default=0, help_text="Place in its row, from 0")
    height_u = models.PositiveSmallIntegerField(default=48, validators=[MinValueValidator(1)])
    budget_w = models.FloatField(
        validators=validators.quantity(bounds.MOST_PLACE_W),
        help_text="What the rack may draw, W",
    )
    feed_a = models.ForeignKey(
        PowerDomain, on_delete=models.RESTRICT, null=True, blank=True, related_name="racks_on_a"
    )
    feed_b = models.ForeignKey(
        PowerDomain, on_delete=models.RESTRICT, null=True, blank=True, related_name="racks_on_b"
    )
    cooling_zone = models.ForeignKey(
        CoolingZone, on_delete=models.RESTRICT, null=True, blank=True, related_name="racks"
    )

    class Meta:
        ordering = ["site", "row", "position", "name"]
        constraints = [
            models.UniqueConstraint(fields=["site", "name"], name="rack_name"),
            models.CheckConstraint(condition=models.Q(budget_w__gte=0), name="rack_budget"),
        ]

    def __str__(self) -> str:
        return f"{self.site}/{self.name}"

    def clean(self) -> None:
        """Refuse feeds and a cooling zone of another site, and less height than is in use."""
        if validators.lacks(self):
            return
        validators.site_stays(self)
        validators.same_site(self, "feed_a", "feed_b", "cooling_zone")
        self._check_feeds()
        self._check_height()

    def _check_feeds(self) -> None:
        if self.feed_a is not None and self.feed_a == self.feed_b:
            raise ValidationError({"feed_b": f"{self.feed_b} cannot feed both sides"})
        if self.feed_a is not None and self.feed_a.side == Side.B:
            raise ValidationError({"feed_a": f"{self.feed_a} is a B side"})
        if self.feed_b is not None and self.feed_b.side == Side.A:
            raise ValidationError({"feed_b": f"{self.feed_b} is an A side"})

    def _check_height(self) -> None:
        if self.pk is None:
            return
        top_u = models.F("position_u") + models.F("height_u") - 1
        for node in self.nodes.alias(top_u=top_u).filter(top_u__gt=self.height_u)[:1]:
            raise ValidationError({"height_u": f"{node} would stand out of the rack"})
