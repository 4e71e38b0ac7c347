"""A thread for sources that are read seldom, or may be slow to answer."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from headroom.agent.devices import Block, Row

__all__ = ["Periodic", "Poller", "SourceError"]

logger = logging.getLogger(__name__)

#: Rows that nobody fetched, at most: no more than an agent that still turns can leave.
_MAX_ROWS = 100_000
#: How long the end of a poll is waited for when the agent stops, s.
_CLOSE_S = 2.0


class SourceError(Exception):
    """A source cannot be read now. The message names the source and the cause."""


class Poller(Protocol):
    """Something that is asked at intervals, in a thread of its own."""

    @property
    def block(self) -> Block:
        """The block of the batch that the rows belong to."""
        ...

    def poll(self) -> Iterable[Row]:
        """Return the rows of this moment. Raises ``SourceError`` or ``OSError``.

        What it yields before it raises is kept.
        """
        ...

    def close(self) -> None:
        """Release all that is held open."""
        ...


class Periodic:
    """Polls ``poller`` each ``interval_s`` and hands out its rows, with the time at which they
    came.

    A poll that takes longer than the interval puts off the next one; none is made up for. One that
    has not come back after ``deadline_s`` counts as an error, as one that failed does.
    """

    def __init__(
        self,
        poller: Poller,
        *,
        name: str,
        interval_s: float,
        deadline_s: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.block = poller.block
        self.errors = 0
        self.last_error = ""
        self._poller = poller
        self._name = name
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._clock = clock
        self._rows: deque[Row] = deque(maxlen=_MAX_ROWS)
        self._began: float | None = None
        self._polled = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def read(self) -> Iterable[Row]:
        """Return the rows since the last read."""
        self._check_deadline()
        return [self._rows.popleft() for _ in range(len(self._rows))]

    def settle(self, timeout_s: float) -> None:
        """Wait until the first poll is over."""
        self._polled.wait(timeout_s)

    def close(self) -> None:
        """End the thread, unless it hangs: then it ends with the process."""
        self._stop.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            self._began = started
            self._poll()
            self._began = None
            self._polled.set()
            self._stop.wait(max(0.0, started + self._interval_s - time.monotonic()))
        self._poller.close()

    def _poll(self) -> None:
        try:
            for row in self._poller.poll():
                self._rows.append({"ts": self._clock(), **row})
        except (SourceError, OSError) as exc:
            self._fail(str(exc))
        except Exception as exc:  # a defect must not end the thread: the next answer may be in form
            logger.exception("source failed", extra={"source": self._name})
            self._fail(repr(exc))
        else:
            if self.last_error:
                logger.info("source answers again", extra={"source": self._name})
            self.last_error = ""

    def _check_deadline(self) -> None:
        began = self._began
        if began is None or time.monotonic() - began < self._deadline_s:
            return
        # Once for each interval in which it hangs.
        self._began = began + self._interval_s
        self._fail(f"no answer within {self._deadline_s:g} s")

    def _fail(self, cause: str) -> None:
        self.errors += 1
        told = f"{self._name}: {cause}"
        if told != self.last_error:
            logger.warning("source cannot be read", extra={"source": self._name, "cause": cause})
        self.last_error = told
