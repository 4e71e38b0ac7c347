"""``POST /api/v1/telemetry``: HTTP around ``telemetry.intake``.

Everything that can be wrong with a batch is found before the answer, so that the agent is told.
Good batches do not come here: ``telemetry.ingest.batches`` has taken them.
"""

from __future__ import annotations

import time

import msgspec
import redis
import structlog
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from fleet import snapshot
from headroom.contracts import (
    BatchError,
    BootId,
    TelemetryAck,
    TooManyRows,
    decode_batch,
    encode_batch,
    invalid_field,
)
from headroom.layouts import CONTENT_TYPE, Agreement, decode_layout
from telemetry import agreements, checks, intake, metrics, naming
from telemetry.directory import AgentScope, names_of
from telemetry.ingest.errors import (
    JSON,
    Overloaded,
    TooFast,
    UnsupportedType,
    answer,
    unavailable,
)
from telemetry.ingest.partial import salvage
from telemetry.ingest.refusals import (
    Refusals,
    count_refused,
    note_clock,
    note_refusal,
    time_limits,
)
from telemetry.ingest.requests import authenticate, decompress, read

log = structlog.get_logger(__name__)

#: Bad rows are sought in no larger body: that takes a third of a second for each MiB.
_MOST_SORTED_BYTES = 4 * 2**20

_MSGPACK = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})


@csrf_exempt
@require_POST
def push(request: HttpRequest) -> HttpResponse:
    """Take one batch. 202: it is on its way; ``durable_seq`` says how far it is committed."""
    received_at = time.time()
    scope = None
    try:
        scope = authenticate(request)
        intake.check_pace(scope)
        ack, refusals = _take(request, scope, received_at)
    except BatchError as exc:
        return _refuse(exc, scope)
    except (redis.RedisError, DatabaseError) as exc:
        log.warning("telemetry_store_unavailable", error=type(exc).__name__)
        return answer(unavailable())
    if refusals is not None and refusals.first is not None:
        return _partly_refuse(refusals, refusals.first, ack, scope)
    metrics.BATCHES.labels("accepted").inc()
    return HttpResponse(msgspec.json.encode(ack), content_type=JSON, status=202)


@csrf_exempt
@require_POST
def agree(request: HttpRequest) -> HttpResponse:
    """Take a layout of batches of fixed-width rows; answer with its id."""
    scope = None
    try:
        scope = authenticate(request)
        intake.check_pace(scope)
        body = decompress(read(request), request.META.get("HTTP_CONTENT_ENCODING", ""))
        intake.charge(scope, len(body))
        layout_id = agreements.agree(decode_layout(body), scope)
    except BatchError as exc:
        return _refuse(exc, scope)
    except (redis.RedisError, DatabaseError) as exc:
        log.warning("telemetry_store_unavailable", error=type(exc).__name__)
        return answer(unavailable())
    return HttpResponse(msgspec.json.encode(Agreement(layout=layout_id)), content_type=JSON)


@require_GET
def position(request: HttpRequest) -> HttpResponse:
    """Say how far the token's agent's batches of ``?boot_id=`` are committed."""
    try:
        scope = authenticate(request)
        boot_id = _boot_id(request.GET.get("boot_id", ""))
        ack = intake.position(scope, boot_id, time.time())
    except BatchError as exc:
        return answer(exc)
    except (redis.RedisError, DatabaseError):
        return answer(unavailable())
    return HttpResponse(msgspec.json.encode(ack), content_type=JSON)


def _boot_id(given: str) -> str:
    if not given:
        raise BatchError("missing_field", "boot_id is not given", field="boot_id")
    try:
        return msgspec.convert(given, BootId)
    except msgspec.ValidationError as exc:
        raise invalid_field(exc, "boot_id") from exc


def _take(
    request: HttpRequest, scope: AgentScope, now: float
) -> tuple[TelemetryAck, Refusals | None]:
    """Take the request: all of it, or all but the rows at fault."""
    content_type = request.META.get("CONTENT_TYPE", "")
    json = content_type != CONTENT_TYPE and is_json(content_type)
    body = decompress(read(request), request.META.get("HTTP_CONTENT_ENCODING", ""))
    if content_type == CONTENT_TYPE:
        return intake.append(intake.look_at_rows(body, scope, now)), None
    batch = None
    try:
        batch = decode_batch(body, json=json)
        return intake.take(batch, scope, now), None
    except (TooFast, Overloaded):
        raise
    except BatchError as error:
        intake.charge(scope, len(body))
        if batch is not None and error.error.code == "future_time":
            note_clock(scope, batch, now)
        if isinstance(error, checks.OutOfScope | checks.TooManyBootIds | TooManyRows):
            raise
        return _take_rest(body, error, json, scope, now)


def is_json(content_type: str) -> bool:
    """Say whether a batch is JSON; else it is MessagePack. Raises :class:`UnsupportedType`."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != JSON and media_type not in _MSGPACK:
        raise UnsupportedType(
            "unsupported_content_type",
            f"Content-Type {media_type!r} is not known",
            field="Content-Type",
            hint="send application/json or application/msgpack",
        )
    return media_type == JSON


def _take_rest(
    body: bytes, error: BatchError, json: bool, scope: AgentScope, now: float
) -> tuple[TelemetryAck, Refusals]:
    """Take the batch without its bad rows. Raise where no row is left."""
    if len(body) > _MOST_SORTED_BYTES:
        raise TooManyRows(
            error.error.code,
            f"{error.error.message}; of a batch above {_MOST_SORTED_BYTES} bytes, unpacked,"
            " bad rows are not told from good ones",
            field=error.error.field,
            hint=f"send smaller batches; {error.error.hint}",
        )
    salvaged = salvage(
        body,
        error,
        is_json=json,
        scope=scope,
        names=names_of(snapshot.fresh()),
        new_names=naming.NamesOf(scope),
        limits=time_limits(now),
    )
    if salvaged.batch is None:
        count_refused(salvaged.refusals)
        raise salvaged.refusals.audited or error
    # What goes on the stream has passed the fast way, whatever the slow one did.
    batch = decode_batch(encode_batch(salvaged.batch), json=False)
    return intake.take(batch, scope, now), salvaged.refusals


def _refuse(error: BatchError, scope: AgentScope | None) -> HttpResponse:
    metrics.BATCHES.labels(error.error.code).inc()
    if scope is not None:
        note_refusal(scope, error)
    return answer(error)


def _partly_refuse(
    refusals: Refusals, first: BatchError, ack: TelemetryAck, scope: AgentScope
) -> HttpResponse:
    rows = refusals.rows.total()
    metrics.BATCHES.labels("partial").inc()
    count_refused(refusals)
    note_refusal(scope, refusals.audited or first, rows=rows)
    return answer(first, refused=refusals.told, refused_rows=rows, ack=ack)
