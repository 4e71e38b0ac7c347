"""Differences between two versions of a document: in their texts, and in their fields."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headroom import documents


@dataclass(frozen=True)
class Change:
    """A field that differs between two versions. None stands for a missing field."""

    path: str
    old: Any
    new: Any


def text_diff(old: str, new: str, *, old_name: str, new_name: str) -> str:
    """Return a unified diff of two texts; empty where they are the same."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), old_name, new_name, lineterm=""
    )
    return "\n".join(lines)


def changes(old: str, new: str) -> list[Change]:
    """Return the fields that differ, in order of their paths; comments and layout do not count."""
    before = dict(_leaves(documents.read(old).value))
    after = dict(_leaves(documents.read(new).value))
    return [
        Change(path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{place}]")
    else:
        yield path, value.strip() if isinstance(value, str) else value
