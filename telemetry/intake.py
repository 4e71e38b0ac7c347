"""Taking a batch: everything that can be wrong with it is found, then it goes onto the stream.

What the stream carries is checked and packed: the drain neither decodes readings nor looks up
names a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import redis
from django.conf import settings
from django.db import DatabaseError

from fleet import snapshot
from headroom.contracts import TelemetryAck, TelemetryBatch
from telemetry import checks, disk, naming, rows, set_back, stream, tasks
from telemetry.directory import AgentScope, names_of
from telemetry.models import IngestPosition
from telemetry.ways_in import rate
from telemetry.ways_in.errors import Overloaded, disk_full, too_fast

#: What a refused body counts for: to go through it value by value takes far longer than to store
#: it would.
_BYTES_PER_ROW = 32


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch that may be appended, and whose it is."""

    message: stream.Message
    scope: AgentScope
    shard: int

    @property
    def share(self) -> rate.Share:
        """How much its agent may send."""
        return _share(self.scope)


def take(batch: TelemetryBatch, scope: AgentScope, received_at: float) -> TelemetryAck:
    """Check ``batch``, which came from ``scope`` at ``received_at``, and append it to its stream.

    Raises :class:`BatchError` where it breaks the contract, is about another agent's things, comes
    too fast, or finds the stream full.
    """
    checked = check(batch, scope, received_at)
    try:
        return _ack(checked, stream.append(checked.shard, checked.message, checked.share))
    except stream.Full:
        raise Overloaded(
            "backlog_full",
            f"{stream.backlog(checked.shard)} batches wait to be stored",
            hint="keep the batch and send it again; look whether a Celery worker runs",
        ) from None
    except stream.TooFast as exc:
        rate.hold(scope.agent_id, exc.wait_s)
        raise too_fast(exc.wait_s, checked.share) from None


def take_all(batches: Sequence[Checked | None]) -> list[TelemetryAck | None]:
    """Append batches in one round trip; None for what is None or could not be appended."""
    checked = [each for each in batches if each is not None]
    outcomes = iter(_taken(checked))
    return [None if each is None else next(outcomes) for each in batches]


def _taken(batches: Sequence[Checked]) -> list[TelemetryAck | None]:
    try:
        outcomes = stream.append_all([(each.shard, each.message, each.share) for each in batches])
        return [
            _ack(each, outcome) if isinstance(outcome, stream.Appended) else None
            for each, outcome in zip(batches, outcomes, strict=True)
        ]
    except (redis.RedisError, DatabaseError):
        return [None] * len(batches)


class Waits(Exception):
    """The batch brings names for which the database has to be asked."""


def check(
    batch: TelemetryBatch, scope: AgentScope, received_at: float, *, may_wait: bool = True
) -> Checked:
    """Return ``batch`` as it is appended. Raises :class:`BatchError` where it may not be.

    Raises :class:`Waits` where its names are new and it may not wait for the database.
    """
    if disk.is_full():
        raise disk_full()
    checks.check_agent(batch, scope)
    packed = _pack(batch, scope)
    _check_times(batch, packed, received_at)
    if not may_wait and not naming.are_known(batch, packed, scope):
        raise Waits
    naming.check_boot_id(scope, batch.boot_id)
    naming.check(batch, packed, scope)
    return Checked(
        message(batch, scope.agent_id, packed, received_at), scope, stream.shard_of(scope.name)
    )


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
    if newest > now + max_future_s:
        max_future_s = set_back.max_future_s()
    if newest > now + max_future_s or oldest < now - max_age_s:
        checks.check_times(batch, now=now, max_future_s=max_future_s, max_age_s=max_age_s)


def _ack(checked: Checked, appended: stream.Appended) -> TelemetryAck:
    if appended.wants_drain:
        tasks.drain.delay(checked.shard)
    durable = appended.durable_seq
    if durable is None:
        durable = _stored_seq(checked.scope, checked.message.boot_id)
    return TelemetryAck(durable_seq=durable, received_at=checked.message.received_at)


def _stored_seq(scope: AgentScope, boot_id: str) -> int:
    """Look the durable seq up in Postgres, and leave it in Redis for the next batch."""
    stored = IngestPosition.objects.filter(agent_id=scope.agent_id, boot_id=boot_id)
    mark = stored.values_list("mark", flat=True).first() or 0
    stream.remember_durable(stream.shard_of(scope.name), scope.agent_id, boot_id, mark)
    return mark
