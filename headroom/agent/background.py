"""A thread for a source whose reads may hang, so that it holds up neither the others nor a push."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from headroom.agent.devices import Block, Row, Source

__all__ = ["Background"]

logger = logging.getLogger(__name__)

#: How long the last words of a source are waited for, s.
_CLOSE_S = 5.0


class Background:
    """Reads ``source`` in a thread of its own; a read waits for it for ``wait_s`` at most.

    What comes later is handed out by the next read, with the time at which it came. While one round
    of the source is under way no other is begun: the readings that are skipped count as errors.
    """

    def __init__(
        self,
        source: Source,
        *,
        wait_s: float,
        close_s: float = _CLOSE_S,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._wait_s = wait_s
        self._close_s = close_s
        self._clock = clock
        self._monotonic = monotonic
        #: What the last failure was, or "".
        self.last_error = ""
        self._skipped = 0
        self._is_hanging = False
        self._crash = ""
        self._told = ""
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._began = 0.0
        self._go = threading.Event()
        self._done = threading.Event()
        self._done.set()
        self._is_closing = False
        name = type(source).__name__
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def source(self) -> Source:
        """What it reads."""
        return self._source

    @property
    def block(self) -> Block:
        """The block of the source."""
        return self._source.block

    @property
    def errors(self) -> int:
        """How many reads failed or were skipped."""
        return self._source.errors + self._skipped

    def read(self) -> Iterable[Row]:
        """Return the rows that came in time, and those that came too late for the read before."""
        if self._done.is_set():
            self._began = self._monotonic()
            self._done.clear()
            self._go.set()
            self._done.wait(self._wait_s)
        else:
            self._skip()
        with self._lock:
            rows, self._rows = self._rows, []
        return rows

    def settle(self, timeout_s: float) -> None:
        """Let the source begin, which may take longer than a read; its rows are dropped."""
        self.read()
        self._done.wait(timeout_s)
        with self._lock:
            self._rows = []

    def close(self) -> None:
        """Close the source, unless it hangs: then it ends with the process."""
        self._is_closing = True
        self._go.set()
        self._thread.join(self._close_s)
        if self._thread.is_alive():
            logger.warning("source hangs", extra={"source": self._thread.name})

    def _skip(self) -> None:
        self._skipped += 1
        waited_s = self._monotonic() - self._began
        self.last_error = f"{self._thread.name} has not answered for {waited_s:.1f} s"
        if not self._is_hanging:
            extra = {"source": self._thread.name, "waited_s": waited_s}
            logger.warning("source is slow, readings are skipped", extra=extra)
        self._is_hanging = True

    def _run(self) -> None:
        while True:
            self._go.wait()
            self._go.clear()
            if self._is_closing:
                break
            self._round()
            self._done.set()
        self._source.close()

    def _round(self) -> None:
        self._is_hanging = False
        try:
            for row in self._source.read():
                self._keep(row)
        except Exception as exc:  # a defect must not end the thread, nor the readings to come
            self._note_crash(exc)
        if self._source.last_error != self._told:
            self.last_error = self._told = self._source.last_error

    def _keep(self, row: Row) -> None:
        is_late = self._monotonic() - self._began > self._wait_s
        with self._lock:
            self._rows.append({**row, "ts": self._clock()} if is_late else row)

    def _note_crash(self, exc: Exception) -> None:
        self._skipped += 1
        crash = f"{self._thread.name}: {exc!r}"
        if crash != self._crash:
            logger.exception("source failed", extra={"source": self._thread.name})
        self._crash = self.last_error = crash
