"""The whole inventory as one YAML file: read, compared, applied, written.

inventory = parse(text)
todo = plan(inventory, read_state())
apply(todo, actor)
"""

from fleet.inventory.apply import apply
from fleet.inventory.document import Document, Inventory
from fleet.inventory.exceptions import InventoryError, Problem, StalePlanError
from fleet.inventory.export import export
from fleet.inventory.parse import parse
from fleet.inventory.plan import Change, KindPlan, Plan, plan
from fleet.inventory.reader import MAX_BYTES
from fleet.inventory.state import State, read_state

__all__ = [
    "MAX_BYTES",
    "Change",
    "Document",
    "Inventory",
    "InventoryError",
    "KindPlan",
    "Plan",
    "Problem",
    "StalePlanError",
    "State",
    "apply",
    "export",
    "parse",
    "plan",
    "read_state",
]
