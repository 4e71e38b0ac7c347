"""The digital twin of a fleet: power, heat, clocks and failures, stepped as arrays.

Nothing here reads a wall clock: the same fleet, seed, calls and conditions give the same values.
"""

from sim.twin.conditions import Conditions, domain_names
from sim.twin.failures import NO_FAILURES, XIDS, FailureModel
from sim.twin.parts import Parts
from sim.twin.state import COUNTED_CAUSES, GPU_IDLE, Twin, XidLine
from sim.twin.tree import Domains, domains_of

__all__ = [
    "COUNTED_CAUSES",
    "GPU_IDLE",
    "NO_FAILURES",
    "XIDS",
    "Conditions",
    "Domains",
    "FailureModel",
    "Parts",
    "Twin",
    "XidLine",
    "domain_names",
    "domains_of",
]
