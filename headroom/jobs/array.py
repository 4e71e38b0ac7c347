"""Job arrays: many runs of one specification that differ by an index, as Slurm writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = [
    "LARGEST_INDEX",
    "MOST_ELEMENTS",
    "Array",
    "ArrayError",
    "indices_of",
    "name_in_spec",
    "name_of",
    "read",
]

#: Elements of one array, and the largest index of one.
MOST_ELEMENTS, LARGEST_INDEX = 10_000, 999_999

_SPAN = re.compile(r"(?P<first>[0-9]{1,7})(-(?P<last>[0-9]{1,7})(:(?P<step>[0-9]{1,7}))?)?\Z")
_OF_ELEMENT = re.compile(r"(?P<phase>.+)\.[0-9]+\Z")
_LIMIT = re.compile(r"[0-9]{1,7}\Z")
_FORM = "write it as Slurm does: 0-99, 0-99:2 or 1,5,9-12, and %10 behind it for ten at once"


class ArrayError(ValueError):
    """A text that is no array. ``hint`` is the way out."""

    def __init__(self, message: str, hint: str = _FORM) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Array:
    """The elements of an array. ``indices`` ascend; ``limit`` of them run at once, None: all."""

    indices: tuple[int, ...]
    limit: int | None = None

    def __len__(self) -> int:
        return len(self.indices)


@lru_cache(maxsize=256)
def read(text: str) -> Array:
    """Return the array that ``text`` writes, such as ``0-99:2%10``. Raises :class:`ArrayError`."""
    spans, percent, limit = text.partition("%")
    if not percent:
        return Array(indices_of(spans))
    if not _LIMIT.match(limit) or int(limit) == 0:
        raise ArrayError(f"{limit[:20]!r} elements cannot run at once")
    return Array(indices_of(spans), int(limit))


def indices_of(text: str) -> tuple[int, ...]:
    """Return the indices that ``text`` names, ascending, each once. Raises :class:`ArrayError`."""
    found: set[int] = set()
    for part in text.split(","):
        found.update(_span(part))
        if len(found) > MOST_ELEMENTS:
            raise ArrayError(
                f"it has more than {MOST_ELEMENTS:,} elements", "submit several arrays"
            )
    return tuple(sorted(found))


def _span(part: str) -> range:
    match = _SPAN.match(part)
    if match is None:
        raise ArrayError(f"{part[:40]!r} names no indices")
    first = int(match["first"])
    last, step = int(match["last"] or first), int(match["step"] or 1)
    if last < first:
        raise ArrayError(f"{part!r} ends before it begins", f"write {last}-{first}")
    if last > LARGEST_INDEX:
        raise ArrayError(f"{last} is too large an index", f"the largest is {LARGEST_INDEX}")
    if step == 0:
        raise ArrayError(f"{part!r} goes on by 0", "go on by 1 at least")
    return range(first, last + 1, step)


def name_of(phase: str, element: int) -> str:
    """Return the name of a phase of one element: it is unique in the job."""
    return f"{phase}.{element}"


def name_in_spec(name: str) -> str:
    """Return the name that the specification has for a phase of an element; others as they are."""
    match = _OF_ELEMENT.match(name)
    return name if match is None else match["phase"]
