"""The rounds of a bridge: read, tell, obey, and begin anew, whatever fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from headroom import heartbeat
from headroom.errors import HeadroomError
from headroom.schedulers.contract import SchedulerOrders, SchedulerReport

__all__ = ["NewsServer", "OrderListener", "SchedulerServer", "keep_going"]

logger = logging.getLogger(__name__)

#: A server that cannot tell of orders is asked again after this, s.
_ASK_AGAIN_S = 5.0


class SchedulerServer(Protocol):
    """The part of :class:`headroom.client.Client` that a bridge needs."""

    def scheduler(self, name: str, report: SchedulerReport) -> SchedulerOrders: ...


class NewsServer(SchedulerServer, Protocol):
    """A server that tells of orders, too."""

    def scheduler_news(self, name: str, after: str) -> str: ...


class OrderListener(threading.Thread):
    """Waits for orders beside the rounds, and sets :attr:`has_some` as soon as there are some."""

    def __init__(
        self,
        server: NewsServer,
        name: str,
        stop: threading.Event,
        has_some: threading.Event | None = None,
    ) -> None:
        super().__init__(name="orders", daemon=True)
        self._server, self._scheduler, self._stop_asked = server, name, stop
        self.has_some = has_some or threading.Event()

    def run(self) -> None:
        last = "0"
        while not self._stop_asked.is_set():
            try:
                now = self._server.scheduler_news(self._scheduler, last)
            except HeadroomError as error:
                logger.debug("the server tells of no orders: %s", error)
                self._stop_asked.wait(_ASK_AGAIN_S)
                continue
            if now != last:
                last = now
                self.has_some.set()


def keep_going(
    step: Callable[[], bool], stop: threading.Event, pause: Callable[[float], object], poll_s: float
) -> None:
    """Do rounds until ``stop`` is set; one that did something is followed by the next at once."""
    while not stop.is_set():
        try:
            busy = step()
        except HeadroomError as error:
            logger.warning("the scheduler cannot be asked: %s", error)
            busy = False
        heartbeat.beat()
        pause(0.0 if busy else poll_s)
