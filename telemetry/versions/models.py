"""The versions that each node reported last."""

from __future__ import annotations

from django.db import models

from fleet.models import Node

__all__ = ["NodeVersions"]


class NodeVersions(models.Model):
    """What one node runs, as its agent reported it last; empty: not known."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, related_name="versions")
    driver = models.CharField(max_length=300, blank=True, help_text="Of the GPUs")
    vbios = models.CharField(max_length=300, blank=True, help_text="Of the GPUs, each once")
    nic_firmware = models.CharField(max_length=300, blank=True, help_text="Of the NICs, each once")
    fabric_driver = models.CharField(max_length=300, blank=True, help_text="Of the NICs")
    nccl = models.CharField(max_length=300, blank=True, help_text="That jobs told last")
    image = models.CharField(max_length=300, blank=True, help_text="That jobs told last")
    told_at = models.DateTimeField(help_text="By the clock of the agent")
    changed_at = models.DateTimeField(help_text="Since when it is so, by the clock of the agent")

    class Meta:
        ordering = ["node__name"]
        verbose_name_plural = "node versions"

    def __str__(self) -> str:
        return f"{self.node}: driver {self.driver or 'not known'}"
