"""Inhibitions as they are declared, in YAML."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings

from fleet.inventory.exceptions import InventoryError
from fleet.inventory.reader import decode, locate, read
from policies.incidents.inhibition import Inhibition, Relation
from policies.incidents.matchers import BadMatcher, parse_matchers

__all__ = ["BUILT_IN", "BadInhibitions", "inhibitions", "parse"]

BUILT_IN = Path(__file__).with_name("inhibitions.yaml")
#: The most entries of a file.
MAX_INHIBITIONS = 200


class BadInhibitions(ValueError):
    """The file cannot be taken. The message begins with its name and the line."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    source: list[str]
    target: list[str]
    relation: Relation


def inhibitions() -> tuple[Inhibition, ...]:
    """Return those in force. Read once: a process that is to read another file starts anew."""
    return _load(Path(settings.INHIBITIONS_FILE or BUILT_IN))


@lru_cache(maxsize=4)
def _load(path: Path) -> tuple[Inhibition, ...]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInhibitions(f"INHIBITIONS_FILE={path}: {error.strerror}") from None
    return parse(data, str(path))


def parse(data: bytes, source: str) -> tuple[Inhibition, ...]:
    """Return the inhibitions of a file. Raises :class:`BadInhibitions` with the line."""
    try:
        text = decode(data, source)
        document = read(text, source)
    except InventoryError as error:
        raise BadInhibitions(str(error)) from None
    rows = document.get("inhibitions") if isinstance(document, dict) else None
    if not isinstance(rows, list) or len(document) != 1:
        raise BadInhibitions(f"{source}:1: give one key, inhibitions, with a list")
    if len(rows) > MAX_INHIBITIONS:
        raise BadInhibitions(f"{source}:1: more than {MAX_INHIBITIONS} inhibitions")
    found = []
    for index, row in enumerate(rows):
        try:
            found.append(_inhibition(row))
        except ValueError as error:
            line = locate(text, [("inhibitions", index)])[("inhibitions", index)]
            raise BadInhibitions(f"{source}:{line}: inhibitions[{index}]: {error}") from None
    return tuple(found)


def _inhibition(row: Any) -> Inhibition:
    """Return the inhibition of one entry. Raises ValueError, which BadMatcher and msgspec's are."""
    entry = msgspec.convert(row, _Entry)
    matchers = {}
    for name in ("source", "target"):
        try:
            matchers[name] = parse_matchers(getattr(entry, name))
        except BadMatcher as error:
            raise BadMatcher(f"{name}: {error}") from None
        if not matchers[name]:
            raise BadMatcher(f"{name}: give at least one matcher, or everything would match")
    return Inhibition(entry.name, matchers["source"], matchers["target"], entry.relation)
