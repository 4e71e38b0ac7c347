"""What the two doors for those who carry work out have in common: ``/work`` and ``/schedulers``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
import structlog
from django.db import DatabaseError
from django.http import HttpResponse

from headroom.contracts import BatchError, invalid_field
from telemetry.ingest.errors import JSON, Overloaded, answer, malformed

__all__ = ["answered", "decoded"]

log = structlog.get_logger(__name__)

Message = TypeVar("Message")


def decoded(decoder: msgspec.json.Decoder[Message], body: bytes, reference: str) -> Message:
    """Return the message in ``body``. Raises BatchError, which names the field and the page."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        error = invalid_field(exc).error
        hint = f"see {reference}"
        raise BatchError(error.code, error.message, field=error.field, hint=hint) from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise malformed("JSON", str(exc)) from exc


def answered(orders: Callable[[], msgspec.Struct], event: str) -> HttpResponse:
    """Answer with ``orders``, or with why there are none; ``event``: what the log calls that."""
    try:
        body = msgspec.json.encode(orders())
    except BatchError as exc:
        return answer(exc)
    except DatabaseError as exc:
        log.warning(event, error=type(exc).__name__)
        return answer(
            Overloaded(
                "unavailable",
                "orders cannot be read at the moment",
                hint="let what runs go on, start nothing, and ask again",
            )
        )
    return HttpResponse(body, content_type=JSON, headers={"Cache-Control": "no-store"})
