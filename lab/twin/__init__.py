"""The digital twin of a fleet: power, heat, clocks and failures, stepped as arrays.

Nothing here reads a wall clock: the same fleet, seed, calls and conditions give the same values.
"""

from lab.twin.conditions import Conditions, domain_names
from lab.twin.failures import NO_FAILURES, XIDS, FailureModel
from lab.twin.parts import Parts
from lab.twin.state import COUNTED_CAUSES, GPU_IDLE, Twin, XidLine
from lab.twin.tree import Domains, domains_of

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
