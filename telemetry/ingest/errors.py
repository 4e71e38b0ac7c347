"""Why a request as a whole is refused, and the answer that says so."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from django.http import HttpResponse

from headroom.contracts import (
    MAX_BATCH_BYTES,
    BatchError,
    ErrorBody,
    FieldError,
    TelemetryAck,
    TooManyRows,
)
from telemetry.checks import OutOfScope, TooManyBootIds
from telemetry.ingest.rate import Share

__all__ = [
    "JSON",
    "Overloaded",
    "TooFast",
    "TooLarge",
    "Unauthorized",
    "UnsupportedType",
    "answer",
    "disk_full",
    "headers_of",
    "malformed",
    "status_of",
    "too_fast",
    "too_large",
    "unavailable",
]

JSON = "application/json"
_RETRY_AFTER_S = 2.0


class Unauthorized(BatchError):
    """No token, or none that is in force."""


class TooLarge(BatchError):
    """The body is over the limit, before or after decompression."""


class UnsupportedType(BatchError):
    """A content type or encoding that is not known."""


class Overloaded(BatchError):
    """The batch cannot be taken now; the sender keeps it and sends it again."""

    retry_after_s = _RETRY_AFTER_S


class TooFast(BatchError):
    """The sender has sent more than its share; it keeps the batch and sends it again later."""

    retry_after_s = 1.0


_STATUS: dict[type[BatchError], int] = {
    Unauthorized: 401,
    OutOfScope: 403,
    TooLarge: 413,
    TooManyRows: 413,
    UnsupportedType: 415,
    TooFast: 429,
    TooManyBootIds: 429,
    Overloaded: 503,
}


def malformed(form: str, why: str) -> BatchError:
    """Return the error of a body that cannot be read as ``form``."""
    return BatchError(
        "malformed_body",
        f"the body is not valid {form}: {why}",
        hint="check Content-Type, Content-Encoding and that the body was sent whole",
    )


def too_large() -> TooLarge:
    """Return the error of a body over the limit."""
    return TooLarge(
        "too_large",
        f"the batch has more than {MAX_BATCH_BYTES} bytes",
        hint="send smaller batches",
    )


def too_fast(wait_s: float, share: Share) -> TooFast:
    """Return the error of an agent whose share of rows is used up for ``wait_s``."""
    per_s, at_once = share
    error = TooFast(
        "too_fast",
        f"this agent may send {per_s} rows/s, and {at_once} at once",
        hint="keep the batch and send it again after Retry-After",
    )
    error.retry_after_s = wait_s
    return error


def disk_full() -> Overloaded:
    """Return the refusal while only the reserve of a disk is left."""
    return Overloaded(
        "disk_full",
        "the server has no room left to store readings",
        hint="keep them and send them again; make room on the server: /readyz says where",
    )


def unavailable() -> Overloaded:
    """Return the error of a server that lacks its database or its Redis."""
    return Overloaded(
        "unavailable",
        "readings cannot be taken at the moment",
        hint="keep the batch and send it again",
    )


def status_of(error: BatchError) -> int:
    """Return the HTTP status that stands for ``error``."""
    return _STATUS.get(type(error), 400)


def headers_of(error: BatchError) -> dict[str, str]:
    """Return the headers that an answer of ``error`` has."""
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, Overloaded | TooFast):
        return {"Retry-After": str(math.ceil(error.retry_after_s))}
    return {}


def answer(
    error: BatchError,
    *,
    status: int | None = None,
    refused: list[FieldError] | None = None,
    refused_rows: int = 0,
    ack: TelemetryAck | None = None,
    headers: dict[str, Any] | None = None,
) -> HttpResponse:
    """Return the answer for ``error``; where a batch was taken in part, with how much of it was."""
    body = ErrorBody(error=error.error, refused=refused or [], refused_rows=refused_rows, ack=ack)
    return HttpResponse(
        msgspec.json.encode(body),
        content_type=JSON,
        status=status or status_of(error),
        headers={**headers_of(error), **(headers or {})},
    )
