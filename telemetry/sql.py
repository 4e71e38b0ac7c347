"""The writer's statements, each over many rows at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from psycopg import Cursor

from telemetry.positions import Position
from telemetry.rows import Mount, XidLine

#: Agent id and boot_id.
PositionKey: TypeAlias = tuple[int, str]

# An agent may have gone since, as after a restore of a backup from before it was enrolled.
_INSERT_POSITIONS = """
INSERT INTO telemetry_ingestposition (agent_id, boot_id, mark, beyond, updated_at)
SELECT new.agent_id, new.boot_id, 0, '{}', now()
FROM unnest(%s::bigint[], %s::text[]) AS new (agent_id, boot_id)
JOIN telemetry_agent ON telemetry_agent.id = new.agent_id
ON CONFLICT (agent_id, boot_id) DO NOTHING
"""

_READ_POSITIONS = """
SELECT agent_id, boot_id, mark, beyond
FROM telemetry_ingestposition
JOIN unnest(%s::bigint[], %s::text[]) AS wanted (agent_id, boot_id) USING (agent_id, boot_id)
"""

# ``beyond`` travels as text, since an array of arrays of unlike length is none to Postgres.
_SAVE_POSITIONS = """
UPDATE telemetry_ingestposition AS position
SET mark = new.mark, beyond = new.beyond::bigint[], updated_at = now()
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::text[])
    AS new (agent_id, boot_id, known_mark, known_beyond, mark, beyond)
WHERE position.agent_id = new.agent_id AND position.boot_id = new.boot_id
  AND position.mark = new.known_mark AND position.beyond = new.known_beyond::bigint[]
"""

# A batch that was held up does not set the agent back.
_NOTE_AGENTS = """
UPDATE telemetry_agent AS agent
SET last_seen_at = new.last_seen_at,
    heard_to = greatest(agent.heard_to, new.heard_to),
    lag_s = coalesce(new.lag_s, agent.lag_s),
    skew_s = new.skew_s,
    version = coalesce(new.version, agent.version),
    spooled_batches = coalesce(new.spooled_batches, agent.spooled_batches),
    dropped_batches = coalesce(new.dropped_batches, agent.dropped_batches),
    thinned_rows = coalesce(new.thinned_rows, agent.thinned_rows),
    errors = coalesce(new.errors, agent.errors),
    last_error = coalesce(new.last_error, agent.last_error)
FROM unnest(%s::bigint[], %s::timestamptz[], %s::float8[], %s::float8[], %s::text[], %s::bigint[],
            %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::timestamptz[])
    AS new (id, last_seen_at, lag_s, skew_s, version, spooled_batches, dropped_batches,
            thinned_rows, errors, last_error, heard_to)
WHERE agent.id = new.id
  AND (agent.last_seen_at IS NULL OR agent.last_seen_at <= new.last_seen_at)
"""

# ``greatest`` passes NULL over: of an agent that was never heard nothing was missed.
_NOTE_SILENCES = """
INSERT INTO telemetry_agentsilence (agent_id, since, until)
SELECT agent.id, greatest(new.since, agent.heard_to), new.until
FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[]) AS new (id, since, until)
JOIN telemetry_agent AS agent ON agent.id = new.id
WHERE new.until > greatest(new.since, agent.heard_to) + %s * interval '1 second'
ON CONFLICT (agent_id, since) DO NOTHING
"""

# What is left of each silence on both sides, unless readings may be so far apart.
_FILL_SILENCES = """
WITH filled AS (
    DELETE FROM telemetry_agentsilence
    WHERE agent_id = %(agent_id)s AND since < %(until)s AND until > %(since)s
    RETURNING since, until
)
INSERT INTO telemetry_agentsilence (agent_id, since, until)
SELECT %(agent_id)s, rest.since, rest.until
FROM filled, LATERAL (VALUES (filled.since, %(since)s), (%(until)s, filled.until))
    AS rest (since, until)
WHERE rest.until > rest.since + %(gap_s)s * interval '1 second'
ON CONFLICT (agent_id, since) DO NOTHING
"""

_NOTE_REFUSALS = """
UPDATE telemetry_agent AS agent
SET refused_rows = agent.refused_rows + new.rows, last_refusal = new.told, last_refused_at = now()
FROM (
    SELECT agent_id, sum(rows)::bigint AS rows, max(told) AS told
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS each (agent_id, rows, told)
    GROUP BY agent_id
) AS new
WHERE agent.id = new.agent_id
"""

_INSERT_JOBS = """
INSERT INTO telemetry_reportedjob (name) SELECT unnest(%s::text[]) ON CONFLICT (name) DO NOTHING
"""

_READ_JOBS = """
SELECT name, id FROM telemetry_reportedjob
JOIN unnest(%s::text[]) AS wanted (name) USING (name)
"""

# To the day: a name that is used all the time is written once in it. Somebody else may be at it.
_SEEN_JOBS = """
UPDATE telemetry_reportedjob AS job SET seen_at = now()
FROM (
    SELECT id FROM telemetry_reportedjob
    WHERE id = ANY(%s::bigint[]) AND seen_at < now() - interval '1 day'
    FOR NO KEY UPDATE SKIP LOCKED
) AS old WHERE job.id = old.id
"""

_SEEN_MOUNTS = _SEEN_JOBS.replace("telemetry_reportedjob", "telemetry_mount")

# A node that was removed in between takes its mounts with it.
_INSERT_MOUNTS = """
INSERT INTO telemetry_mount (node_id, name)
SELECT new.node_id, new.name
FROM unnest(%s::bigint[], %s::text[]) AS new (node_id, name)
JOIN fleet_node ON fleet_node.id = new.node_id
ON CONFLICT (node_id, name) DO NOTHING
"""

_READ_MOUNTS = """
SELECT node_id, name, id
FROM telemetry_mount
JOIN unnest(%s::bigint[], %s::text[]) AS wanted (node_id, name) USING (node_id, name)
"""

_INSERT_XIDS = """
INSERT INTO telemetry_xidevent (node_id, gpu_id, ts, xid, pci, text)
SELECT new.node_id, fleet_gpu.id, to_timestamp(new.ts), new.xid, new.pci, new.text
FROM unnest(%s::bigint[], %s::bigint[], %s::float8[], %s::int[], %s::text[], %s::text[])
    AS new (node_id, gpu_id, ts, xid, pci, text)
JOIN fleet_node ON fleet_node.id = new.node_id
LEFT JOIN fleet_gpu ON fleet_gpu.id = new.gpu_id
ON CONFLICT DO NOTHING
"""


class AgentNote(NamedTuple):
    """The status of an agent by its newest batch; None leaves the earlier value."""

    agent_id: int
    last_seen_at: datetime
    lag_s: float | None
    skew_s: float
    version: str | None
    spooled_batches: int | None
    dropped_batches: int | None
    thinned_rows: int | None
    errors: int | None
    last_error: str | None
    heard_to: datetime | None


class Refusal(NamedTuple):
    """How many rows of an agent were refused when they were to be stored, and the first cause."""

    agent_id: int
    rows: int
    told: str


class PositionsMoved(Exception):
    """Another writer has stored batches of the same agents in between: nothing may be committed."""


class Positions:
    """The positions of agents as Postgres has them, so far as this writer has seen any.

    They are kept from round to round. That another writer moves them in between cannot be while
    each has its shard to itself; where it happens all the same, as after a change of
    TELEMETRY_SHARDS, the save finds out.
    """

    def __init__(self) -> None:
        self._known: dict[PositionKey, tuple[int, str]] = {}

    def load(self, cursor: Cursor[Any], keys: set[PositionKey]) -> dict[PositionKey, Position]:
        """Return the position for each (agent id, boot_id) whose agent is there, made where new."""
        self._read(cursor, keys)
        if new := keys - self._known.keys():
            cursor.execute(_INSERT_POSITIONS, _transposed(sorted(new), 2))
            self._read(cursor, new)
        return {key: _position(*self._known[key]) for key in keys & self._known.keys()}

    def _read(self, cursor: Cursor[Any], keys: set[PositionKey]) -> None:
        if unknown := keys - self._known.keys():
            cursor.execute(_READ_POSITIONS, _transposed(sorted(unknown), 2))
            for agent_id, boot_id, mark, beyond in cursor.fetchall():
                self._known[agent_id, boot_id] = (mark, array_text(sorted(beyond)))

    def save(self, cursor: Cursor[Any], positions: dict[PositionKey, Position]) -> None:
        """Write back those of ``positions`` that moved. Raises :class:`PositionsMoved`.

        After a failure, also one of the commit, this object says nothing true any more.
        """
        now = {key: (p.mark, array_text(sorted(p.beyond))) for key, p in positions.items()}
        moved = [
            (*key, *self._known[key], *new) for key, new in sorted(now.items())
            if new != self._known[key]
        ]  # fmt: skip
        if not moved:
            return
        cursor.execute(_SAVE_POSITIONS, _transposed(moved, 6))
        if cursor.rowcount != len(moved):
            raise PositionsMoved
        self._known.update(now)


def _position(mark: int, beyond: str) -> Position:
    if beyond == "{}":
        return Position(mark)
    return Position(mark, {int(seq) for seq in beyond.strip("{}").split(",") if seq})


def load_jobs(cursor: Cursor[Any], names: set[str]) -> dict[str, int]:
    """Return the ids of jobs by name, and note that they were named. One is made where new.

    The web process has made those that nobody placed, as far as their agent may name them.
    """
    found = _read_jobs(cursor, names)
    if new := names - found.keys():
        cursor.execute(_INSERT_JOBS, _transposed([(name,) for name in sorted(new)], 1))
        found |= _read_jobs(cursor, new)
    cursor.execute(_SEEN_JOBS, _transposed([(pk,) for pk in found.values()], 1))
    return found


def _read_jobs(cursor: Cursor[Any], names: set[str]) -> dict[str, int]:
    cursor.execute(_READ_JOBS, _transposed([(name,) for name in names], 1))
    return dict(cursor.fetchall())


def load_mounts(cursor: Cursor[Any], mounts: set[Mount]) -> dict[Mount, int]:
    """Return the ids of ``mounts``, each made where new, but of those whose node is no more.

    Notes that they have reported.
    """
    found = _read_mounts(cursor, mounts)
    if new := mounts - found.keys():
        rows = sorted((mount.node_id, mount.name) for mount in new)
        cursor.execute(_INSERT_MOUNTS, _transposed(rows, 2))
        found |= _read_mounts(cursor, new)
    cursor.execute(_SEEN_MOUNTS, _transposed([(pk,) for pk in found.values()], 1))
    return found


def _read_mounts(cursor: Cursor[Any], mounts: set[Mount]) -> dict[Mount, int]:
    wanted = _transposed([(mount.node_id, mount.name) for mount in mounts], 2)
    cursor.execute(_READ_MOUNTS, wanted)
    return {Mount(node_id, name): pk for node_id, name, pk in cursor.fetchall()}


def save_xids(cursor: Cursor[Any], lines: list[XidLine]) -> None:
    """Write Xid errors down, each once: a kernel log may be read twice."""
    if lines:
        rows = [(e.node_id, e.gpu_id, e.ts, e.xid, e.pci, e.text) for e in lines]
        cursor.execute(_INSERT_XIDS, _transposed(rows, 6))


def note_agents(cursor: Cursor[Any], notes: list[AgentNote]) -> None:
    """Save the status of agents by their newest batches."""
    if notes:
        cursor.execute(_NOTE_AGENTS, _transposed(notes, 11))


def note_silences(
    cursor: Cursor[Any], found: list[tuple[int, datetime | None, datetime]], *, gap_s: float
) -> None:
    """Write down silences of over ``gap_s`` by agent, before agents are noted.

    Each begins when it says, or where its agent was last heard if that is later, or it says none.
    """
    if found:
        cursor.execute(_NOTE_SILENCES, [*_transposed(found, 3), gap_s])


def fill_silences(
    cursor: Cursor[Any], agent_id: int, since: datetime, until: datetime, *, gap_s: float
) -> None:
    """Take a time of which an agent has readings after all out of its silences."""
    given = {"agent_id": agent_id, "since": since, "until": until, "gap_s": gap_s}
    cursor.execute(_FILL_SILENCES, given)


def note_refusals(cursor: Cursor[Any], refusals: list[Refusal]) -> None:
    """Add refused rows to what is known of their agents."""
    if refusals:
        cursor.execute(_NOTE_REFUSALS, _transposed(refusals, 3))


def _transposed(rows: Sequence[tuple[Any, ...]], width: int) -> list[str]:
    """Return the columns of ``rows``, as ``unnest`` wants them."""
    columns = zip(*rows, strict=True) if rows else [()] * width
    return [array_text(column) for column in columns]


def array_text(values: Iterable[Any]) -> str:
    """Return numbers, texts, moments and None as Postgres reads an array of one dimension.

    Written out here: psycopg looks at each element by itself, which for a thousand agents takes
    longer than their rows.
    """
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: str | float | datetime | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int | float):
        return str(value)
    quoted = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'
