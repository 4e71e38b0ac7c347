"""What things of the inventory are of: names that need no settings and no database."""

from django.db import models


class CoolingKind(models.TextChoices):
    """How a zone carries heat away."""

    AIR = "air", "Air"
    REAR_DOOR = "rear-door", "Rear door"
    DIRECT_TO_CHIP = "direct-to-chip", "Direct to chip"
    IMMERSION = "immersion", "Immersion"


class HardwareKind(models.TextChoices):
    """What a hardware model is a model of."""

    GPU = "gpu", "GPU"
    NODE = "node", "Node"


class LinkKind(models.TextChoices):
    """What a link connects."""

    NVLINK = "nvlink", "NVLink domain"
    RAIL = "rail", "Rail"
    LEAF_UPLINK = "leaf-uplink", "Leaf uplink"
    SPINE = "spine", "Spine"
    WAN = "wan", "WAN"


class MeterKind(models.TextChoices):
    """What a meter measures."""

    POWER = "power", "Power"
    TEMPERATURE = "temperature", "Temperature"


class PowerDomainKind(models.TextChoices):
    """What a node of the power tree is."""

    UTILITY = "utility", "Utility"
    FEED = "feed", "Feed"
    PANEL = "panel", "Panel"
    PDU = "pdu", "PDU"


class Side(models.TextChoices):
    """The halves of an A/B pair."""

    A = "A", "A"
    B = "B", "B"
