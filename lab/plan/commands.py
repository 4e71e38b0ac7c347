"""All commands of ``headroom plan``, by module. Each is made when it is asked for."""

from __future__ import annotations

import functools

import physics
from lab.plan.catalogue import hardware_command
from lab.plan.groups import ListingGroup
from lab.plan.laws import module_command, summary

__all__ = ["NAMES", "command_of"]

#: The modules of laws, and the catalogue.
NAMES = tuple(physics.__all__)


@functools.cache
def command_of(name: str) -> ListingGroup | None:
    """Return the command that holds the laws of a module, or that shows the catalogue."""
    if name not in NAMES:
        return None
    module = getattr(physics, name)
    if name == "hardware":
        return hardware_command(summary(module))
    return module_command(name, module)
