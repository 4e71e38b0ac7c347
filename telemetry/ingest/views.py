"""``POST /api/v1/prometheus/write`` and ``POST /api/v1/otlp/v1/metrics``."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable

import redis
import structlog
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from google.protobuf.message import Message

from fleet import snapshot
from headroom.contracts import BatchError
from telemetry import checks, disk, intake, metrics, naming, tasks
from telemetry.directory import AgentScope, Names, names_of
from telemetry.ingest import inbox, otlp, remote_write
from telemetry.ingest.errors import (
    Overloaded,
    answer,
    disk_full,
    headers_of,
    status_of,
    unavailable,
)
from telemetry.ingest.readings import Places, Readings
from telemetry.ingest.refusals import note_refusal, time_limits
from telemetry.ingest.requests import authenticate, decompress, read
from telemetry.ingest.rows import Rows, aligned
from telemetry.ingest.series import Series

__all__ = ["otlp_metrics", "prometheus_write"]

log = structlog.get_logger(__name__)

#: Points of OpenTelemetry that lie no further apart than this are one reading, s.
_ALIGNED_WITHIN_S = 0.5
#: A sender that reaches for what it may not have does so with each scrape: it is audited once in s.
_AUDIT_AGAIN_AFTER_S = 3600
_WRITTEN = "X-Prometheus-Remote-Write-{}-Written"


@csrf_exempt
@require_POST
def prometheus_write(request: HttpRequest) -> HttpResponse:
    """Take a request of Prometheus remote write, 1.0 or 2.0.

    204: what it holds is kept. 400: some samples were refused, and the rest is kept.
    """
    received_at = time.time()
    scope = None
    try:
        scope = authenticate(request)
        intake.check_pace(scope)
        version = remote_write.version_of(request.META.get("CONTENT_TYPE", ""))
        body = remote_write.uncompress(
            read(request), request.META.get("HTTP_CONTENT_ENCODING", "snappy")
        )
        decoded = remote_write.decode(body, version)
        readings = _readings(decoded.series, scope, received_at)
        if decoded.unreadable:
            readings.refusals.add(remote_write.unreadable_labels(), decoded.unreadable)
        readings.ignored["unmapped"] += decoded.histograms + decoded.exemplars
        rows = _with_good_names(readings, scope)
        _keep(b"remote-write", body, rows, scope, received_at)
    except (BatchError, redis.RedisError, DatabaseError) as exc:
        return answer(_refused("remote_write", exc, scope))
    _count("remote_write", readings, scope)
    written = {
        _WRITTEN.format("Samples"): decoded.samples - readings.refusals.rows.total(),
        _WRITTEN.format("Histograms"): decoded.histograms,
        _WRITTEN.format("Exemplars"): decoded.exemplars,
    }
    return _written_answer(readings, {name: str(count) for name, count in written.items()})


def _written_answer(readings: Readings, written: dict[str, str]) -> HttpResponse:
    refusals = readings.refusals
    if refusals.first is None:
        return HttpResponse(status=204, headers=written)
    return answer(
        refusals.first,
        # What was written in part is told by 400, whatever was wrong with the rest.
        status=400 if readings.taken else status_of(refusals.first),
        refused=refusals.told,
        refused_rows=refusals.rows.total(),
        headers=written,
    )


@csrf_exempt
@require_POST
def otlp_metrics(request: HttpRequest) -> HttpResponse:
    """Take a request of OpenTelemetry's metrics. 200: its points are kept, or some of them."""
    received_at = time.time()
    scope = None
    content_type = request.META.get("CONTENT_TYPE", "")
    form = otlp.JSON if otlp.is_json(content_type) else otlp.PROTOBUF
    try:
        scope = authenticate(request)
        intake.check_pace(scope)
        otlp.check_type(content_type)
        body = decompress(read(request), request.META.get("HTTP_CONTENT_ENCODING", ""))
        decoded = otlp.decode(body, form)
        readings = _readings(decoded.series, scope, received_at)
        readings.ignored.update(decoded.ignored)
        rows = aligned(_with_good_names(readings, scope), _ALIGNED_WITHIN_S)
        _keep(b"otlp", body, rows, scope, received_at)
    except (BatchError, redis.RedisError, DatabaseError) as exc:
        error = _refused("otlp", exc, scope)
        return _otlp_answer(otlp.refusal(error, status_of(error)), form, error)
    _count("otlp", readings, scope)
    first, rejected = readings.refusals.first, readings.refusals.rows.total()
    if first is not None and not readings.taken:
        return _otlp_answer(otlp.refusal(first, status_of(first)), form, first)
    return _otlp_answer(otlp.success(rejected, str(first or "")), form)


def _otlp_answer(message: Message, form: str, error: BatchError | None = None) -> HttpResponse:
    return HttpResponse(
        otlp.encode(message, form),
        content_type=form,
        status=200 if error is None else status_of(error),
        headers={} if error is None else headers_of(error),
    )


def _readings(series: Iterable[Series], scope: AgentScope, now: float) -> Readings:
    """Return the rows that ``series`` form, of GPUs that the agent may speak for."""
    listed = list(series)
    readings = _read_with(names_of(snapshot.current()), listed, scope, now)
    if any(code.startswith("unknown_") for code in readings.refusals.rows):
        # What they name may be newer than this process's copy of the inventory.
        readings = _read_with(names_of(snapshot.fresh()), listed, scope, now)
    return readings


def _read_with(names: Names, series: list[Series], scope: AgentScope, now: float) -> Readings:
    places = Places(scope, names, settings.TELEMETRY_NODE_LABELS)
    readings = Readings(places, time_limits(now))
    for each in series:
        readings.add(each)
    return readings


def _with_good_names(readings: Readings, scope: AgentScope) -> Rows:
    """Return the rows, without names of jobs that the agent may not have; those are refused."""
    rows = readings.rows()
    names = {row["job"] for row in rows.values() if "job" in row}
    if len(names) > naming.MAX_NAMES:
        raise checks.names_at_once(len(names), naming.MAX_NAMES)
    refused = naming.refused_jobs(scope, (), names, time.time())
    for error in refused.values():
        readings.refusals.add(checks.at(error, "job"))
    for row in rows.values() if refused else ():
        if row.get("job") in refused:
            del row["job"]
    return rows


def _keep(way: bytes, body: bytes, rows: Rows, scope: AgentScope, received_at: float) -> None:
    """Keep the rows until they are stored, unless this very request was kept before."""
    if not rows:
        return
    if disk.is_full():
        raise disk_full()
    if inbox.is_full():
        raise Overloaded(
            "backlog_full",
            f"{settings.TELEMETRY_MAX_BACKLOG} requests wait to be stored",
            hint="send it again later; look whether a Celery worker runs",
        )
    intake.charge_rows(scope, len(rows))
    digest = hashlib.sha256(way + b"\0" + body).digest()
    if inbox.put(scope.agent_id, digest, rows, received_at):
        tasks.ask_for_forward()
    else:
        metrics.DUPLICATES.inc()


def _count(way: str, readings: Readings, scope: AgentScope) -> None:
    """Count the samples of a request by outcome."""
    metrics.SAMPLES.labels(way, "taken").inc(readings.taken)
    for reason, samples in readings.ignored.items():
        metrics.SAMPLES.labels(way, f"ignored_{reason}").inc(samples)
    refusals = readings.refusals
    for code, samples in refusals.rows.items():
        metrics.SAMPLES.labels(way, code).inc(samples)
    metrics.BATCHES.labels("partial" if refusals.first else "accepted").inc()
    if refusals.first is not None:
        note_refusal(
            scope,
            refusals.audited or refusals.first,
            rows=refusals.rows.total(),
            audit_again_after_s=_AUDIT_AGAIN_AFTER_S,
        )


def _refused(way: str, exc: Exception, scope: AgentScope | None) -> BatchError:
    """Return the error of a request of which nothing is kept, counted."""
    if not isinstance(exc, BatchError):
        log.warning("telemetry_store_unavailable", error=type(exc).__name__, way=way)
        return unavailable()
    metrics.BATCHES.labels(exc.error.code).inc()
    if scope is not None:
        note_refusal(scope, exc)
    return exc
