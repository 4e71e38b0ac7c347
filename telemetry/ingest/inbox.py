"""The inbox: requests of senders that keep nothing, in Postgres until their rows are stored.

An agent keeps a batch until it is durable. Prometheus and OpenTelemetry forget a request as soon as
it is answered, and send it again, byte for byte, when no answer came. So here the server keeps it:
the answer comes after the commit, and the digest of a request tells when it comes a second time.

One forwarder takes what lies here to the stream, as batches of an agent with a boot_id of its own
and a seq, and again for as long as they are not durable. To the writer they are like any other's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import structlog
from django.conf import settings
from django.db import connection, transaction

from fleet import locks, snapshot
from fleet.snapshot import FleetArrays
from headroom.contracts import NodeReport, TelemetryBatch
from telemetry import metrics, stream
from telemetry.checks import SERVER_BOOT_ID
from telemetry.directory import AgentScope, Names, names_of
from telemetry.ingest.rows import Place, Rows, merged, reports_of, rows_of
from telemetry.rows import pack

__all__ = ["BOOT_ID", "Forwarded", "forward", "is_full", "only_one", "prune", "put"]

log = structlog.get_logger(__name__)

#: The boot_id of the batches that the forwarder makes. No agent may use it.
BOOT_ID = f"{SERVER_BOOT_ID}inbox"
#: Rows that one batch of the forwarder has, about.
_ROWS_PER_BATCH = 20_000
#: Requests that are put into batches at once, and batches that are sent at once.
_REQUESTS_PER_ROUND = 10_000
_BATCHES_PER_ROUND = 50
#: What was sent and is not durable is sent again after so long at first, and then each time after
#: as long as it is old.
_RESEND_AFTER_S = 10.0
#: Of an agent's requests those of so many batches stay known after they are stored.
_KNOWN_BATCHES = 5_000
#: And of one that sends many small ones, so many requests at most.
_KNOWN_REQUESTS = 200_000
#: The two keys of the forwarder's advisory lock.
_LOCK = (0x48454146, 0)

_PUT = """
INSERT INTO telemetry_pushedrequest (agent_id, digest, received_at, rows, body)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (agent_id, digest) DO NOTHING
"""
_IS_FULL = "SELECT 1 FROM telemetry_pushedrequest WHERE body IS NOT NULL OFFSET %s LIMIT 1"
_FORGET_DURABLE = """
UPDATE telemetry_pushedrequest AS request SET body = NULL
FROM telemetry_ingestposition AS position
WHERE request.body IS NOT NULL AND request.seq <= position.mark
  AND position.agent_id = request.agent_id AND position.boot_id = %s
"""
_WAITING = """
SELECT id, agent_id, rows, received_at FROM telemetry_pushedrequest
WHERE body IS NOT NULL AND seq IS NULL ORDER BY id LIMIT %s
"""
_LAST_SEQS = """
SELECT agent.id, greatest(
    (SELECT max(seq) FROM telemetry_pushedrequest WHERE agent_id = agent.id),
    (SELECT mark FROM telemetry_ingestposition WHERE agent_id = agent.id AND boot_id = %s), 0)
FROM unnest(%s::bigint[]) AS agent (id)
"""
_ASSIGN = """
UPDATE telemetry_pushedrequest AS request SET seq = new.seq
FROM unnest(%s::bigint[], %s::bigint[]) AS new (id, seq) WHERE request.id = new.id
"""
_TO_SEND = """
SELECT request.agent_id, agent.name, request.seq, max(request.received_at),
       array_agg(request.body ORDER BY request.id)
FROM telemetry_pushedrequest AS request JOIN telemetry_agent AS agent ON agent.id = agent_id
WHERE request.body IS NOT NULL AND request.seq IS NOT NULL
  AND (request.sent_at IS NULL OR %s - request.sent_at
       > greatest(make_interval(secs => %s), request.sent_at - request.received_at))
GROUP BY request.agent_id, agent.name, request.seq
ORDER BY request.agent_id, request.seq LIMIT %s
"""
_OLDEST_SEQS = """
SELECT agent_id, min(seq) FROM telemetry_pushedrequest
WHERE body IS NOT NULL AND seq IS NOT NULL GROUP BY agent_id
"""
_SENT = """
UPDATE telemetry_pushedrequest AS request SET sent_at = %s
FROM unnest(%s::bigint[], %s::bigint[]) AS sent (agent_id, seq)
WHERE request.agent_id = sent.agent_id AND request.seq = sent.seq
"""
_GIVE_UP = """
UPDATE telemetry_pushedrequest SET body = NULL WHERE body IS NOT NULL AND received_at < %s
RETURNING rows
"""
_FORGET_OLD = """
DELETE FROM telemetry_pushedrequest AS request
USING (SELECT agent_id, max(seq) AS seq FROM telemetry_pushedrequest GROUP BY agent_id) AS newest
WHERE request.agent_id = newest.agent_id AND request.body IS NULL
  AND coalesce(request.seq, 0) <= newest.seq - %s
"""

_FORGET_MANY = """
DELETE FROM telemetry_pushedrequest AS request
USING (SELECT DISTINCT agent_id FROM telemetry_pushedrequest) AS each,
LATERAL (
    SELECT seq FROM telemetry_pushedrequest WHERE agent_id = each.agent_id AND seq IS NOT NULL
    ORDER BY seq DESC OFFSET %s LIMIT 1
) AS last
WHERE request.agent_id = each.agent_id AND request.body IS NULL AND request.seq < last.seq
"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[NodeReport]).decode


def put(agent_id: int, digest: bytes, rows: Rows, received_at: float) -> bool:
    """Keep the rows of a request. False: a request of this digest was kept before."""
    body = _encode(reports_of(rows))
    at = datetime.fromtimestamp(received_at, UTC)
    with connection.cursor() as cursor:
        cursor.execute(_PUT, [agent_id, digest, at, len(rows), body])
        return bool(cursor.rowcount)


def is_full() -> bool:
    """Say whether as many requests wait as may wait in a stream."""
    with connection.cursor() as cursor:
        cursor.execute(_IS_FULL, [settings.TELEMETRY_MAX_BACKLOG - 1])
        return cursor.fetchone() is not None


def only_one() -> AbstractContextManager[bool]:
    """Hold the forwarder's lock; the value is False where another process holds it."""
    return locks.only_one(*_LOCK)


@dataclass(frozen=True)
class Forwarded:
    """The outcome of one round of the forwarder."""

    batches: int
    #: streams that a writer is to be started for
    shards_to_drain: frozenset[int]


def forward(now: float) -> Forwarded:
    """Put requests that are due on the stream. One forwarder at a time: see :func:`only_one`."""
    at = datetime.fromtimestamp(now, UTC)
    with transaction.atomic():
        _forget_durable()
        _assign(at)
    # Committed before it is sent: what the stream carries under a seq never changes.
    return _send(at)


def _forget_durable() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_DURABLE, [BOOT_ID])


def _assign(now: datetime) -> None:
    """Group requests into batches, for each agent whose oldest request has waited long enough."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, [_REQUESTS_PER_ROUND])
        waiting: dict[int, list[tuple[int, int, datetime]]] = {}
        for request, agent_id, rows, received_at in cursor.fetchall():
            waiting.setdefault(agent_id, []).append((request, rows, received_at))
        due = now - timedelta(seconds=settings.TELEMETRY_ASSEMBLY_S)
        ready = {agent: found for agent, found in waiting.items() if found[0][2] <= due}
        if not ready:
            return
        cursor.execute(_LAST_SEQS, [BOOT_ID, list(ready)])
        ids: list[int] = []
        seqs: list[int] = []
        for agent_id, last_seq in cursor.fetchall():
            found = ready[agent_id]
            ids.extend(request for request, _, _ in found)
            seqs.extend(_seqs(last_seq + 1, [rows for _, rows, _ in found]))
        cursor.execute(_ASSIGN, [ids, seqs])


def _seqs(first: int, sizes: list[int]) -> Iterator[int]:
    """Yield the seq for each request of so many rows: several share a batch."""
    seq, filled = first, 0
    for size in sizes:
        if filled and filled + size > _ROWS_PER_BATCH:
            seq, filled = seq + 1, 0
        filled += size
        yield seq


def _send(now: datetime) -> Forwarded:
    with connection.cursor() as cursor:
        cursor.execute(_TO_SEND, [now, _RESEND_AFTER_S, _BATCHES_PER_ROUND])
        to_send = [_Outgoing(*row) for row in cursor.fetchall()]
        if not to_send:
            return Forwarded(0, frozenset())
        cursor.execute(_OLDEST_SEQS)
        oldest = dict(cursor.fetchall())
    fleet = snapshot.fresh()
    sent: list[_Outgoing] = []
    shards: set[int] = set()
    for each in to_send:
        shard = stream.shard_of(each.agent_name)
        try:
            # Its rows were counted when it was put here.
            message = _message(each, oldest[each.agent_id], fleet)
            appended = stream.append(shard, message)
        except stream.Full:  # later
            break
        sent.append(each)
        if appended.wants_writer:
            shards.add(shard)
    with connection.cursor() as cursor:
        cursor.execute(_SENT, [now, [each.agent_id for each in sent], [each.seq for each in sent]])
    return Forwarded(len(sent), frozenset(shards))


@dataclass(frozen=True)
class _Outgoing:
    """A batch to be sent: the bodies of its requests."""

    agent_id: int
    agent_name: str
    seq: int
    received_at: datetime
    bodies: list[bytes]


def _message(each: _Outgoing, oldest_seq: int, fleet: FleetArrays) -> stream.Message:
    names = names_of(fleet)
    rows = merged(rows_of(_decode(body)) for body in each.bodies)
    known = {key: row for key, row in rows.items() if _is_known(key[0], names)}
    metrics.DROPPED_ROWS.inc(len(rows) - len(known))
    received_at = each.received_at.timestamp()
    batch = TelemetryBatch(
        agent=each.agent_name,
        boot_id=BOOT_ID,
        seq=each.seq,
        oldest_seq=oldest_seq,
        sent_at=received_at,
        nodes=reports_of(known),
    )
    # Whose the rows are was looked at when they came.
    anywhere = AgentScope(
        each.agent_id, each.agent_name, frozenset(), frozenset(fleet.sites.ids.tolist())
    )
    packed = pack(batch, anywhere, names)
    return stream.Message.of(batch, each.agent_id, packed, received_at)


def _is_known(place: Place, names: Names) -> bool:
    """Say whether the inventory still has the GPU."""
    node = names.node(place.node)
    return node is not None and place.gpu in node.gpu_ids


def prune(now: float) -> None:
    """Give up requests not stored for as long as samples are kept; forget old digests."""
    limit = datetime.fromtimestamp(now, UTC) - timedelta(hours=settings.TELEMETRY_RETENTION_H)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_GIVE_UP, [limit])
        if given_up := [rows for (rows,) in cursor.fetchall()]:
            metrics.DROPPED_ROWS.inc(sum(given_up))
            log.error("pushed_requests_given_up", requests=len(given_up), rows=sum(given_up))
        cursor.execute(_FORGET_OLD, [_KNOWN_BATCHES])
        cursor.execute(_FORGET_MANY, [_KNOWN_REQUESTS])
