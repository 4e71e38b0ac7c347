"""The inventory: sites, racks and nodes, with their power, cooling and network."""

from fleet.kinds import (
    CoolingKind,
    HardwareKind,
    LinkKind,
    MeterKind,
    PowerDomainKind,
    Side,
)
from fleet.models.cooling import CoolingZone
from fleet.models.generation import InventoryGeneration
from fleet.models.hardware import HardwareModel
from fleet.models.link import Link
from fleet.models.meter import Meter
from fleet.models.node import Gpu, Node, StorageEndpoint
from fleet.models.power import PowerDomain
from fleet.models.rack import Rack
from fleet.models.site import Site

__all__ = [
    "CoolingKind",
    "CoolingZone",
    "Gpu",
    "HardwareKind",
    "HardwareModel",
    "InventoryGeneration",
    "Link",
    "LinkKind",
    "Meter",
    "MeterKind",
    "Node",
    "PowerDomain",
    "PowerDomainKind",
    "Rack",
    "Side",
    "Site",
    "StorageEndpoint",
]
