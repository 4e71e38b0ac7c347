"""Taking a batch: everything that can be wrong with it is found, then it goes onto the stream.

What the stream carries is checked and packed: the drain neither decodes readings nor looks up
names a second time.
"""

from __future__ import annotations

from django.conf import settings

from fleet import snapshot
from headroom.contracts import TelemetryAck, TelemetryBatch
from telemetry import checks, naming, rows, stream, tasks
from telemetry.directory import AgentScope, names_of
from telemetry.models import IngestPosition
from telemetry.ways_in import rate
from telemetry.ways_in.errors import Overloaded, too_fast

#: What a refused body counts for: to go through it value by value takes far longer than to store
#: it would.
_BYTES_PER_ROW = 32


def take(batch: TelemetryBatch, scope: AgentScope, received_at: float) -> TelemetryAck:
    """Check ``batch``, which came from ``scope`` at ``received_at``, and append it to its stream.

    Raises :class:`BatchError` where it breaks the contract, is about another agent's things, comes
    too fast, or finds the stream full.
    """
    checks.check_agent(batch, scope)
    packed = _pack(batch, scope)
    _check_times(batch, packed, received_at)
    naming.check_boot_id(scope, batch.boot_id)
    naming.check(batch, packed, scope)
    return _append(message(batch, scope.agent_id, packed, received_at), scope)


def check_pace(scope: AgentScope) -> None:
    """Raise where the agent was told to wait: before what it sends is looked at."""
    if wait_s := rate.wait_s(scope.agent_id):
        raise too_fast(wait_s, _share(scope))


def charge(scope: AgentScope, body_bytes: int) -> None:
    """Count a body that costs work without going onto the stream against its agent's share.

    Raises :class:`TooFast` where that is used up.
    """
    charge_rows(scope, body_bytes // _BYTES_PER_ROW + 1)


def charge_rows(scope: AgentScope, rows: int) -> None:
    """Count ``rows`` against the agent's share. Raises :class:`TooFast` where that is used up."""
    share = _share(scope)
    try:
        stream.take_rows(scope.agent_id, rows, share)
    except stream.TooFast as exc:
        rate.hold(scope.agent_id, exc.wait_s)
        raise too_fast(exc.wait_s, share) from None


def _share(scope: AgentScope) -> rate.Share:
    return names_of(snapshot.current()).share_of(scope)


def message(
    batch: TelemetryBatch, agent_id: int, packed: rows.Packed, received_at: float
) -> stream.Message:
    """Return what the stream carries of a batch whose rows are ``packed``."""
    return stream.Message(
        layout=rows.LAYOUT,
        agent_id=agent_id,
        boot_id=batch.boot_id,
        seq=batch.seq,
        oldest_seq=batch.oldest_seq,
        sent_at=batch.sent_at,
        received_at=received_at,
        status=batch.status,
        packed=packed,
    )


def durable_seq(scope: AgentScope, boot_id: str) -> int:
    """Return how far the agent's batches of ``boot_id`` are committed."""
    cached = stream.durable_seq(stream.shard_of(scope.name), scope.agent_id, boot_id)
    return _stored_seq(scope, boot_id) if cached is None else cached


def _pack(batch: TelemetryBatch, scope: AgentScope) -> rows.Packed:
    try:
        return rows.pack(batch, scope, names_of(snapshot.current()))
    except rows.NotPackable:
        # What it names may be newer than this process's copy of the inventory.
        names = names_of(snapshot.fresh())
        checks.check_names(batch, scope, names)
        return rows.pack(batch, scope, names)


def _check_times(batch: TelemetryBatch, packed: rows.Packed, now: float) -> None:
    if packed.span is None:
        return
    oldest, newest = packed.span
    max_future_s = settings.TELEMETRY_MAX_FUTURE_S
    max_age_s = settings.TELEMETRY_RETENTION_H * 3600
    if newest > now + max_future_s or oldest < now - max_age_s:
        checks.check_times(batch, now=now, max_future_s=max_future_s, max_age_s=max_age_s)


def _append(message: stream.Message, scope: AgentScope) -> TelemetryAck:
    shard = stream.shard_of(scope.name)
    share = _share(scope)
    try:
        appended = stream.append(shard, message, share)
    except stream.Full:
        raise Overloaded(
            "backlog_full",
            f"{stream.backlog(shard)} batches wait to be stored",
            hint="keep the batch and send it again; look whether a Celery worker runs",
        ) from None
    except stream.TooFast as exc:
        rate.hold(scope.agent_id, exc.wait_s)
        raise too_fast(exc.wait_s, share) from None
    if appended.wants_drain:
        tasks.drain.delay(shard)
    durable = appended.durable_seq
    if durable is None:
        durable = _stored_seq(scope, message.boot_id)
    return TelemetryAck(durable_seq=durable, received_at=message.received_at)


def _stored_seq(scope: AgentScope, boot_id: str) -> int:
    """Look the durable seq up in Postgres, and leave it in Redis for the next batch."""
    stored = IngestPosition.objects.filter(agent_id=scope.agent_id, boot_id=boot_id)
    mark = stored.values_list("mark", flat=True).first() or 0
    stream.remember_durable(stream.shard_of(scope.name), scope.agent_id, boot_id, mark)
    return mark
