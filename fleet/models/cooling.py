from django.db import models

from accounts.edge import names
from fleet import bounds
from fleet.kinds import CoolingKind
from fleet.models import validators
from fleet.models.site import Site


class CoolingZone(models.Model):
    """Racks that share heat rejection."""

    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="cooling_zones")
    name = models.CharField(max_length=200, validators=[names.plain])
    kind = models.CharField(max_length=16, choices=CoolingKind.choices)
    capacity_w = models.FloatField(
        validators=validators.quantity(bounds.MOST_PLACE_W),
        help_text="Heat that can be carried away, W",
    )
    supply_c = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(bounds.HOTTEST_C, bounds.COLDEST_C),
        help_text="Supply temperature, °C",
    )

    class Meta:
        ordering = ["site", "name"]
        constraints = [
            models.UniqueConstraint(fields=["site", "name"], name="cooling_zone_name"),
            models.CheckConstraint(
                condition=models.Q(capacity_w__gte=0), name="cooling_zone_capacity"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.site}/{self.name}"

    def clean(self) -> None:
        if validators.lacks(self):
            return
        validators.site_stays(self)
