"""Pushing many outboxes to one server: a few threads, one backoff."""

from __future__ import annotations

import logging
import math
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

from headroom.client import Refused, Unauthorized, Unavailable
from headroom.contracts import TelemetryAck
from headroom.layouts import Layout
from lab.outbox import Outbox, Pending

log = logging.getLogger(__name__)

#: Batches that one agent may push before it is another's turn.
TURN_BATCHES = 8
#: An agent whose batches are taken but not stored for so long sends them again.
RESEND_AFTER_S = 15.0
UNAUTHORIZED_PAUSE_S = 30.0
#: A layout may be good a while after it was refused: its jobs run on the agent's nodes by then.
LAYOUT_PAUSE_S = 60.0
_LONGEST_WAIT_S = 10.0
_POLL_S = 0.2


class Gate:
    """Closed for a while after a failure, longer each time: all agents share one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._opens_at = 0.0
        self._lock = threading.Lock()

    def wait_s(self) -> float:
        """How long until the next attempt may be made."""
        return max(0.0, self._opens_at - self._clock())

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, retry_after_s: float | None) -> None:
        """Close; for as long as the server asks, else twice as long as the last time, jittered."""
        with self._lock:
            if self.wait_s() > 0.0:
                return  # another thread's request of the same outage closed it just now
            self._failures += 1
            wait_s = min(0.25 * 2**self._failures, _LONGEST_WAIT_S)
            wait_s *= random.uniform(0.7, 1.0)  # noqa: S311 -- jitter, not a secret
            self._opens_at = self._clock() + min(max(wait_s, retry_after_s or 0.0), 60.0)


class Pusher(Protocol):
    """A client that pushes the batches of one agent, such as :class:`headroom.client.Client`."""

    def push_compressed(self, body: bytes) -> TelemetryAck: ...

    def push_rows(self, body: bytes) -> TelemetryAck: ...

    def agree(self, layout: Layout) -> str | None: ...

    def position(self, boot_id: str) -> TelemetryAck: ...


class Sender:
    """One agent: its outbox and its client."""

    def __init__(self, outbox: Outbox, client: Pusher) -> None:
        self.outbox = outbox
        self.client = client
        self.queued = False
        self.paused_until = 0.0
        #: until when no layout is agreed on, since the server has refused one or takes none
        self._typed_until = 0.0

    def deliver(self, now: Callable[[], float] = time.monotonic) -> bool:
        """Push the batches that are due, a turn at most. Return whether more are left.

        Raises :class:`Unavailable`.
        """
        if now() < self.paused_until:
            return False
        self._agree(now())
        for _ in range(TURN_BATCHES):
            batch = self.outbox.unsent()
            if batch is None:
                # Each push is told what was stored since the last one: only now that is known.
                if not self.outbox.rewind(now_s=now(), after_s=RESEND_AFTER_S):
                    return False
                continue
            push = self.client.push_rows if batch.layout else self.client.push_compressed
            try:
                ack = push(batch.body)
            except Unauthorized as exc:
                self.paused_until = now() + UNAUTHORIZED_PAUSE_S
                log.error("agent not authorized", extra={"agent": self.outbox.agent, "why": exc})
                return False
            except Refused as exc:
                if self._may_be_sent_again(batch, exc):
                    return True
                self.outbox.refused(batch.seq, str(exc))
                log.error("batch refused", extra={"agent": self.outbox.agent, "why": exc})
                continue
            self.outbox.sent(batch.seq, durable_seq=ack.durable_seq, now_s=now())
        return self.outbox.unsent() is not None

    def _agree(self, now: float) -> None:
        """Agree on the layout that the outbox wants, if it does. Raises :class:`Unavailable`."""
        layout = self.outbox.wanted
        if layout is None or now < self._typed_until:
            return
        try:
            layout_id = self.client.agree(layout)
        except Refused as exc:
            log.warning("layout refused", extra={"agent": self.outbox.agent, "why": exc})
            self._typed_until, layout_id = now + LAYOUT_PAUSE_S, None
        else:
            self._typed_until = math.inf if layout_id is None else 0.0
        self.outbox.agreed(layout, layout_id)

    def _may_be_sent_again(self, batch: Pending, refusal: Refused) -> bool:
        """Say whether a batch may be sent again whose layout the server does not know.

        It goes in the typed form where that is kept: most likely a job of its layout is over, and
        no server agrees on such a layout again. Others are agreed on once more, under the same id.
        Raises :class:`Unavailable`.
        """
        if refusal.error.code != "unknown_layout" or batch.layout is None:
            return False
        if batch.typed:
            self.outbox.forget(batch.layout)
            return True
        try:
            return self.client.agree(batch.layout) is not None
        except Refused as exc:
            log.warning("layout refused", extra={"agent": self.outbox.agent, "why": exc})
            return False

    def ask(self, now: Callable[[], float] = time.monotonic) -> None:
        """Ask how far the batches are stored. Raises :class:`Unavailable`, :class:`Refused`."""
        ack = self.client.position(self.outbox.boot_id)
        self.outbox.stored(ack.durable_seq, now_s=now())


class Delivery:
    """Threads that push the outboxes of the senders given to :meth:`submit`."""

    def __init__(self, *, threads: int, stop: threading.Event) -> None:
        self.pushes_failed = 0
        self._stop = stop
        self._gate = Gate()
        self._queue: queue.SimpleQueue[Sender] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, name=f"push-{i}", daemon=True)
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def backlog(self) -> int:
        """How many senders wait for their turn."""
        return self._queue.qsize()

    def submit(self, sender: Sender) -> None:
        """Let ``sender`` have a turn. One that waits already keeps its place."""
        with self._lock:
            if sender.queued:
                return
            sender.queued = True
        self._queue.put(sender)

    def join(self, timeout_s: float) -> None:
        """Wait for the threads, which end after their present request once ``stop`` is set."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while not self._stop.is_set():
            wait_s = self._gate.wait_s()
            if wait_s > 0.0:
                self._stop.wait(wait_s)
                continue
            try:
                sender = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if self._turn(sender):
                self.submit(sender)

    def _turn(self, sender: Sender) -> bool:
        """Give ``sender`` its turn. Return whether it needs another."""
        # Cleared before the push: what is added during it must be able to queue up again. Two
        # threads may then serve one sender and push one batch twice, which does no harm.
        sender.queued = False
        try:
            more = sender.deliver()
        except Unavailable as exc:
            self.pushes_failed += 1
            if self._gate.wait_s() == 0.0:
                log.warning("server unavailable", extra={"why": exc})
            self._gate.failed(exc.retry_after_s)
            return True
        self._gate.succeeded()
        return more
