"""Reports of many batches into Postgres, each if it is newer and of no earlier start of its run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import Cursor

from telemetry.checkpoints.lines import CheckpointLine
from telemetry.checkpoints.models import CheckpointFact
from telemetry.placed import job_of
from telemetry.stream import Message

__all__ = ["prune", "save"]

#: How long it is kept of what nobody tells any more.
KEPT = timedelta(days=30)

# Who speaks for an earlier start than one that has told at any site of the job changes nothing: it
# may be the other half of a split brain. A site that was removed in between takes its rows with it.
# Rows come in order, so that two writers do not wait for each other.
_SAVE = """
INSERT INTO telemetry_checkpointfact AS known
    (job, site_id, run, lease_epoch, epoch, step, saved_at, verified_at, bytes, digest,
     lag_checkpoints, lag_steps, lag_s, lag_bytes, sent_bytes_per_s, told_at, received_at)
SELECT new.*
FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
            %s::timestamptz[], %s::timestamptz[], %s::bigint[], %s::text[], %s::bigint[],
            %s::bigint[], %s::float8[], %s::bigint[], %s::float8[], %s::timestamptz[],
            %s::timestamptz[])
    AS new (job, site_id, run, lease_epoch, epoch, step, saved_at, verified_at, bytes, digest,
            lag_checkpoints, lag_steps, lag_s, lag_bytes, sent_bytes_per_s, told_at, received_at)
JOIN fleet_site ON fleet_site.id = new.site_id
WHERE NOT EXISTS (
    SELECT FROM telemetry_checkpointfact AS later
    WHERE later.job = new.job AND later.run = new.run AND later.lease_epoch > new.lease_epoch
)
ORDER BY new.job, new.site_id
ON CONFLICT ON CONSTRAINT checkpoint_fact_key DO UPDATE
SET run = excluded.run, lease_epoch = excluded.lease_epoch, epoch = excluded.epoch,
    step = excluded.step, saved_at = excluded.saved_at, verified_at = excluded.verified_at,
    bytes = excluded.bytes, digest = excluded.digest, lag_checkpoints = excluded.lag_checkpoints,
    lag_steps = excluded.lag_steps, lag_s = excluded.lag_s, lag_bytes = excluded.lag_bytes,
    sent_bytes_per_s = coalesce(excluded.sent_bytes_per_s, known.sent_bytes_per_s),
    told_at = excluded.told_at, received_at = excluded.received_at
WHERE CASE WHEN known.run = excluded.run AND known.lease_epoch <> excluded.lease_epoch
           THEN known.lease_epoch < excluded.lease_epoch
           ELSE known.told_at <= excluded.told_at END
"""


def save(cursor: Cursor[Any], messages: list[Message]) -> None:
    """Keep the newest report of each job and site in ``messages``."""
    newest: dict[tuple[str, int], tuple[Message, CheckpointLine]] = {}
    for message in messages:
        for line in message.packed.checkpoints:
            key = (job_of(line.report.job), line.site_id)
            if key not in newest or _is_later(line, newest[key][1]):
                newest[key] = (message, line)
    if newest:
        rows = [_row(*key, *found) for key, found in newest.items()]
        cursor.execute(_SAVE, [list(column) for column in zip(*rows, strict=True)])


def _is_later(line: CheckpointLine, known: CheckpointLine) -> bool:
    """Say whether a report counts before another of the same round: as in ``_SAVE``."""
    new, old = line.report, known.report
    if new.store.run == old.store.run and new.store.lease_epoch != old.store.lease_epoch:
        return new.store.lease_epoch > old.store.lease_epoch
    return new.at >= old.at


def _row(job: str, site_id: int, message: Message, line: CheckpointLine) -> tuple[Any, ...]:
    store = line.report.store
    found, lag = store.checkpoint, store.lag
    whole = (None, None, None, None, None, "") if found is None else (
        found.epoch, found.step, _moment(found.saved_at), _moment(found.verified_at), found.bytes,
        found.digest,
    )  # fmt: skip
    behind = (None, None, None, None) if lag is None else (
        lag.checkpoints, lag.steps, lag.seconds, lag.bytes
    )  # fmt: skip
    told = (_moment(line.report.at), _moment(message.received_at))
    return (
        job, site_id, store.run, store.lease_epoch, *whole, *behind, store.sent_bytes_per_s, *told
    )  # fmt: skip


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def prune(now: datetime) -> None:
    """Forget what was told last long ago."""
    CheckpointFact.objects.filter(received_at__lt=now - KEPT).delete()
