"""The drain's statements, each over many rows at once."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any

from psycopg import Cursor

from telemetry.models import ThrottleEvent
from telemetry.positions import Position
from telemetry.throttle import Changes, Event

_INSERT_POSITIONS = """
INSERT INTO telemetry_ingestposition (agent_id, boot_id, mark, beyond, updated_at)
SELECT agent_id, boot_id, 0, '{}', now()
FROM unnest(%s::bigint[], %s::text[]) AS new (agent_id, boot_id)
ON CONFLICT (agent_id, boot_id) DO NOTHING
"""

# Ordered, so that two drains that meet here (after a change of TELEMETRY_SHARDS) cannot deadlock.
_LOCK_POSITIONS = """
SELECT agent_id, boot_id, mark, beyond
FROM telemetry_ingestposition
JOIN unnest(%s::bigint[], %s::text[]) AS wanted (agent_id, boot_id) USING (agent_id, boot_id)
ORDER BY agent_id, boot_id
FOR UPDATE OF telemetry_ingestposition
"""

# ``beyond`` travels as text, since an array of arrays of unlike length is none to Postgres.
_SAVE_POSITIONS = """
UPDATE telemetry_ingestposition AS position
SET mark = new.mark, beyond = new.beyond::bigint[], updated_at = now()
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[])
    AS new (agent_id, boot_id, mark, beyond)
WHERE position.agent_id = new.agent_id AND position.boot_id = new.boot_id
"""

# A batch that was held up does not set the agent back.
_NOTE_AGENTS = """
UPDATE telemetry_agent AS agent
SET last_seen_at = new.last_seen_at,
    lag_s = coalesce(new.lag_s, agent.lag_s),
    skew_s = new.skew_s,
    version = coalesce(new.version, agent.version),
    spooled_batches = coalesce(new.spooled_batches, agent.spooled_batches),
    dropped_batches = coalesce(new.dropped_batches, agent.dropped_batches),
    errors = coalesce(new.errors, agent.errors),
    last_error = coalesce(new.last_error, agent.last_error)
FROM unnest(%s::bigint[], %s::timestamptz[], %s::float8[], %s::float8[], %s::text[], %s::bigint[],
            %s::bigint[], %s::bigint[], %s::text[])
    AS new (id, last_seen_at, lag_s, skew_s, version, spooled_batches, dropped_batches, errors,
            last_error)
WHERE agent.id = new.id
  AND (agent.last_seen_at IS NULL OR agent.last_seen_at <= new.last_seen_at)
"""

# A GPU that was removed in between takes its event with it.
_INSERT_EVENTS = """
INSERT INTO telemetry_throttleevent
    (gpu_id, cause, opened_at, updated_at, closed_at, readings, peak_temp_c, peak_power_w,
     min_sm_mhz)
SELECT new.gpu_id, new.cause, to_timestamp(new.opened_at), to_timestamp(new.updated_at),
       to_timestamp(new.closed_at), new.readings, new.peak_temp_c, new.peak_power_w, new.min_sm_mhz
FROM unnest(%s::bigint[], %s::int[], %s::float8[], %s::float8[], %s::float8[], %s::int[],
            %s::float8[], %s::float8[], %s::float8[])
    AS new (gpu_id, cause, opened_at, updated_at, closed_at, readings, peak_temp_c, peak_power_w,
            min_sm_mhz)
JOIN fleet_gpu ON fleet_gpu.id = new.gpu_id
"""

_UPDATE_EVENTS = """
UPDATE telemetry_throttleevent AS event
SET updated_at = to_timestamp(new.updated_at),
    closed_at = to_timestamp(new.closed_at),
    readings = new.readings,
    peak_temp_c = new.peak_temp_c,
    peak_power_w = new.peak_power_w,
    min_sm_mhz = new.min_sm_mhz
FROM unnest(%s::bigint[], %s::int[], %s::float8[], %s::float8[], %s::float8[], %s::int[],
            %s::float8[], %s::float8[], %s::float8[])
    AS new (gpu_id, cause, opened_at, updated_at, closed_at, readings, peak_temp_c, peak_power_w,
            min_sm_mhz)
WHERE event.gpu_id = new.gpu_id AND event.cause = new.cause AND event.closed_at IS NULL
"""


@dataclass(frozen=True)
class AgentNote:
    """What an agent's newest batch says of it; None leaves what was known."""

    agent_id: int
    last_seen_at: datetime
    lag_s: float | None
    skew_s: float
    version: str | None
    spooled_batches: int | None
    dropped_batches: int | None
    errors: int | None
    last_error: str | None


def lock_positions(
    cursor: Cursor[Any], keys: set[tuple[int, str]]
) -> dict[tuple[int, str], Position]:
    """Return the position for each (agent id, boot_id), made where new, locked to the commit."""
    wanted = _transposed(sorted(keys), 2)
    cursor.execute(_INSERT_POSITIONS, wanted)
    cursor.execute(_LOCK_POSITIONS, wanted)
    return {
        (agent_id, boot_id): Position(mark, set(beyond))
        for agent_id, boot_id, mark, beyond in cursor.fetchall()
    }


def save_positions(cursor: Cursor[Any], positions: dict[tuple[int, str], Position]) -> None:
    """Write positions back."""
    rows = [
        (agent_id, boot_id, position.mark, _array_text(position.beyond))
        for (agent_id, boot_id), position in positions.items()
    ]
    cursor.execute(_SAVE_POSITIONS, _transposed(rows, 4))


def note_agents(cursor: Cursor[Any], notes: list[AgentNote]) -> None:
    """Write down what agents said of themselves."""
    cursor.execute(_NOTE_AGENTS, _transposed([astuple(note) for note in notes], 9))


def open_events() -> list[Event]:
    """Return all throttle events that still go on: tens of thousands, on a fleet under caps."""
    found = ThrottleEvent.objects.open().values_list(
        "gpu_id",
        "cause",
        "opened_at",
        "updated_at",
        "readings",
        "peak_temp_c",
        "peak_power_w",
        "min_sm_mhz",
    )
    return [
        Event(gpu_id, cause, opened.timestamp(), updated.timestamp(), None, readings, *extremes)
        for gpu_id, cause, opened, updated, readings, *extremes in found
    ]


def save_events(cursor: Cursor[Any], changes: Changes) -> None:
    """Write what readings did to the events. Closing comes first: an event may follow at once."""
    if changed := changes.updated + changes.closed:
        cursor.execute(_UPDATE_EVENTS, _transposed([astuple(event) for event in changed], 9))
    if changes.opened:
        cursor.execute(_INSERT_EVENTS, _transposed([astuple(e) for e in changes.opened], 9))


def _array_text(values: set[int]) -> str:
    return "{" + ",".join(map(str, sorted(values))) + "}"


def _transposed(rows: list[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Return the columns of ``rows``, as ``unnest`` wants them."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
