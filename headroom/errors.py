"""The errors outside the server, one class per cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from headroom.contracts import FieldError, TelemetryAck

__all__ = ["HeadroomError", "PartlyRefused", "Refused", "Unauthorized", "Unavailable"]


class HeadroomError(Exception):
    """Something went wrong."""

    #: Whether the same call may succeed later without a change by a person.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])


def _told(error: FieldError) -> str:
    place = f" at {error.field}" if error.field else ""
    place += f", line {error.line}, column {error.column}" if error.line else ""
    hint = f" ({error.hint})" if error.hint else ""
    return f"{error.code}{place}: {error.message}{hint}"


class Refused(HeadroomError):
    """The server understood the request and refuses it: sending it again changes nothing."""

    def __init__(self, status: int, error: FieldError, others: Sequence[FieldError] = ()) -> None:
        self.status = status
        self.error = error
        #: What else is wrong with it.
        self.others = tuple(others)
        lines = [f"{status} {_told(error)}", *map(_told, self.others)]
        super().__init__("\n".join(lines))


class PartlyRefused(Refused):
    """Some rows of a batch were refused, and the rest of it was taken: do not send it again."""

    def __init__(
        self,
        status: int,
        error: FieldError,
        *,
        ack: TelemetryAck,
        refused: list[FieldError],
        refused_rows: int,
    ) -> None:
        super().__init__(status, error)
        self.ack = ack
        #: Why, for the first of the rows.
        self.refused = refused
        self.refused_rows = refused_rows


class Unauthorized(Refused):
    """The token is missing, unknown, revoked, or not allowed to do this (401 and 403).

    A person can put that right without a change of the request, so what was to be sent is kept.
    """


class Unavailable(HeadroomError):
    """The server cannot be reached or cannot take the request now: try again later."""

    retryable = True

    def __init__(
        self, message: str = "", *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        #: How long the server asks us to wait; None when it does not say.
        self.retry_after_s = retry_after_s
