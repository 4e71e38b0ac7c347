"""The reports of many batches into Postgres, each if it is newer than the stored one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import Cursor

from headroom.contracts import LimitState
from telemetry.limits.models import LimitReport
from telemetry.stream import Message

__all__ = ["prune", "save"]

#: How long it is kept how a limit ended.
KEPT = timedelta(days=30)
_OVER = (LimitState.EXPIRED, LimitState.RESTORED, LimitState.REFUSED)

# A node or an agent that was removed in between takes its reports with it.
_SAVE = """
INSERT INTO telemetry_limitreport AS known
    (agent_id, node_id, gpu_index, "limit", kind, state, at, asked, original, applied, watts_before,
     watts_after, error, received_at, boot_id, seq)
SELECT new.*
FROM unnest(%s::bigint[], %s::bigint[], %s::smallint[], %s::text[], %s::text[], %s::text[],
            %s::timestamptz[], %s::float8[], %s::float8[], %s::float8[], %s::float8[], %s::float8[],
            %s::text[], %s::timestamptz[], %s::text[], %s::bigint[])
    AS new (agent_id, node_id, gpu_index, "limit", kind, state, at, asked, original, applied,
            watts_before, watts_after, error, received_at, boot_id, seq)
JOIN fleet_node ON fleet_node.id = new.node_id
JOIN telemetry_agent ON telemetry_agent.id = new.agent_id
ON CONFLICT ON CONSTRAINT limit_report_key DO UPDATE
SET kind = excluded.kind, state = excluded.state, at = excluded.at, asked = excluded.asked,
    original = excluded.original, applied = excluded.applied,
    watts_before = excluded.watts_before, watts_after = excluded.watts_after,
    error = excluded.error, received_at = excluded.received_at,
    boot_id = excluded.boot_id, seq = excluded.seq
WHERE known.boot_id <> excluded.boot_id OR known.seq <= excluded.seq
"""


def save(cursor: Cursor[Any], messages: list[Message]) -> None:
    """Keep the newest report of each limit and GPU in ``messages``."""
    newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for message in sorted(messages, key=lambda message: message.seq):
        for line in message.packed.limits:
            said = line.report
            key = (message.agent_id, line.node_id, said.gpu, said.limit)
            newest[key] = (
                *key,
                said.kind,
                said.state.value,
                datetime.fromtimestamp(said.at, UTC),
                said.asked,
                said.original,
                said.applied,
                said.watts_before,
                said.watts_after,
                said.error,
                datetime.fromtimestamp(message.received_at, UTC),
                message.boot_id,
                message.seq,
            )
    if newest:
        columns = zip(*newest.values(), strict=True)
        cursor.execute(_SAVE, [list(column) for column in columns])


def prune(now: datetime) -> None:
    """Forget limits that have been over for long."""
    LimitReport.objects.filter(state__in=_OVER, received_at__lt=now - KEPT).delete()
