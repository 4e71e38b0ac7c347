"""Taking a batch: everything that can be wrong with it is found, then it goes onto the stream.

What the stream carries is checked and packed: the writer neither decodes readings nor looks up
names a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import redis
from django.conf import settings
from django.db import DatabaseError

from fleet import snapshot
from headroom.contracts import TelemetryAck, TelemetryBatch
from headroom.layouts import read_header
from telemetry import agreements, checks, disk, late, naming, rows, set_back, stream, tasks
from telemetry.directory import AgentScope, names_of
from telemetry.ingest import rate
from telemetry.ingest.errors import Overloaded, disk_full, too_fast
from telemetry.models import IngestPosition
from telemetry.stream import Appended

#: What a refused body counts for: to go through it value by value takes far longer than to store
#: it would.
_BYTES_PER_ROW = 32


@dataclass(frozen=True, slots=True)
class Looked:
    """A batch that is valid, but for its names, which :func:`admit` has yet to look at."""

    batch: TelemetryBatch
    packed: rows.Packed
    scope: AgentScope
    received_at: float

    @property
    def has_known_names(self) -> bool:
        """Whether :func:`admit` can do without the database."""
        return naming.are_known(self.batch, self.packed, self.scope)


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch that may be appended, with its agent's scope."""

    message: stream.Message
    scope: AgentScope
    shard: int

    @property
    def position(self) -> stream.PositionOf:
        """The key under which Redis keeps how far the agent's batches are durable."""
        return (self.shard, self.message.agent_id, self.message.boot_id)

    @property
    def share(self) -> rate.Share:
        """The share of rows of its agent."""
        return _share(self.scope)


def take(batch: TelemetryBatch, scope: AgentScope, received_at: float) -> TelemetryAck:
    """Check ``batch``, which came from ``scope`` at ``received_at``, and append it to its stream.

    Raises :class:`BatchError` where it breaks the contract, is about another agent's things, comes
    too fast, or finds the stream full.
    """
    return append(admit(look(batch, scope, received_at)))


def append(checked: Checked) -> TelemetryAck:
    """Append a batch to its stream. Raises :class:`BatchError` where it comes too fast, or finds
    the stream full."""
    try:
        appended = stream.append(checked.shard, checked.message, checked.share)
    except stream.Full:
        raise Overloaded(
            "backlog_full",
            f"{stream.backlog(checked.shard)} batches wait to be stored",
            hint="keep the batch and send it again; look whether a Celery worker runs",
        ) from None
    except stream.TooFast as exc:
        rate.hold(checked.scope.agent_id, exc.wait_s)
        raise too_fast(exc.wait_s, checked.share) from None
    (ack,) = _acks([(checked, appended)])
    return ack


def take_all(batches: Sequence[Checked]) -> list[TelemetryAck | None]:
    """Append batches in one round trip; None for each that could not be appended."""
    try:
        outcomes = stream.append_all([(each.shard, each.message, each.share) for each in batches])
        pairs = list(zip(batches, outcomes, strict=True))
        acks = iter(_acks([(each, told) for each, told in pairs if isinstance(told, Appended)]))
        return [next(acks) if isinstance(told, Appended) else None for _, told in pairs]
    except (redis.RedisError, DatabaseError):
        return [None] * len(batches)


def look(batch: TelemetryBatch, scope: AgentScope, received_at: float) -> Looked:
    """Check ``batch`` and return it packed. Raises :class:`BatchError` where it is not valid."""
    if disk.is_full():
        raise disk_full()
    checks.check_agent(batch, scope)
    packed = _pack(batch, scope)
    _check_times(batch, packed, received_at)
    if batch.checkpoints or batch.versions:
        max_future_s = set_back.max_future_s()
        checks.check_report_times(batch, now=received_at, max_future_s=max_future_s)
    return Looked(batch, packed, scope, received_at)


def look_at_rows(body: bytes, scope: AgentScope, received_at: float) -> Checked:
    """Return a batch of fixed-width rows, ready to be appended: its values are not looked at.

    Raises :class:`BatchError` where its layout is not known, or it is not of the form that this
    says.
    """
    if disk.is_full():
        raise disk_full()
    header = read_header(body)
    agreed = agreements.find(scope, header.layout)
    told = agreed.message(header, body, received_at)
    return Checked(told, scope, stream.shard_of(scope.name))


def learn(batches: Iterable[Looked]) -> None:
    """Give the names of many batches their rows together: then :func:`admit` asks little more."""
    naming.learn([naming.Brought.by(each.batch, each.packed, each.scope) for each in batches])


def admit(looked: Looked) -> Checked:
    """Return a batch that is ready to be appended. Raises :class:`BatchError` for a bad name."""
    batch, packed, scope = looked.batch, looked.packed, looked.scope
    naming.check_boot_id(scope, batch.boot_id)
    naming.check(batch, packed, scope)
    told = stream.Message.of(batch, scope.agent_id, packed, looked.received_at)
    return Checked(told, scope, stream.shard_of(scope.name))


def check_pace(scope: AgentScope) -> None:
    """Raise where the agent was told to wait: before its request is looked at."""
    if wait_s := rate.wait_s(scope.agent_id):
        raise too_fast(wait_s, _share(scope))


def charge(scope: AgentScope, body_bytes: int) -> None:
    """Count a body that costs work without going onto the stream against its agent's share.

    Raises :class:`TooFast` where that is used up.
    """
    charge_rows(scope, _rows_of(body_bytes))


def charge_all(bodies: Sequence[tuple[AgentScope, int]]) -> list[bool]:
    """Count bodies of many agents as :func:`charge` does; say which shares had room for them."""
    asked = [(scope.agent_id, _rows_of(size), _share(scope)) for scope, size in bodies]
    waits = stream.take_rows_of_all(asked)
    for (scope, _), wait_s in zip(bodies, waits, strict=True):
        if wait_s is not None:
            rate.hold(scope.agent_id, wait_s)
    return [wait_s is None for wait_s in waits]


def _rows_of(body_bytes: int) -> int:
    return body_bytes // _BYTES_PER_ROW + 1


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


def position(scope: AgentScope, boot_id: str, now: float) -> TelemetryAck:
    """Return how far the agent's batches of ``boot_id`` are committed, and what of them is not."""
    key = (stream.shard_of(scope.name), scope.agent_id, boot_id)
    durable = stream.durable_seq(*key)
    return TelemetryAck(
        durable_seq=_stored_seqs([key])[key] if durable is None else durable,
        received_at=now,
        refused=late.told(*key),
    )


def _acks(taken: Sequence[tuple[Checked, Appended]]) -> list[TelemetryAck]:
    for shard in {checked.shard for checked, told in taken if told.wants_writer}:
        tasks.write.delay(shard)
    stored = _stored_seqs([each.position for each, told in taken if told.durable_seq is None])
    return [
        TelemetryAck(
            durable_seq=stored.get(checked.position, 0)
            if told.durable_seq is None
            else told.durable_seq,
            received_at=checked.message.received_at,
            refused=late.of(told.refused, checked.message.boot_id, checked.message.oldest_seq),
        )
        for checked, told in taken
    ]


def _stored_seqs(positions: Sequence[stream.PositionOf]) -> dict[stream.PositionOf, int]:
    """Look durable seqs up in Postgres, and leave them in Redis for the next batches."""
    if not positions:
        return {}
    _, agent_ids, boot_ids = zip(*positions, strict=True)
    rows = IngestPosition.objects.filter(agent_id__in=agent_ids, boot_id__in=boot_ids)
    found = {(agent, boot): mark for agent, boot, mark in rows.values_list(*_POSITION)}
    marks = {each: found.get(each[1:], 0) for each in positions}
    stream.remember_durable(marks)
    return marks


_POSITION = ("agent_id", "boot_id", "mark")
