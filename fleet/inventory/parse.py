"""Inventory text to a typed document. All problems are reported at once, with their lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import UnionType
from typing import Any, Literal, cast, get_args, get_origin

import msgspec

from fleet.inventory import reader
from fleet.inventory.document import Document, Inventory, with_lines
from fleet.inventory.exceptions import MAX_PROBLEMS, InventoryError, Path, Problem
from headroom.contracts import PLAIN_IN_WORDS, odd_character


def parse(data: str | bytes, source: str = "inventory") -> Inventory:
    """Return the inventory in ``data``, or raise InventoryError.

    What it refers to is not looked at yet: that needs the inventory that there is (``plan``).
    """
    text = data if isinstance(data, str) else reader.decode(data, source)
    values = reader.read(text, source)
    return Inventory(typed({} if values is None else values, source, text), text, source)


def typed(values: Any, source: str, text: str = "") -> Document:
    """Return plain ``values``, which were read from ``text``, as a document.

    Raises InventoryError where they do not make one.
    """
    try:
        return msgspec.convert(values, Document, strict=False)
    except msgspec.ValidationError:
        # It tells of the first problem only. Look at each part by itself.
        found = list(islice(_struct_problems(values, Document, ()), MAX_PROBLEMS))
        raise InventoryError(with_lines(found, text), source) from None


def _struct_problems(values: Any, kind: type[msgspec.Struct], path: Path) -> Iterator[Problem]:
    if not isinstance(values, dict):
        yield Problem(path, "a mapping is needed here")
        return
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in values:
        if name not in fields:
            yield Problem((*path, name), f"unknown; known: {', '.join(fields)}")
    for name, field in fields.items():
        if name in values:
            yield from _value_problems(values[name], field.type, (*path, name))
        elif field.required:
            yield Problem(path, f"{name} is missing")


def _value_problems(value: Any, kind: Any, path: Path) -> Iterator[Problem]:
    item = _item_struct(kind)
    if item is not None and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _struct_problems(each, item, (*path, index))
        return
    struct = next((arm for arm in _arms(kind) if _is_struct(arm)), None)
    if struct is not None and isinstance(value, dict):
        yield from _struct_problems(value, struct, path)
        return
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        yield Problem(path, _said(error, value, kind))


def _item_struct(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that ``kind`` is a list of, or may be a list of."""
    for arm in _arms(kind):
        if get_origin(arm) is list and _is_struct(get_args(arm)[0]):
            return cast("type[msgspec.Struct]", get_args(arm)[0])
    return None


def _arms(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type."""
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _said(error: msgspec.ValidationError, value: Any, kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"{value!r} is none of: {', '.join(filter(None, get_args(kind)))}"
    if isinstance(value, str) and (odd := odd_character(value)):
        return f"U+{ord(odd):04X} is in it: it has to be {PLAIN_IN_WORDS}"
    # Every scalar comes in as a text, so "got `str`" would mislead.
    message = str(error).partition(" - at `")[0].partition(", got `str`")[0]
    return f"{message}, got {value!r}" if isinstance(value, str) else message
