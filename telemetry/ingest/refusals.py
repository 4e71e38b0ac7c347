"""The refused rows of a request: gathered while it is gone through, counted and noted after."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field

import redis
import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F
from django.utils import timezone

from accounts import audit
from headroom.contracts import BatchError, CheckpointReport, FieldError, TelemetryBatch
from telemetry import checks, metrics, set_back, stream
from telemetry.directory import AgentScope
from telemetry.models import Agent

__all__ = [
    "MAX_TOLD",
    "Refusals",
    "TimeLimits",
    "count_refused",
    "note_clock",
    "note_refusal",
    "time_limits",
]

log = structlog.get_logger(__name__)

#: Of so many refused rows the answer says why.
MAX_TOLD = 20
#: What reaches for another's things.
_AUDITED = (checks.OutOfScope, checks.ForeignJob)
#: Of one agent's refusals so many are audited in an hour: it could make up names without end.
_AUDITED_PER_HOUR = 60


@dataclass
class Refusals:
    """Refused rows: the first error, more of them to be told, and counts by code."""

    first: BatchError | None = None
    #: the first that reached for what is another's, which is a matter for the audit log
    audited: BatchError | None = None
    told: list[FieldError] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    last_code: str = ""

    def add(self, error: BatchError, rows: int = 1) -> None:
        """Note that ``error`` cost ``rows`` rows."""
        self.first = self.first or error
        self.last_code = error.error.code
        if isinstance(error, _AUDITED):
            self.audited = self.audited or error
        self.rows[error.error.code] += rows
        if len(self.told) < MAX_TOLD:
            self.told.append(error.error)


@dataclass(frozen=True)
class TimeLimits:
    """Between which times readings are taken, in Unix seconds and seconds."""

    now: float
    max_future_s: float
    max_age_s: float

    def refusal(self, path: str, ts: float) -> BatchError | None:
        """Return the error of a reading at ``ts``, or None."""
        if ts > self.now + self.max_future_s:
            return checks.future_time(path, ts - self.now, self.max_future_s)
        if ts < self.now - self.max_age_s:
            return checks.too_old(path, self.now - ts, self.max_age_s)
        return None

    def later(self, path: str, report: CheckpointReport) -> BatchError | None:
        """Return the error of a report of a checkpoint that is from the future, or None."""
        return checks.future_report(path, report, now=self.now, max_future_s=self.max_future_s)

    def of_future(self, path: str, at: float) -> BatchError | None:
        """Return the error of what was told at a time that has not come, or None."""
        if at > self.now + self.max_future_s:
            return checks.future_time(path, at - self.now, self.max_future_s)
        return None


def time_limits(now: float) -> TimeLimits:
    """Return the limits that the settings set."""
    return TimeLimits(
        now,
        max_future_s=set_back.max_future_s(),
        max_age_s=settings.TELEMETRY_RETENTION_H * 3600,
    )


def count_refused(refusals: Refusals) -> None:
    """Count refused rows by cause, for Prometheus."""
    for code, rows in refusals.rows.items():
        metrics.REFUSED_ROWS.labels(code).inc(rows)


def note_refusal(
    scope: AgentScope, error: BatchError, *, rows: int = 0, audit_again_after_s: int = 0
) -> None:
    """Note on the Agents page that a batch was refused, or only ``rows`` of its rows.

    What reaches for another's things is a matter for the audit log, too: up to 60 times an hour,
    and each sentence once in ``audit_again_after_s`` for a sender that will not stop by itself.
    """
    told = f"{error.error.field}: {error.error.message}" if error.error.field else str(error)
    told = told.replace("\x00", "�")[:500]
    try:
        with transaction.atomic():
            Agent.objects.filter(pk=scope.agent_id).update(
                refused_batches=F("refused_batches") + (0 if rows else 1),
                refused_rows=F("refused_rows") + rows,
                last_refusal=told,
                last_refused_at=timezone.now(),
            )
            if isinstance(error, _AUDITED) and _is_news(scope, told, audit_again_after_s):
                audit.record(scope.name, "telemetry.refused", error.error.field, reason=told)
    except (DatabaseError, redis.RedisError):
        log.warning("refusal_not_noted", agent=scope.name, code=error.error.code)


def note_clock(scope: AgentScope, batch: TelemetryBatch, received_at: float) -> None:
    """Note how far off the clock is of an agent whose readings are ahead: no writer will."""
    told = None if batch.status is None else batch.status.skew_s
    skew_s = batch.sent_at - received_at if told is None else told
    try:
        Agent.objects.filter(pk=scope.agent_id).update(skew_s=skew_s)
    except DatabaseError:
        log.warning("clock_not_noted", agent=scope.name)


def _is_news(scope: AgentScope, told: str, again_after_s: int) -> bool:
    if again_after_s:
        key = f"telemetry:audited:{scope.agent_id}:{zlib.crc32(told.encode())}"
        if not stream.connection().set(key, 1, nx=True, ex=again_after_s):
            return False
    key = f"telemetry:audits:{scope.agent_id}"
    pipe = stream.connection().pipeline()
    pipe.set(key, 0, nx=True, ex=3600)
    pipe.incr(key)
    return int(pipe.execute()[1]) <= _AUDITED_PER_HOUR
