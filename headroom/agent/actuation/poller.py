"""Asks the server for the limits in force."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from headroom.agent.actuation.leases import LeaseBook, LinkLeases
from headroom.agent.delivery import Backoff
from headroom.contracts import LimitSet
from headroom.errors import HeadroomError, Unavailable

__all__ = ["LimitPoller"]

logger = logging.getLogger(__name__)

#: Of one request.
_TIMEOUT_S = 10.0
#: Between two requests, after repeated failures: the leases in force end by themselves meanwhile.
_LONGEST_WAIT_S = 60.0


class LimitServer(Protocol):
    """The part of :class:`headroom.client.Client` that the poller needs."""

    def limits(
        self, *, gpus: bool = True, links: Sequence[str] = (), timeout_s: float | None = None
    ) -> LimitSet | None: ...


class LimitPoller:
    """Polls in a thread of its own for as long as the context lasts.

    A server that is away changes nothing: each lease ends by itself. ``leases`` are those on GPUs
    (None: they are not asked for), ``shares`` those of ``links``.
    """

    def __init__(
        self,
        server: LimitServer,
        leases: LeaseBook | None,
        *,
        every_s: float,
        shares: LinkLeases | None = None,
        links: Sequence[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._server = server
        self._books = [book for book in (leases, shares) if book is not None]
        self._asks_for_gpus = leases is not None
        self._links = tuple(links)
        self._every_s = every_s
        self._monotonic = monotonic
        self._draw = draw
        self._backoff = Backoff(first_s=every_s, longest_s=_LONGEST_WAIT_S, draw=draw)
        self._complaint = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="limits", daemon=True)

    def __enter__(self) -> LimitPoller:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()

    def poll(self) -> float:
        """Ask once; return how long to wait until the next time, s."""
        sent_at = self._monotonic()
        try:
            answer = self._server.limits(
                gpus=self._asks_for_gpus, links=self._links, timeout_s=_TIMEOUT_S
            )
        except HeadroomError as exc:
            self._complain(exc)
            return self._backoff.fail(exc.retry_after_s if isinstance(exc, Unavailable) else None)
        self._complaint = ""
        self._backoff.succeed()
        for book in self._books:
            if answer is None:
                book.clear(self._monotonic())
            else:
                book.take(answer, sent_at=sent_at, got_at=self._monotonic())
        # A fleet that was started as one should not ask as one.
        return self._every_s * (0.9 + 0.2 * self._draw())

    def _run(self) -> None:
        while not self._stop.wait(self.poll()):
            pass

    def _complain(self, exc: HeadroomError) -> None:
        if str(exc) != self._complaint:
            logger.warning("limits unknown, those in force run out", extra={"cause": exc})
        self._complaint = str(exc)
