import operator
from functools import reduce

from django.db import models

from accounts.edge import names
from fleet.kinds import MeterKind
from fleet.models.cooling import CoolingZone
from fleet.models.node import Node
from fleet.models.power import PowerDomain
from fleet.models.rack import Rack


def _exactly_one(*fields: str) -> models.Q:
    """Return a constraint: one of ``fields`` is set, and the others are null."""
    return reduce(
        operator.or_,
        (models.Q(**{f"{f}__isnull": f != chosen for f in fields}) for chosen in fields),
    )


class Meter(models.Model):
    """A sensor of power or temperature at one power domain, cooling zone, rack or node."""

    name = models.CharField(max_length=200, validators=[names.plain], unique=True)
    kind = models.CharField(max_length=16, choices=MeterKind.choices, default=MeterKind.POWER)
    power_domain = models.ForeignKey(
        PowerDomain, on_delete=models.CASCADE, null=True, blank=True, related_name="meters"
    )
    cooling_zone = models.ForeignKey(
        CoolingZone, on_delete=models.CASCADE, null=True, blank=True, related_name="meters"
    )
    rack = models.ForeignKey(
        Rack, on_delete=models.CASCADE, null=True, blank=True, related_name="meters"
    )
    node = models.ForeignKey(
        Node, on_delete=models.CASCADE, null=True, blank=True, related_name="meters"
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=_exactly_one("power_domain", "cooling_zone", "rack", "node"),
                name="meter_measures_one_thing",
                violation_error_message=(
                    "a meter measures one of: power domain, cooling zone, rack, node"
                ),
            )
        ]

    def __str__(self) -> str:
        return self.name
