"""Taking sites, power, racks and nodes from NetBox.

NetBox knows the plant; it does not know all that Headroom does. What it has no field for stays as
it is in the fleet, and what cannot be taken over is said in ``notes``.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from fleet.inventory import Inventory, State
from fleet.inventory.export import document_of
from fleet.inventory.parse import typed
from fleet.netbox.carry import carry_over
from fleet.netbox.convert import convert
from fleet.netbox.exceptions import NetBoxError
from fleet.netbox.source import read

__all__ = ["Imported", "NetBoxError", "load"]


@dataclass(frozen=True)
class Imported:
    inventory: Inventory
    #: what could not be taken over, or was taken for granted, in sentences
    notes: list[str]


def load(source: str, token: str, state: State) -> Imported:
    """Read NetBox at a URL, or a folder of its JSON answers, and return the inventory to plan.

    Raises NetBoxError where it cannot be read, InventoryError where it makes no inventory.
    """
    document, notes = convert(read(source, token), state.rows["hardware_models"])
    carry_over(document, document_of(state.rows))
    # What NetBox takes for a value need not be one that an inventory may have.
    checked = typed(msgspec.to_builtins(document), source)
    return Imported(Inventory(checked, source=source), notes)
