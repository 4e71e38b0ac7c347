"""How far this machine's clock is off the server's."""

from __future__ import annotations

import logging
import statistics
from collections import deque
from dataclasses import dataclass

__all__ = ["ClockSkew"]

logger = logging.getLogger(__name__)

#: So many exchanges are looked at, and so many of the quickest of them count: those that waited
#: on the network or in the server tell the least.
_EXCHANGES = 8
_QUICKEST = 3
#: From here on people are told, s.
_WARN_S = 5.0
#: A jump by so much is a clock that was set, and not chance, s.
_JUMP_S = 1.0


@dataclass(frozen=True)
class _Exchange:
    skew_s: float
    round_trip_s: float


class ClockSkew:
    """The difference of two clocks, from exchanges that each tell it to half of a round trip."""

    def __init__(self) -> None:
        #: Our clock minus the server's, s; None before the first exchange.
        self.skew_s: float | None = None
        self._exchanges: deque[_Exchange] = deque(maxlen=_EXCHANGES)
        self._is_off = False

    def note(self, sent_at: float, answered_at: float, received_at: float) -> None:
        """Take one exchange: both ends of it by our clock, and its receipt by the server's.

        An exchange over which our clock was set back is passed over.
        """
        round_trip_s = answered_at - sent_at
        if round_trip_s < 0:
            return
        # The server takes note of a request when it begins, half of a quick round trip after us.
        latest = _Exchange((sent_at + answered_at) / 2 - received_at, round_trip_s)
        if self.skew_s is not None and abs(latest.skew_s - self.skew_s) > self._doubt_s(latest):
            self._exchanges.clear()
        self._exchanges.append(latest)
        quickest = sorted(self._exchanges, key=lambda each: each.round_trip_s)[:_QUICKEST]
        self.skew_s = statistics.median(each.skew_s for each in quickest)
        self._tell(self.skew_s)

    def _doubt_s(self, latest: _Exchange) -> float:
        """Return how far an exchange may be from the estimate without a clock being set."""
        known = min(self._exchanges, key=lambda each: each.round_trip_s)
        return _JUMP_S + (latest.round_trip_s + known.round_trip_s) / 2

    def _tell(self, skew_s: float) -> None:
        is_off = abs(skew_s) > _WARN_S
        if is_off and not self._is_off:
            which = "ahead of" if skew_s > 0 else "behind"
            logger.warning(
                f"the clock is {abs(skew_s):.1f} s {which} the server's: set up chrony or "
                "systemd-timesyncd",
                extra={"skew_s": skew_s},
            )
        elif self._is_off and not is_off:
            logger.info("the clock is right again", extra={"skew_s": skew_s})
        self._is_off = is_off
