"""From a symptom with numbers to what binds and which lever moves, with the arithmetic shown.

Each law here answers one question of one case: single numbers in, a :class:`Diagnosis` out. Its
steps say which formula was used, what was put in and what came out; every number in them is
computed by the laws of the other modules.
"""

from __future__ import annotations

from physics.diagnose.answer import Diagnosis
from physics.diagnose.budgets import overheads
from physics.diagnose.fits import paradigm
from physics.diagnose.fleets import gpus_needed
from physics.diagnose.kernels import kernel
from physics.diagnose.links import communication
from physics.diagnose.rates import utilization
from physics.diagnose.runs import scaling
from physics.diagnose.sites import power
from physics.diagnose.uptime import failures

__all__ = [
    "Diagnosis",
    "communication",
    "failures",
    "gpus_needed",
    "kernel",
    "overheads",
    "paradigm",
    "power",
    "scaling",
    "utilization",
]
