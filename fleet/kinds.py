"""Kinds of things in the inventory: names that need no settings and no database."""

from django.db import models


class CoolingKind(models.TextChoices):
    """How a zone carries heat away."""

    AIR = "air", "Air"
    REAR_DOOR = "rear-door", "Rear door"
    DIRECT_TO_CHIP = "direct-to-chip", "Direct to chip"
    IMMERSION = "immersion", "Immersion"


class HardwareKind(models.TextChoices):
    """The kind of thing that a hardware model is for."""

    GPU = "gpu", "GPU"
    NODE = "node", "Node"


class LinkKind(models.TextChoices):
    """The level of the network that a link is at."""

    NVLINK = "nvlink", "NVLink domain"
    RAIL = "rail", "Rail"
    LEAF_UPLINK = "leaf-uplink", "Leaf uplink"
    SPINE = "spine", "Spine"
    WAN = "wan", "WAN"


class MeterKind(models.TextChoices):
    """The quantity that a meter measures."""

    POWER = "power", "Power"
    TEMPERATURE = "temperature", "Temperature"


class PowerDomainKind(models.TextChoices):
    """The level of a power domain in the power tree."""

    UTILITY = "utility", "Utility"
    FEED = "feed", "Feed"
    PANEL = "panel", "Panel"
    PDU = "pdu", "PDU"


class Side(models.TextChoices):
    """The halves of an A/B pair."""

    A = "A", "A"
    B = "B", "B"
