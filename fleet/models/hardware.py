from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from accounts.edge import names
from fleet import bounds
from fleet.kinds import HardwareKind
from fleet.models import validators


class HardwareModel(models.Model):
    """A kind of GPU or node: the ratings that hold where nothing is measured."""

    name = models.CharField(max_length=200, validators=[names.plain], unique=True)
    kind = models.CharField(max_length=8, choices=HardwareKind.choices)
    vendor = models.CharField(max_length=200, validators=[names.plain], blank=True)
    rated_w = models.FloatField(
        validators=validators.quantity(bounds.MOST_PART_W),
        help_text="GPU: its power limit as sold. Node: all but its GPUs at full load. W.",
    )
    idle_w = models.FloatField(
        default=0,
        validators=validators.quantity(bounds.MOST_PART_W),
        help_text="Draw when idle, W. Node: all but its GPUs.",
    )
    slowdown_c = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(bounds.HOTTEST_C, bounds.COLDEST_C),
        help_text="Core temperature at which clocks are cut, °C",
    )
    slowdown_mem_c = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(bounds.HOTTEST_C, bounds.COLDEST_C),
        help_text="Memory temperature at which clocks are cut, °C",
    )
    shutdown_c = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(bounds.HOTTEST_C, bounds.COLDEST_C),
        help_text="Core temperature at which the part turns off, °C",
    )
    sm_max_mhz = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(bounds.MOST_MHZ),
        help_text="Highest SM clock, MHz",
    )
    mem_bytes = models.BigIntegerField(
        null=True,
        blank=True,
        validators=validators.quantity(bounds.MOST_BYTES),
        help_text="Memory, bytes",
    )
    cores = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(bounds.MOST_CORES)],
        help_text="CPU cores of a node; jobs that take no GPU have these where it has no GPUs",
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse an idle draw above the rated one, cores of a GPU, and another kind than in use."""
        if validators.lacks(self):
            return
        if self.idle_w > self.rated_w:
            raise ValidationError({"idle_w": "it draws more when idle than it is rated for"})
        if self.cores and self.kind == HardwareKind.GPU:
            raise ValidationError({"cores": "a GPU has no CPU cores: they are stated of a node"})
        if self.pk is None:
            return
        others = self.nodes if self.kind == HardwareKind.GPU else self.gpus
        if others.exists():
            raise ValidationError({"kind": f"it is in use, and not as a {self.kind}"})
