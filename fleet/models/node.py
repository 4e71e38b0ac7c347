from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models

from accounts.edge import names
from fleet import bounds
from fleet.kinds import HardwareKind
from fleet.models import validators
from fleet.models.hardware import HardwareModel
from fleet.models.rack import Rack
from fleet.models.site import Site
from fleet.partitions import problem_of


class StorageEndpoint(models.Model):
    """A file system or object store that nodes read data from and write checkpoints to."""

    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="storage_endpoints")
    name = models.CharField(max_length=200, validators=[names.plain])
    capacity_bytes_per_s = models.FloatField(
        null=True, blank=True, validators=validators.quantity(bounds.MOST_BYTES_PER_S)
    )

    class Meta:
        ordering = ["site", "name"]
        constraints = [
            models.UniqueConstraint(fields=["site", "name"], name="storage_endpoint_name")
        ]

    def __str__(self) -> str:
        return f"{self.site}/{self.name}"

    def clean(self) -> None:
        if validators.lacks(self):
            return
        validators.site_stays(self)


class Node(models.Model):
    """A server. Its name is unique in the whole fleet, since agents know no more of themselves."""

    name = models.CharField(max_length=200, validators=[names.plain], unique=True)
    rack = models.ForeignKey(Rack, on_delete=models.CASCADE, related_name="nodes")
    position_u = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Lowest rack unit that it fills, from 1",
    )
    height_u = models.PositiveSmallIntegerField(default=8, validators=[MinValueValidator(1)])
    model = models.ForeignKey(
        HardwareModel, on_delete=models.PROTECT, null=True, blank=True, related_name="nodes"
    )
    switch_domain = models.CharField(
        max_length=200,
        validators=[names.plain],
        blank=True,
        help_text="Nodes behind the same leaf switch",
    )
    storage_endpoint = models.ForeignKey(
        StorageEndpoint, on_delete=models.SET_NULL, null=True, blank=True, related_name="nodes"
    )
    labels = models.JSONField(default=dict, blank=True, validators=[validators.labels])

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse a place that is taken or outside the rack, and what belongs elsewhere."""
        if self.labels is None:  # what the admin's form makes of an empty text
            self.labels = {}
        if validators.lacks(self):
            return
        if self.model is not None and self.model.kind != HardwareKind.NODE:
            raise ValidationError({"model": f"{self.model} is not a model of a node"})
        storage = self.storage_endpoint
        if storage is not None and storage.site_id != self.rack.site_id:
            raise ValidationError({"storage_endpoint": f"{storage} is at another site"})
        self._check_place()
        self._check_links()

    def _check_place(self) -> None:
        if self.position_u is None:
            return
        top_u = self.position_u + self.height_u - 1
        if top_u > self.rack.height_u:
            raise ValidationError(
                {"position_u": f"it would end at U{top_u} of a rack of {self.rack.height_u} U"}
            )
        others = self.rack.nodes.exclude(pk=self.pk).filter(
            position_u__lte=top_u,
            position_u__gt=self.position_u - models.F("height_u"),
        )
        for other in others[:1]:
            raise ValidationError({"position_u": f"{other} is there, at U{other.position_u}"})

    def _check_links(self) -> None:
        """Refuse to leave the site of a link that starts here."""
        if self.pk is None:
            return
        for link in self.links.exclude(site=self.rack.site_id)[:1]:
            raise ValidationError({"rack": f"link {link}, which starts here, is at another site"})


class Gpu(models.Model):
    """One GPU, known by its index on its node."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="gpus")
    index = models.PositiveSmallIntegerField()
    model = models.ForeignKey(HardwareModel, on_delete=models.PROTECT, related_name="gpus")
    uuid = models.CharField(
        max_length=64, validators=[names.plain], blank=True, help_text="As NVML gives it, if known"
    )
    slices = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        validators=[validators.slices],
        help_text="MIG profiles that it is split into, in the order of NVML; empty: it is whole",
    )

    class Meta:
        ordering = ["node", "index"]
        verbose_name = "GPU"
        verbose_name_plural = "GPUs"
        constraints = [models.UniqueConstraint(fields=["node", "index"], name="gpu_index")]

    def __str__(self) -> str:
        return f"{self.node}/gpu{self.index}"

    def clean(self) -> None:
        """Refuse another kind of model, and slices that its model cannot be split into."""
        if self.slices is None:  # what the admin's form makes of an empty text
            self.slices = []
        if validators.lacks(self):
            return
        if self.model.kind != HardwareKind.GPU:
            raise ValidationError({"model": f"{self.model} is not a model of a GPU"})
        if problem := problem_of(self.model.name, self.slices):
            raise ValidationError({"slices": problem})
