from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from accounts.edge import names
from fleet import bounds
from fleet.kinds import PowerDomainKind, Side
from fleet.models import validators
from fleet.models.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator


class PowerDomain(models.Model):
    """A node of the power tree. Racks hang from its leaves.

    Two domains with the same ``pair`` and the sides A and B are redundant: either must be able to
    carry what both carry.
    """

    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="power_domains")
    name = models.CharField(max_length=200, validators=[names.plain])
    kind = models.CharField(max_length=8, choices=PowerDomainKind.choices)
    parent = models.ForeignKey(
        "self", on_delete=models.RESTRICT, null=True, blank=True, related_name="children"
    )
    capacity_w = models.FloatField(
        validators=validators.quantity(bounds.MOST_PLACE_W), help_text="Rated capacity, W"
    )
    derating = models.FloatField(
        default=1.0,
        validators=[MinValueValidator(0.01), MaxValueValidator(1), validators.finite],
        help_text="Share of the capacity that may be used without end, 0.01 to 1",
    )
    pair = models.CharField(
        max_length=200,
        validators=[names.plain],
        blank=True,
        help_text="Name of the A/B pair, if any",
    )
    side = models.CharField(max_length=1, choices=Side.choices, blank=True)

    class Meta:
        ordering = ["site", "name"]
        constraints = [
            models.UniqueConstraint(fields=["site", "name"], name="power_domain_name"),
            models.UniqueConstraint(
                fields=["site", "pair", "side"],
                condition=~models.Q(pair=""),
                name="power_domain_one_per_side",
            ),
            models.CheckConstraint(
                condition=models.Q(pair="", side="") | (~models.Q(pair="") & ~models.Q(side="")),
                name="power_domain_pair_has_side",
                violation_error_message="pair and side go together",
            ),
            models.CheckConstraint(
                condition=models.Q(capacity_w__gte=0, derating__gt=0, derating__lte=1),
                name="power_domain_limits",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.site}/{self.name}"

    @property
    def usable_w(self) -> float:
        """Derated capacity, W."""
        return self.capacity_w * self.derating

    def ancestors(self) -> Iterator[PowerDomain]:
        """Yield the parent, its parent, and so on. One query for each level."""
        domain = self.parent
        while domain is not None:
            yield domain
            domain = domain.parent

    def clean(self) -> None:
        """Refuse a parent at another site, and cycles."""
        if validators.lacks(self):
            return
        validators.site_stays(self)
        if self.parent is None:
            return
        validators.same_site(self, "parent")
        if self.pk is not None and any(up.pk == self.pk for up in self.ancestors()):
            raise ValidationError({"parent": "a power domain cannot be its own ancestor"})
