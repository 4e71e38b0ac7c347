"""From the spool to the server: in order, resent where needed, never blocking later batches."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from headroom.agent import layout
from headroom.agent.batches import chosen
from headroom.agent.muted import Muted
from headroom.agent.skew import ClockSkew
from headroom.agent.spool import Spool
from headroom.contracts import (
    AgentStatus,
    FieldError,
    TelemetryAck,
    TelemetryBatch,
    blocks,
    row_count,
)
from headroom.errors import HeadroomError, PartlyRefused, Refused, Unauthorized, Unavailable
from headroom.layouts import as_typed

__all__ = ["Backoff", "Delivery", "DeliverySettings", "Server"]

logger = logging.getLogger(__name__)

#: Refusals that end when a person adds to the inventory what the batch names.
_HEALING = frozenset({"unknown_node", "unknown_gpu", "unknown_meter"})
#: Refusals of the batch's size, beside the status 413.
_TOO_LARGE = frozenset({"too_large", "too_many_rows"})
#: The refusal of readings that are ahead of the server's clock: ours is fast, or was set back.
_AHEAD = "future_time"
_TIME_FIELD = re.compile(r"(.+)\.ts\[(\d+)\]")
#: Readings that are ahead are kept until the clock is mended, and this far ahead then, s: by and by
#: their time comes.
_LONGEST_AHEAD_S = 900.0
_RIGHT_WITHIN_S = 5.0
#: How often the same refusal of rows is told, s.
_TELL_EVERY_S = 60.0


class Server(layout.Server, Protocol):
    """The part of :class:`headroom.client.Client` that delivery needs."""

    def push(self, batch: TelemetryBatch, *, timeout_s: float | None = None) -> TelemetryAck: ...

    def push_rows(self, body: bytes, *, timeout_s: float | None = None) -> TelemetryAck: ...

    def position(self, boot_id: str, *, timeout_s: float | None = None) -> TelemetryAck: ...


class Backoff:
    """Waits drawn from a range that doubles with each failure, so that a fleet spreads out."""

    def __init__(self, *, first_s: float, longest_s: float, draw: Callable[[], float]) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._draw = draw
        self._failures = 0

    def succeed(self) -> None:
        """Reset the range of waits."""
        self._failures = 0

    def fail(self, asked_s: float | None = None) -> float:
        """Return how long to wait now, s. Never less than the server asked for."""
        base_s: float = min(self._first_s * 2 ** min(self._failures, 30), self._longest_s)
        self._failures += 1
        return base_s * self._draw() + (asked_s or 0.0)


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
    """Sends the batches in the spool and deletes those that became durable.

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
        #: How many rows it refused of batches that it took.
        self.refused_rows = 0
        self.clock_skew = ClockSkew()
        self._server = server
        self._spool = spool
        self._status = status
        self._settings = settings
        self._monotonic = monotonic
        self._clock = clock
        self._backoff = Backoff(
            first_s=settings.first_backoff_s, longest_s=settings.longest_backoff_s, draw=draw
        )
        self._muted = Muted(monotonic)
        self._layouts = layout.Agreements(server, monotonic)
        self._told: tuple[str, float] = ("", 0.0)
        #: the batches whose late refusals were told
        self._told_late: set[int] = set()
        self._not_before = 0.0
        self._mark_moved_at = monotonic()
        self._patience_s = settings.resend_after_s

    @property
    def unsent(self) -> bool:
        """Whether the spool holds a batch that was not sent yet."""
        return bool(self._spool.after(self.sent_through, 1))

    @property
    def wait_s(self) -> float:
        """How long to wait before the next push, s; 0: not at all."""
        return max(0.0, self._not_before - self._monotonic())

    def round(self, *, timeout_s: float | None = None) -> bool:
        """Send up to a round of batches, oldest first; return whether more can be sent at once."""
        if self.wait_s > 0:
            return False
        self._return_to_oldest_if_stuck()
        for _ in range(self._settings.batches_per_round):
            # Asked anew each time, for a batch that was cut or mended has to go again.
            following = self._spool.after(self.sent_through, 1)
            if not following or not self._send(following[0], timeout_s):
                return False
        return self.unsent

    def ask_position(self, *, timeout_s: float | None = None) -> None:
        """Learn the durable mark without sending anything."""
        if self.wait_s > 0:
            return
        asked_at = self._clock()
        try:
            ack = self._server.position(self._spool.boot_id, timeout_s=timeout_s)
        except HeadroomError as exc:
            self._fail("position unknown", exc)
            return
        self.clock_skew.note(asked_at, self._clock(), ack.received_at)
        self._succeed()
        self._advance(ack)

    def hurry(self) -> None:
        """Skip all waits: the process is about to end."""
        self._not_before = 0.0

    def _send(self, seq: int, timeout_s: float | None) -> bool:
        """Send one batch; return whether to go on: with the same one, where it is not done with."""
        batch = self._spool.get(seq)
        if batch is None:
            self.sent_through = max(self.sent_through, seq)
            return True
        status, now = self._status(), self._clock()
        batch = self._muted.filter(msgspec.structs.replace(batch, sent_at=now, status=status))
        try:
            ack = self._push(batch, timeout_s)
        except PartlyRefused as exc:
            self._note_refused(batch, exc)
            ack = exc.ack
        except Refused as exc:
            return self._deal_with(seq, batch, exc)
        except HeadroomError as exc:
            self._fail("push failed, batches are kept", exc)
            return False
        self.clock_skew.note(now, self._clock(), ack.received_at)
        self._took(seq, ack)
        return True

    def _push(self, batch: TelemetryBatch, timeout_s: float | None) -> TelemetryAck:
        """Send a batch as rows of fixed width, or in the typed form where that cannot be."""
        rows = self._layouts.encode(batch, timeout_s=timeout_s)
        if rows is not None:
            return self._server.push_rows(rows, timeout_s=timeout_s)
        ack = self._server.push(batch, timeout_s=timeout_s)
        self._layouts.note_told(batch)
        return ack

    def _deal_with(self, seq: int, batch: TelemetryBatch, exc: Refused) -> bool:
        """Act on a refusal of the whole batch; return whether to go on."""
        if exc.error.code == "unknown_layout":
            self._layouts.forget()
            return True
        # Links are found by themselves; all else that is not known may be on its way.
        if exc.error.code == "unknown_link" and self._muted.learn(batch, [exc.error]):
            return True
        if isinstance(exc, Unauthorized) or exc.error.code in _HEALING:
            self._fail("push refused, batches are kept", exc)
            return False
        if exc.error.code == _AHEAD and not self._is_too_far_ahead(batch):
            self._fail("push refused for its times, batches are kept: look at the clock", exc)
            return False
        is_too_large = exc.status == 413 or exc.error.code in _TOO_LARGE
        if is_too_large and self._spool.split(seq):
            logger.info("batch is too large and sent in halves", extra={"seq": seq})
            return True
        self._give_up(seq, exc)
        self.sent_through = max(self.sent_through, seq)
        return True

    def _is_too_far_ahead(self, batch: TelemetryBatch) -> bool:
        """Say whether the clock is right again, and the batch of a time that is long to come.

        Measures the clock, since a refusal does not tell by how much it is off.
        """
        asked_at = self._clock()
        try:
            ack = self._server.position(self._spool.boot_id)
        except HeadroomError:
            return False
        self.clock_skew.note(asked_at, self._clock(), ack.received_at)
        newest = max(max(block.ts) for _, block in blocks(batch) if len(block))
        is_right = abs(self.clock_skew.skew_s or 0.0) < _RIGHT_WITHIN_S
        return is_right and newest > ack.received_at + _LONGEST_AHEAD_S

    def _put_back_ahead(self, batch: TelemetryBatch, exc: PartlyRefused) -> int:
        """Keep the rows that were refused for their times; return how many those are."""
        ahead = [each.field for each in exc.refused if each.code == _AHEAD]
        by_path = {path: block.ts for path, block in blocks(batch)}
        times = [
            by_path[found[1]][int(found[2])]
            for field in ahead
            if (found := _TIME_FIELD.fullmatch(field)) and found[1] in by_path
        ]
        if not times:
            return 0
        first = min(times)
        kept = chosen(batch, lambda _, block: [i for i, t in enumerate(block.ts) if t >= first])
        self._spool.put(msgspec.structs.replace(kept, limits=[], checkpoints=[], versions=[]))
        return row_count(kept)

    def _note_refused(self, batch: TelemetryBatch, exc: PartlyRefused) -> None:
        """Count and log the rows that the server refused; it has taken the others."""
        self._muted.learn(batch, exc.refused)
        self.refused_rows += max(exc.refused_rows - self._put_back_ahead(batch, exc), 0)
        self.errors += 1
        self.last_error = str(exc)
        code, at = self._told
        if code == exc.error.code and self._monotonic() - at < _TELL_EVERY_S:
            return
        self._told = exc.error.code, self._monotonic()
        logger.error("rows refused for good", extra={"rows": exc.refused_rows, "cause": exc})

    def _note_late(self, ack: TelemetryAck) -> None:
        """Count and log rows of earlier batches that were refused when they were to be stored."""
        for late in ack.refused:
            batch = None if late.seq in self._told_late else self._spool.get(late.seq)
            if batch is None:
                continue
            self._told_late.add(late.seq)
            batch = self._muted.filter(batch)
            refused = [as_typed(batch, each) for each in late.errors]
            first = refused[0] if refused else FieldError(code="refused", message="")
            self._note_refused(
                batch,
                PartlyRefused(400, first, ack=ack, refused=refused, refused_rows=late.rows),
            )
        self._told_late = {seq for seq in self._told_late if seq > ack.durable_seq}

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
        """Delete durable batches. A mark beyond all that was ever spooled is not believed."""
        self._note_late(ack)
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
