"""The laws of a GPU fleet: pure functions over numbers and arrays, with units in their names.

No Django, no input or output, no global state. Arguments are in SI units and checked; an argument
that no real system can have is refused with an error that names it (:mod:`physics.errors`). What a
law is, :mod:`physics.law` says, and :mod:`physics.units` what the ends of names mean.

``import physics`` is enough: ``physics.comm.ring_all_reduce_s(…)``. A module is loaded when it is
first used.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from physics import (
        checkpoint,
        comm,
        diagnose,
        goodput,
        hardware,
        parallelism,
        power,
        queueing,
        reliability,
        roofline,
        scaling,
        thermal,
    )

__all__ = [
    "checkpoint",
    "comm",
    "diagnose",
    "goodput",
    "hardware",
    "parallelism",
    "power",
    "queueing",
    "reliability",
    "roofline",
    "scaling",
    "thermal",
]


def __getattr__(name: str) -> ModuleType:
    # Whoever wants one law does not wait for all of them, nor for NumPy before there is need.
    if name in __all__:
        return importlib.import_module(f"physics.{name}")
    raise AttributeError(f"module 'physics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
