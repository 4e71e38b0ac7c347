"""Arguments that name one of a few things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from physics.errors import ImpossibleArgumentError

T = TypeVar("T")


def chosen(argument: str, value: Any, table: Mapping[str, T]) -> T:
    """Return what ``value`` names in ``table``, or raise with the names that there are."""
    if not isinstance(value, str) or value not in table:
        raise ImpossibleArgumentError(argument, f"one of {', '.join(table)}")
    return table[value]
