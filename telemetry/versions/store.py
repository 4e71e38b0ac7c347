"""Reports of many batches into Postgres, each if it is newer than the stored one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from psycopg import Cursor

from headroom.contracts import VersionReport
from telemetry.stream import Message
from telemetry.versions.lines import VersionLine

__all__ = ["FIELDS", "save"]

#: What has a version.
FIELDS = tuple(name for name in VersionReport.__struct_fields__ if name not in ("node", "at"))

_NAMES = ", ".join(FIELDS)
_SET = ", ".join(f"{name} = excluded.{name}" for name in FIELDS)
_KNOWN = ", ".join(f"known.{name}" for name in FIELDS)
_NEW = ", ".join(f"excluded.{name}" for name in FIELDS)
# A node that was removed in between takes its row with it. Rows come in order, so that two writers
# do not wait for each other.
_SAVE = f"""
INSERT INTO telemetry_nodeversions AS known (node_id, told_at, changed_at, {_NAMES})
SELECT new.node_id, new.told_at, new.told_at, {", ".join(f"new.{name}" for name in FIELDS)}
FROM unnest(%s::bigint[], %s::timestamptz[], {", ".join(["%s::text[]"] * len(FIELDS))})
    AS new (node_id, told_at, {_NAMES})
JOIN fleet_node ON fleet_node.id = new.node_id
ORDER BY new.node_id
ON CONFLICT (node_id) DO UPDATE
SET told_at = excluded.told_at, {_SET},
    changed_at = CASE WHEN ({_KNOWN}) IS DISTINCT FROM ({_NEW})
                      THEN excluded.told_at ELSE known.changed_at END
WHERE known.told_at <= excluded.told_at
"""  # noqa: S608 - the names are those of a struct


def save(cursor: Cursor[Any], messages: list[Message]) -> None:
    """Keep the newest report of each node in ``messages``."""
    newest: dict[int, VersionLine] = {}
    for message in messages:
        for line in message.packed.versions:
            known = newest.get(line.node_id)
            if known is None or known.report.at <= line.report.at:
                newest[line.node_id] = line
    if newest:
        rows = [_row(line) for line in newest.values()]
        cursor.execute(_SAVE, [list(column) for column in zip(*rows, strict=True)])


def _row(line: VersionLine) -> tuple[Any, ...]:
    told_at = datetime.fromtimestamp(line.report.at, UTC)
    return (line.node_id, told_at, *(getattr(line.report, name) for name in FIELDS))
