"""Names of laws, arguments and fields as the command line shows them: without their unit."""

from __future__ import annotations

from physics.units import SYMBOLS, unit_of, without_unit

__all__ = ["as_command", "as_words", "symbol_of"]


def as_command(name: str) -> str:
    """Return ``ring_all_reduce_s`` as ``ring-all-reduce``."""
    return without_unit(name).replace("_", "-")


def as_words(name: str) -> str:
    """Return ``ring_all_reduce_s`` as ``ring all reduce``."""
    return without_unit(name).replace("_", " ")


def symbol_of(name: str) -> str | None:
    """Return the symbol of the unit at the end of ``name``, None where there is none."""
    unit = unit_of(name)
    return SYMBOLS[unit] if unit else None
