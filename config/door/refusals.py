"""Refusals of the front door."""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec

from config.door.answers import Answer
from headroom.contracts import ErrorBody, FieldError

__all__ = ["Cause", "Refused", "refusal"]

_JSON = "application/json"


class Cause(StrEnum):
    """Why a request is refused. Each is a label of ``headroom_door_refusals_total``."""

    #: too many requests of this address are open
    ADDRESS_BUSY = "address_busy"
    #: too many requests of this agent are open
    AGENT_BUSY = "agent_busy"
    #: too many requests of everybody are open
    TOO_MANY_OPEN = "too_many_open"
    #: no thread is free for it, and enough requests wait already
    LANE_FULL = "lane_full"
    #: bodies hold as much memory as they may
    MEMORY_FULL = "memory_full"
    #: its body came too slowly
    BODY_TOO_SLOW = "body_too_slow"
    #: its body is over the limit
    BODY_TOO_LARGE = "body_too_large"
    #: its body comes in chunks, so that nobody knows its length
    LENGTH_REQUIRED = "length_required"
    #: its body is large, and nobody knows who sends it
    SENDER_UNKNOWN = "sender_unknown"
    #: who sends it could not be looked up
    UNAVAILABLE = "unavailable"
    #: it failed where nothing should
    SERVER_ERROR = "server_error"


_LATER = "send it again after Retry-After"
#: Status, sentence, way out, and after how long to come again, s (0: not at all).
_SAID: dict[Cause, tuple[int, str, str, float]] = {
    Cause.ADDRESS_BUSY: (
        429,
        "too many requests from this address are open",
        f"{_LATER}; where many people share the address, see DOOR_REQUESTS_PER_ADDRESS",
        2.0,
    ),
    Cause.AGENT_BUSY: (429, "too many requests of this agent are open", _LATER, 2.0),
    Cause.TOO_MANY_OPEN: (503, "too many requests are open", _LATER, 2.0),
    Cause.LANE_FULL: (503, "too many requests of this kind wait for their turn", _LATER, 2.0),
    Cause.MEMORY_FULL: (503, "too many bodies are on their way", _LATER, 2.0),
    Cause.BODY_TOO_SLOW: (
        408,
        "the body came too slowly",
        "look at the way between sender and server; see docs/how-to/put-a-proxy-in-front.md",
        0.0,
    ),
    Cause.BODY_TOO_LARGE: (413, "the body has more bytes than are taken", "send less at once", 0.0),
    Cause.LENGTH_REQUIRED: (
        411,
        "the body has no Content-Length",
        "send its length instead of Transfer-Encoding: chunked",
        0.0,
    ),
    Cause.SENDER_UNKNOWN: (
        401,
        "nobody who is known sends this body, and it is too large to be read from others",
        "send 'Authorization: Bearer hru_…' or log in",
        0.0,
    ),
    Cause.UNAVAILABLE: (503, "the sender cannot be looked up at the moment", _LATER, 2.0),
    Cause.SERVER_ERROR: (500, "a fault in Headroom; it is in its logs", "", 0.0),
}


class Refused(Exception):
    """The request goes no further, for ``cause``."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause

    def answer(self) -> Answer:
        """Return the error response."""
        status, message, hint, retry_after_s = _SAID[self.cause]
        error = FieldError(code=self.cause, message=message, hint=hint)
        return refusal(error, status, retry_after_s)


def refusal(error: FieldError, status: int, retry_after_s: float = 0.0) -> Answer:
    """Return an error response, in the form of the telemetry contract."""
    headers = [("Content-Type", _JSON), ("Cache-Control", "no-store")]
    if status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    if retry_after_s:
        headers.append(("Retry-After", str(math.ceil(retry_after_s))))
    return Answer(status, headers, msgspec.json.encode(ErrorBody(error=error)))
