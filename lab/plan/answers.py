"""The output of a command: lines and tables for people, or JSON with the units in its keys."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lab.plan import readable
from lab.plan.names import as_words, symbol_of

__all__ = ["Line", "as_json", "as_table", "as_text", "lines_of"]


@dataclasses.dataclass(frozen=True)
class Line:
    """A value under its name, which ends in its unit; dots separate a field from its record."""

    name: str
    value: Any
    #: How the value was put in.
    said: str = ""

    @property
    def label(self) -> str:
        return " ".join(map(as_words, self.name.split(".")))

    @property
    def symbol(self) -> str | None:
        return symbol_of(self.name.rpartition(".")[2])

    @property
    def is_column(self) -> bool:
        if isinstance(self.value, np.ndarray):
            return self.value.ndim == 1 and self.value.size > 0
        return isinstance(self.value, list)

    def cell(self, value: Any) -> str:
        """Return one value of this line as people read it."""
        if value is None:
            return "-"
        if isinstance(value, bool | np.bool_):
            return "yes" if value else "no"
        if isinstance(value, str):
            return value
        return readable.quantity(float(value), self.symbol)

    def cells(self) -> list[str]:
        """Return the text of the value: a line for each, where they are sentences."""
        if isinstance(self.value, np.ndarray | tuple) and not len(self.value):
            return ["none"]
        if isinstance(self.value, np.ndarray):
            return [f"{' by '.join(map(str, self.value.shape))} numbers: see --json"]
        if not isinstance(self.value, tuple):
            texts = [self.cell(self.value)]
        elif all(isinstance(item, str) for item in self.value):
            texts = list(self.value)
        else:
            texts = [", ".join(map(self.cell, self.value))]
        return [f"{text} ({self.said})" if _adds(self.said, text) else text for text in texts]


def lines_of(name: str, value: Any) -> Iterator[Line]:
    """Yield the values in ``value``: those of its fields, where it is a dataclass or a mapping."""
    parts = _parts(value)
    if parts is None:
        yield Line(name, value)
        return
    for part, inner in parts.items():
        yield from lines_of(f"{name}.{part}" if name else str(part), inner)


def as_text(given: Sequence[Line], found: Sequence[Line]) -> str:
    """Return arguments and results as text; lists stand in tables, a row for each value."""
    blocks = [_list([line for line in lines if not line.is_column]) for lines in (given, found)]
    columns: dict[int, list[Line]] = defaultdict(list)
    for line in (*given, *found):
        if line.is_column:
            columns[len(line.value)].append(line)
    return "\n\n".join(filter(None, [*blocks, *map(as_table, columns.values())]))


def as_table(lines: Sequence[Line]) -> str:
    """Return columns of one length under their labels: words to the left, numbers to the right."""
    columns = []
    for label, line in zip(_labels(lines), lines, strict=True):
        cells = [label, *map(line.cell, line.value)]
        width = max(map(len, cells))
        left = isinstance(line.value[0], str)
        columns.append([cell.ljust(width) if left else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def as_json(document: Mapping[str, Any]) -> str:
    """Return the document as JSON. Numbers that are not finite are null."""
    return json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def _list(lines: Sequence[Line]) -> str:
    rows = [
        ("" if position else label, cell)
        for label, line in zip(_labels(lines), lines, strict=True)
        for position, cell in enumerate(line.cells())
    ]
    width = max((len(label) for label, _ in rows), default=0)
    return "\n".join(f"{label:<{width}}  {cell}".rstrip() for label, cell in rows)


def _labels(lines: Sequence[Line]) -> list[str]:
    """Return the labels, with their unit where they are not distinct without."""
    labels = [line.label for line in lines]
    return [
        f"{line.label} ({line.symbol})"
        if line.symbol and labels.count(line.label) > 1
        else line.label
        for line in lines
    ]


def _adds(said: str, text: str) -> bool:
    """Return whether ``said`` tells more than ``text``: "14GB" says no more than "14 GB"."""
    bare, shown = (re.sub(r"[\s,_°]", "", each).replace("µ", "u") for each in (said, text))
    return bool(re.search(r"[^\d.]", bare)) and bare != shown


def _parts(value: Any) -> Mapping[Any, Any] | None:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value if isinstance(value, Mapping) else None


def _plain(value: Any) -> Any:
    parts = _parts(value)
    if parts is not None:
        return {str(name): _plain(inner) for name, inner in parts.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
