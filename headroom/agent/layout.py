"""The layout of the agent's batches: agreed on with the server, and widened as needed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from headroom.contracts import TelemetryBatch
from headroom.errors import Refused
from headroom.layouts import Encoder, Layout, joined, layout_of

__all__ = ["Agreements", "Server"]

logger = logging.getLogger(__name__)

#: How soon a layout is agreed on anew, after one was, s: what an agent reports on settles at once.
_AGAIN_S = 30.0
#: When a server is asked again that refused a layout, or takes none, s.
_REFUSED_S = 300.0
_NOT_OFFERED_S = 3600.0


class Server(Protocol):
    """The part of :class:`headroom.client.Client` that agreeing needs."""

    def agree(self, layout: Layout, *, timeout_s: float | None = None) -> str | None: ...


class Agreements:
    """Makes batches of fixed-width rows, where the server has agreed on a layout that they fit.

    All others go in the typed form, and so does one that has an error to tell which the server has
    not heard of.
    """

    def __init__(self, server: Server, monotonic: Callable[[], float]) -> None:
        self._server = server
        self._monotonic = monotonic
        self._encoder: Encoder | None = None
        self._not_before = monotonic()
        self._told_error = ""

    def encode(self, batch: TelemetryBatch, *, timeout_s: float | None = None) -> bytes | None:
        """Return ``batch`` as rows; None: it is to go in the typed form.

        Raises :class:`Unavailable` where it is time to agree and the server cannot be reached.
        """
        if _error_of(batch) != self._told_error:
            return None
        body = self._encoder.encode(batch) if self._encoder else None
        if body is None and self._monotonic() >= self._not_before:
            self._agree(batch, timeout_s)
            body = self._encoder.encode(batch) if self._encoder else None
        return body

    def note_told(self, batch: TelemetryBatch) -> None:
        """Note that the server has taken ``batch`` in the typed form."""
        self._told_error = _error_of(batch)

    def forget(self) -> None:
        """Agree again: the server does not know the layout any more."""
        self._encoder = None

    def _agree(self, batch: TelemetryBatch, timeout_s: float | None) -> None:
        layout = layout_of(batch)
        if layout is None:
            return
        if self._encoder is not None:
            layout = joined(self._encoder.layout, layout)
        self._not_before = self._monotonic() + _AGAIN_S
        try:
            layout_id = self._server.agree(layout, timeout_s=timeout_s)
        except Refused as exc:
            # The typed form tells what is wrong, and what is known by then is left out.
            logger.info("layout refused", extra={"cause": exc})
            self._encoder, self._not_before = None, self._monotonic() + _REFUSED_S
            return
        if layout_id is None:
            self._not_before = self._monotonic() + _NOT_OFFERED_S
            return
        self._encoder = Encoder(layout, layout_id)


def _error_of(batch: TelemetryBatch) -> str:
    return batch.status.last_error if batch.status else ""
