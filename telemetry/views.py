"""``POST /api/v1/telemetry``, the hot path: check a batch and put it on the stream.

Plain Django and msgspec. Everything that can be wrong with a batch is found here, so that the agent
is told; what the stream carries needs no second thought.
"""

from __future__ import annotations

import time
import zlib
from typing import Any

import msgspec
import redis
import structlog
import zstandard
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from accounts import audit, tokens
from fleet import snapshot
from headroom.contracts import (
    MAX_BATCH_BYTES,
    BatchError,
    ErrorBody,
    TelemetryAck,
    TelemetryBatch,
    decode_batch,
    encode_batch,
)
from telemetry import checks, metrics, stream, tasks
from telemetry.directory import AgentScope, names_of, scope_of
from telemetry.models import Agent, IngestPosition

log = structlog.get_logger(__name__)

_JSON = "application/json"
_MSGPACK = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})
_RETRY_AFTER_S = 2


class TooLarge(BatchError):
    """The body is over the limit, before or after decompression."""


class Unauthorized(BatchError):
    """No token, or none that is in force."""


class UnsupportedType(BatchError):
    """A content type or encoding that is not known."""


class Overloaded(BatchError):
    """The batch cannot be taken now; the agent keeps it and sends it again."""


_STATUS: dict[type[BatchError], int] = {
    Unauthorized: 401,
    checks.OutOfScope: 403,
    TooLarge: 413,
    UnsupportedType: 415,
    Overloaded: 503,
}


@csrf_exempt
@require_POST
def push(request: HttpRequest) -> HttpResponse:
    """Take one batch. 202: it is on its way; ``durable_seq`` says how far it is committed."""
    received_at = time.time()
    scope = None
    try:
        scope = _authenticate(request)
        batch, body = _decode(request)
        _check(batch, scope, received_at)
        ack = _accept(batch, body, scope, received_at)
    except BatchError as exc:
        return _refuse(exc, scope)
    except (redis.RedisError, DatabaseError) as exc:
        log.warning("telemetry_store_unavailable", error=type(exc).__name__)
        return _answer(_unavailable())
    metrics.BATCHES.labels("accepted").inc()
    return HttpResponse(msgspec.json.encode(ack), content_type=_JSON, status=202)


@require_GET
def position(request: HttpRequest) -> HttpResponse:
    """Say how far the token's agent's batches of ``?boot_id=`` are committed."""
    try:
        scope = _authenticate(request)
        boot_id = request.GET.get("boot_id", "")
        if not boot_id:
            raise BatchError("missing_field", "boot_id is not given", field="boot_id")
        ack = TelemetryAck(
            durable_seq=_durable_seq(scope.agent_id, boot_id), received_at=time.time()
        )
    except BatchError as exc:
        return _answer(exc)
    except (redis.RedisError, DatabaseError):
        return _answer(_unavailable())
    return HttpResponse(msgspec.json.encode(ack), content_type=_JSON)


def _authenticate(request: HttpRequest) -> AgentScope:
    scope = scope_of(tokens.from_header(request.headers.get("Authorization", "")))
    if scope is None:
        raise Unauthorized(
            "unauthorized",
            "no agent has this token, or it was revoked",
            field="Authorization",
            hint="send 'Authorization: Bearer hra_…'; the Agents page gives out tokens",
        )
    return scope


def _decode(request: HttpRequest) -> tuple[TelemetryBatch, bytes]:
    """Return the batch and its MessagePack form."""
    content_type = (request.content_type or "").lower()
    if content_type != _JSON and content_type not in _MSGPACK:
        raise UnsupportedType(
            "unsupported_content_type",
            f"Content-Type {content_type!r} is not known",
            field="Content-Type",
            hint="send application/json or application/msgpack",
        )
    body = _decompress(_read(request), request.headers.get("Content-Encoding", ""))
    is_json = content_type == _JSON
    batch = decode_batch(body, json=is_json)
    return batch, encode_batch(batch) if is_json else body


def _read(request: HttpRequest) -> bytes:
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BATCH_BYTES:
        raise _too_large()
    return request.read()


def _decompress(body: bytes, encoding: str) -> bytes:
    """Undo ``encoding``, never making more than the limit out of a small body."""
    try:
        match encoding.strip().lower():
            case "" | "identity":
                return body
            case "gzip":
                unpack = zlib.decompressobj(wbits=31)
                plain = unpack.decompress(body, MAX_BATCH_BYTES + 1)
                complete = unpack.eof
            case "zstd":
                with zstandard.ZstdDecompressor().stream_reader(body) as reader:
                    plain = reader.read(MAX_BATCH_BYTES + 1)
                complete = True
            case other:
                raise UnsupportedType(
                    "unsupported_content_encoding",
                    f"Content-Encoding {other!r} is not known",
                    field="Content-Encoding",
                    hint="send gzip, zstd, or no encoding",
                )
    except (zlib.error, zstandard.ZstdError) as exc:
        raise _malformed(encoding, str(exc)) from exc
    if len(plain) > MAX_BATCH_BYTES:
        raise _too_large()
    if not complete:
        raise _malformed(encoding, "it ends too early")
    return plain


def _malformed(encoding: str, why: str) -> BatchError:
    return BatchError(
        "malformed_body",
        f"the body is not valid {encoding}: {why}",
        hint="check that the body was sent whole",
    )


def _too_large() -> TooLarge:
    return TooLarge(
        "too_large",
        f"the batch has more than {MAX_BATCH_BYTES} bytes",
        hint="send smaller batches",
    )


def _check(batch: TelemetryBatch, scope: AgentScope, now: float) -> None:
    checks.check_agent(batch, scope)
    checks.check_times(
        batch,
        now=now,
        max_future_s=settings.TELEMETRY_MAX_FUTURE_S,
        max_age_s=settings.TELEMETRY_RETENTION_H * 3600,
    )
    try:
        checks.check_names(batch, scope, names_of(snapshot.current()))
    except checks.UnknownName:
        # It may be newer than this process's copy of the inventory.
        checks.check_names(batch, scope, names_of(snapshot.fresh()))


def _accept(
    batch: TelemetryBatch, body: bytes, scope: AgentScope, received_at: float
) -> TelemetryAck:
    shard = stream.shard_of(scope.name)
    message = stream.Message(scope.agent_id, received_at, body)
    appended = stream.append(shard, message, batch.boot_id)
    if appended is None:
        raise Overloaded(
            "backlog_full",
            f"{settings.TELEMETRY_MAX_BACKLOG} batches wait to be stored",
            hint="keep the batch and send it again; look whether a Celery worker runs",
        )
    if appended.wants_drain:
        tasks.drain.delay(shard)
    durable = appended.durable_seq
    if durable is None:
        durable = _stored_seq(scope.agent_id, batch.boot_id)
    return TelemetryAck(durable_seq=durable, received_at=received_at)


def _durable_seq(agent_id: int, boot_id: str) -> int:
    cached = stream.durable_seq(agent_id, boot_id)
    return _stored_seq(agent_id, boot_id) if cached is None else cached


def _stored_seq(agent_id: int, boot_id: str) -> int:
    """Look the durable seq up in Postgres, and leave it in Redis for the next batch."""
    stored = IngestPosition.objects.filter(agent_id=agent_id, boot_id=boot_id)
    mark = stored.values_list("mark", flat=True).first() or 0
    stream.remember_durable(agent_id, boot_id, mark)
    return mark


def _refuse(error: BatchError, scope: AgentScope | None) -> HttpResponse:
    metrics.BATCHES.labels(error.error.code).inc()
    if scope is not None:
        _note_refusal(scope, error)
    return _answer(error)


def _note_refusal(scope: AgentScope, error: BatchError) -> None:
    """Count it on the Agents page; what reaches for another's is a matter for the audit log."""
    told = f"{error.error.field}: {error.error.message}" if error.error.field else str(error)
    try:
        with transaction.atomic():
            Agent.objects.filter(pk=scope.agent_id).update(
                refused_batches=F("refused_batches") + 1,
                last_refusal=told[:500],
                last_refused_at=timezone.now(),
            )
            if isinstance(error, checks.OutOfScope):
                audit.record(scope.name, "telemetry.refused", error.error.field, reason=told)
    except DatabaseError:
        log.warning("refusal_not_noted", agent=scope.name, code=error.error.code)


def _unavailable() -> Overloaded:
    return Overloaded(
        "unavailable",
        "readings cannot be taken at the moment",
        hint="keep the batch and send it again",
    )


def _answer(error: BatchError) -> HttpResponse:
    status = _STATUS.get(type(error), 400)
    headers: dict[str, Any] = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = str(_RETRY_AFTER_S)
    body = msgspec.json.encode(ErrorBody(error=error.error))
    return HttpResponse(body, content_type=_JSON, status=status, headers=headers)
