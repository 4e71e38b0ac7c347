"""What goes on beside a loop: save what is staged, send the most valuable, remove what is old."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from headroom.checkpoints.collecting import Collected, Keep, collect
from headroom.checkpoints.lag import next_to_ship
from headroom.checkpoints.manifest import Name
from headroom.checkpoints.pace import Pace
from headroom.checkpoints.saving import finish
from headroom.checkpoints.shipping import Check, Shipped, ship
from headroom.checkpoints.store import THREADS, Checkpoint, Store
from headroom.checkpoints.telling import Teller
from headroom.errors import HeadroomError

__all__ = ["Keeper"]

logger = logging.getLogger(__name__)


class Keeper:
    """Keeps a store on this machine, and another one up with it. One at a time for each store.

    ``may_ship`` is asked before each checkpoint: False is ``local_only``. ``rule`` is for the own
    store; the other site collects by itself. ``teller`` tells how they stand.
    """

    def __init__(
        self,
        store: Store,
        target: Store | None = None,
        *,
        rule: Keep | None = None,
        pace: Pace | None = None,
        may_ship: Callable[[], bool] = lambda: True,
        check: Check | str = Check.SENT,
        threads: int = THREADS,
        teller: Teller | None = None,
    ) -> None:
        self.stop = threading.Event()
        self._store, self._target = store, target
        self._rule, self._pace, self._may_ship = rule or Keep(), pace, may_ship
        self._check, self._threads, self._teller = Check(check), threads, teller
        self._all_sent: list[Name] = []

    def step(self) -> bool:
        """Do what is to be done now; return whether there was anything."""
        is_new = self._finish()
        # Before it is sent, which may take long, or fail.
        self._tell(is_new)
        is_sent = self._ship() is not None
        if is_new:
            self._collect()
        self._tell(is_sent)
        return is_new or is_sent

    def run(self, every_s: float = 1.0) -> None:
        """Go on until ``stop`` is set. What cannot be reached is tried again."""
        while not self.stop.is_set():
            try:
                is_busy = self.step()
            except HeadroomError as error:
                logger.warning("checkpoints are not kept up", extra={"cause": str(error)})
                is_busy = False
            if not is_busy:
                self.stop.wait(every_s)

    def close(self) -> None:
        """Save and send what is left, once nobody stages any more. What cannot be is left."""
        try:
            while self.step():
                pass
        except HeadroomError as error:
            logger.warning("checkpoints are left behind", extra={"cause": str(error)})

    def _finish(self) -> bool:
        is_new = False
        for found in finish(self._store, threads=self._threads):
            if isinstance(found, Checkpoint):
                is_new = True
                logger.info("checkpoint saved", extra={"checkpoint": found.name.said})
            else:
                logger.error("no checkpoint could be saved", extra={"cause": str(found)})
        return is_new

    def _ship(self) -> Shipped | None:
        if self._target is None or not self._may_ship():
            return None
        names = self._store.names()
        if names == self._all_sent:
            # The other store is not asked each second.
            return None
        found = next_to_ship(self._store.readable(), self._there(self._target))
        if found is None:
            self._all_sent = names
            return None
        began = time.monotonic()
        shipped = ship(
            found,
            self._store,
            self._target,
            pace=self._pace,
            check=self._check,
            threads=self._threads,
        )
        logger.info("checkpoint shipped", extra={"checkpoint": shipped.name.said})
        if self._teller is not None:
            self._teller.note_sent(shipped.sent_bytes, time.monotonic() - began)
        return shipped

    def _tell(self, is_news: bool) -> None:
        if self._teller is not None and (is_news or self._teller.is_due):
            self._teller.tell(self._store, self._target)

    def _there(self, target: Store) -> list[Name]:
        # What waits there to be verified need not be sent again.
        return target.names() + (target.arrivals() if self._check is Check.THERE else [])

    def _collect(self) -> Collected:
        done = collect(self._store, self._rule, threads=self._threads)
        for name, why in done.passed_over:
            logger.error("checkpoint is not whole", extra={"checkpoint": name.said, "cause": why})
        for run in done.unsafe:
            logger.error("no checkpoint of a run is whole", extra={"run": run})
        return done
