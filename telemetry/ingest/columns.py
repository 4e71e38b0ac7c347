"""The types of the contract's fields, one by one: those of single values."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any

import msgspec

from headroom.contracts import Columns

__all__ = ["element_types", "part_types"]


@cache
def element_types(block: type[Columns]) -> dict[str, Any]:
    """Return the type of one element of each of the arrays of ``block``, by field."""
    return {
        field.name: typing.get_args(_of_array(field.type))[0]
        for field in msgspec.structs.fields(block)
    }


def _of_array(annotation: Any) -> Any:
    """Return ``list[T]`` of a ``list[T] | None``."""
    if typing.get_origin(annotation) is list:
        return annotation
    return next(each for each in typing.get_args(annotation) if each is not type(None))


@cache
def part_types(struct: type[msgspec.Struct]) -> dict[str, type[Columns]]:
    """Return the blocks of rows that ``struct`` has, by field."""
    found = {
        field.name: [
            each
            for each in typing.get_args(field.type)
            if isinstance(each, type) and issubclass(each, Columns)
        ]
        for field in msgspec.structs.fields(struct)
    }
    return {name: types[0] for name, types in found.items() if types}
