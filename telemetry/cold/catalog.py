"""The entries of the catalogue for a span of one table. Read often, so without models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Cursor

from telemetry.store.columns import Window

_PARTS = """
SELECT NULL AS id, relation, NULL, moved_below, NULL
FROM telemetry_detachedpartition
WHERE "table" = %(table)s AND start < %(end)s AND "end" > %(start)s
UNION ALL
SELECT id, path, columns, first_id, last_id
FROM telemetry_coldfile
WHERE "table" = %(table)s AND start < %(end)s AND "end" > %(start)s
ORDER BY 1 NULLS LAST, 2
"""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the cold tier, as far as its reader has to know it."""

    id: int
    path: str
    columns: tuple[str, ...]
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class Detached:
    """A partition that is being moved; its rows of lower ids than ``first_id`` are in files."""

    relation: str
    first_id: int


@dataclass(frozen=True, slots=True)
class Parts:
    """Where rows of a span lie besides their table: files, the oldest first, and partitions."""

    files: tuple[File, ...]
    detached: tuple[Detached, ...]


def parts(cursor: Cursor[Any], table: str, window: Window) -> Parts:
    """Return files and partitions with rows of ``table`` in ``window`` besides it. One query."""
    cursor.execute(_PARTS, {"table": table, "start": window.start_at, "end": window.end_at})
    rows = cursor.fetchall()
    return Parts(
        files=tuple(
            File(number, path, tuple(columns), first, last)
            for number, path, columns, first, last in rows
            if number is not None
        ),
        detached=tuple(
            Detached(relation, first_id)
            for number, relation, _, first_id, _ in rows
            if number is None
        ),
    )
