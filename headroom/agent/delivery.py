"""From the spool to the server: in order, again where needed, never in the way of what follows."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from headroom.agent.spool import Spool
from headroom.contracts import AgentStatus, TelemetryAck, TelemetryBatch
from headroom.errors import HeadroomError, Refused, Unauthorized, Unavailable

__all__ = ["Backoff", "Delivery", "DeliverySettings", "Server"]

logger = logging.getLogger(__name__)


class Server(Protocol):
    """What delivery needs of :class:`headroom.client.Client`."""

    def push(self, batch: TelemetryBatch, *, timeout_s: float | None = None) -> TelemetryAck: ...

    def position(self, boot_id: str, *, timeout_s: float | None = None) -> TelemetryAck: ...


class Backoff:
    """Waits that double with each failure, with jitter, so that a fleet does not return as one."""

    def __init__(self, *, first_s: float, longest_s: float, draw: Callable[[], float]) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._draw = draw
        self._failures = 0

    def succeed(self) -> None:
        """Begin anew with the next failure."""
        self._failures = 0

    def fail(self, asked_s: float | None = None) -> float:
        """Return how long to wait now, s. Never less than the server asked for."""
        base_s: float = min(self._first_s * 2 ** min(self._failures, 30), self._longest_s)
        self._failures += 1
        jittered_s = base_s * (0.5 + self._draw() / 2)
        return jittered_s if asked_s is None else asked_s + jittered_s / 2


@dataclass(frozen=True)
class DeliverySettings:
    """How to deliver."""

    #: The most batches that one round sends before it looks up again.
    batches_per_round: int = 16
    #: After how long without progress of the durable mark all is sent again from the oldest, s.
    #: It doubles each time, up to the longest, so that a slow server is not buried in duplicates.
    resend_after_s: float = 10.0
    longest_resend_after_s: float = 300.0
    first_backoff_s: float = 0.5
    longest_backoff_s: float = 60.0


class Delivery:
    """Sends what the spool holds and deletes what became durable.

    A batch is sent once and then waits for the durable mark to pass it; where the mark stands still
    too long, all that it has not passed is sent again, and the server tells duplicates apart.
    One round at a time; the spool may be filled meanwhile.
    """

    def __init__(
        self,
        server: Server,
        spool: Spool,
        *,
        status: Callable[[], AgentStatus | None] = lambda: None,
        settings: DeliverySettings = DeliverySettings(),
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.durable_seq = 0
        #: The highest seq sent since the start or since the last return to the oldest.
        self.sent_through = 0
        #: How many sendings failed, and how the last one did.
        self.errors = 0
        self.last_error = ""
        #: What keeps batches from getting through now; None while they do.
        self.obstacle: HeadroomError | None = None
        #: How many batches the server took, duplicates included.
        self.accepted = 0
        self._server = server
        self._spool = spool
        self._status = status
        self._settings = settings
        self._monotonic = monotonic
        self._clock = clock
        self._backoff = Backoff(
            first_s=settings.first_backoff_s, longest_s=settings.longest_backoff_s, draw=draw
        )
        self._not_before = 0.0
        self._mark_moved_at = monotonic()
        self._patience_s = settings.resend_after_s

    @property
    def unsent(self) -> bool:
        """Whether the spool holds a batch that was not sent yet."""
        return bool(self._spool.after(self.sent_through, 1))

    @property
    def wait_s(self) -> float:
        """How long the server wants to be left alone, s; 0 when it does not."""
        return max(0.0, self._not_before - self._monotonic())

    def round(self, *, timeout_s: float | None = None) -> bool:
        """Send up to a round of batches, oldest first; return whether more can be sent at once."""
        if self.wait_s > 0:
            return False
        self._return_to_oldest_if_stuck()
        for seq in self._spool.after(self.sent_through, self._settings.batches_per_round):
            if not self._send(seq, timeout_s):
                return False
        return self.unsent

    def ask_position(self, *, timeout_s: float | None = None) -> None:
        """Learn the durable mark without sending anything."""
        if self.wait_s > 0:
            return
        try:
            ack = self._server.position(self._spool.boot_id, timeout_s=timeout_s)
        except HeadroomError as exc:
            self._fail("position unknown", exc)
            return
        self._succeed()
        self._advance(ack)

    def hurry(self) -> None:
        """Forget about waiting: the process is about to end."""
        self._not_before = 0.0

    def _send(self, seq: int, timeout_s: float | None) -> bool:
        """Send one batch; return whether to go on with the next."""
        batch = self._spool.get(seq)
        if batch is not None:
            batch = msgspec.structs.replace(batch, sent_at=self._clock(), status=self._status())
            try:
                ack = self._server.push(batch, timeout_s=timeout_s)
            except HeadroomError as exc:
                if not self._is_hopeless(exc):
                    self._fail("push failed, batches are kept", exc)
                    return False
                self._give_up(seq, exc)
            else:
                self._took(seq, ack)
        self.sent_through = max(self.sent_through, seq)
        return True

    @staticmethod
    def _is_hopeless(exc: HeadroomError) -> bool:
        return isinstance(exc, Refused) and not isinstance(exc, Unauthorized)

    def _took(self, seq: int, ack: TelemetryAck) -> None:
        self.accepted += 1
        self._succeed()
        if self._spool.oldest_seq == seq:
            # Nothing before it was under way: only from now on can the mark be late.
            self._mark_moved_at = self._monotonic()
        self.sent_through = max(self.sent_through, seq)
        self._advance(ack)

    def _succeed(self) -> None:
        self._backoff.succeed()
        self.obstacle = None

    def _advance(self, ack: TelemetryAck) -> None:
        """Delete what is durable. A mark beyond all that was ever spooled is not believed."""
        mark = min(ack.durable_seq, self._spool.last_seq)
        if mark <= self.durable_seq:
            return
        self._spool.acknowledge(mark)
        self.durable_seq = mark
        self.sent_through = max(self.sent_through, mark)
        self._mark_moved_at = self._monotonic()
        self._patience_s = self._settings.resend_after_s

    def _give_up(self, seq: int, exc: HeadroomError) -> None:
        self._spool.drop(seq)
        self.errors += 1
        self.last_error = str(exc)
        logger.error("batch refused for good and dropped", extra={"seq": seq, "cause": exc})

    def _fail(self, what: str, exc: HeadroomError) -> None:
        wait_s = self._backoff.fail(exc.retry_after_s if isinstance(exc, Unavailable) else None)
        self._not_before = self._monotonic() + wait_s
        self.obstacle = exc
        self.errors += 1
        self.last_error = str(exc)
        level = logging.ERROR if isinstance(exc, Unauthorized) else logging.WARNING
        extra = {"cause": exc, "retry_in_s": wait_s, "spooled": len(self._spool)}
        logger.log(level, what, extra=extra)

    def _return_to_oldest_if_stuck(self) -> None:
        oldest = self._spool.oldest_seq
        if oldest > self.sent_through:  # nothing is under way
            return
        if self._monotonic() - self._mark_moved_at < self._patience_s:
            return
        self._patience_s = min(2 * self._patience_s, self._settings.longest_resend_after_s)
        logger.warning(
            "durable mark stands still, sending again",
            extra={"durable_seq": self.durable_seq, "from_seq": oldest},
        )
        self.sent_through = oldest - 1
        self._mark_moved_at = self._monotonic()
