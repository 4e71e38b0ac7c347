from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from accounts.edge import names
from fleet import bounds
from fleet.kinds import LinkKind
from fleet.models import validators
from fleet.models.node import Node
from fleet.models.rack import Rack
from fleet.models.site import Site


class Link(models.Model):
    """A network link, by where it starts: a node, a rack, or a site."""

    name = models.CharField(max_length=200, validators=[names.plain], unique=True)
    kind = models.CharField(max_length=16, choices=LinkKind.choices)
    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="links")
    rack = models.ForeignKey(
        Rack, on_delete=models.CASCADE, null=True, blank=True, related_name="links"
    )
    node = models.ForeignKey(
        Node, on_delete=models.CASCADE, null=True, blank=True, related_name="links"
    )
    peer_site = models.ForeignKey(
        Site,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="links_in",
        help_text="WAN: the other end",
    )
    capacity_bits_per_s = models.FloatField(
        validators=validators.quantity(bounds.MOST_BITS_PER_S),
        help_text="For each direction, bit/s",
    )
    latency_s = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(bounds.MOST_SECONDS),
        help_text="One way, s",
    )
    control_share = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0), MaxValueValidator(1), validators.finite],
        help_text="Share kept for control traffic, 0 to 1",
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse two starts, a start at another site, and an end where it starts."""
        if validators.lacks(self):
            return
        if self.rack is not None and self.node is not None:
            raise ValidationError({"node": "a link starts at a rack or at a node, not at both"})
        validators.same_site(self, "rack")
        if self.node is not None and self.node.rack.site_id != self.site_id:
            raise ValidationError({"node": f"{self.node} is at another site"})
        if self.peer_site_id == self.site_id:
            raise ValidationError({"peer_site": "the other end is at another site"})
