"""A batch as tables for people: the newest reading of everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from headroom.contracts import Columns, TelemetryBatch, blocks

__all__ = ["as_tables"]

#: What names the thing that a row is about.
_KEYS = ("gpu", "mount", "link", "meter", "job")


def as_tables(batch: TelemetryBatch) -> str:
    """Return a table for each block: a line for each field, a column for each thing."""
    named = {f"nodes[{i}]": report.node for i, report in enumerate(batch.nodes)}
    parts = []
    for path, block in blocks(batch):
        place, _, kind = path.rpartition(".")
        title = f"{kind} of {named[place]}" if place else kind
        parts.append("\n".join([title, *_lines(block)]))
    return "\n\n".join(parts) or "nothing was read"


def _lines(block: Columns) -> Iterator[str]:
    columns = {
        name: values for name, values in msgspec.structs.asdict(block).items() if values is not None
    }
    key = next((name for name in _KEYS if name in columns), None)
    rows = _newest_rows(columns[key] if key else [""] * len(block))
    if "xid" in columns and key != "gpu":
        rows = list(range(len(block)))
    cells = [
        [name, *(_shown(name, values[row]) for row in rows)] for name, values in columns.items()
    ]
    cells.sort(key=lambda line: line[0] != key)  # what names them comes first
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for name, *values in cells:
        padded = (value.rjust(width) for value, width in zip(values, widths[1:], strict=True))
        yield f"  {name.ljust(widths[0])}  {'  '.join(padded)}"


def _newest_rows(things: Iterable[object]) -> list[int]:
    """Return the last row of each thing, in the order in which the things came."""
    return list({thing: row for row, thing in enumerate(things)}.values())


def _shown(name: str, value: object) -> str:
    if value is None:
        return "-"
    if name == "ts" and isinstance(value, float):
        return datetime.fromtimestamp(value).astimezone().strftime("%H:%M:%S")
    return f"{value:.6g}" if isinstance(value, float) else str(value)
