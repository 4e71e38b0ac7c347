"""How fast a keeper may send to another site, as the agent of its machine was told by the server.

The agent writes a file beside the job, and the keeper looks at it. Each limit is a lease: it ends
by itself at its time, by a clock that all of the machine share, also while the agent is dead.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from headroom.work.folder import SHIPPING, ShipOrder, ShipOrders

__all__ = ["Obedience", "Orders", "boottime"]

#: What has not changed is told again after so long, s: whoever listens may have begun anew.
_AGAIN_S = 10.0


def boottime() -> float:
    """Return the time since this machine was started, s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Orders:
    """The limits in the file at ``path``. It may come, change and go at any time."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = boottime) -> None:
        self._path, self._clock = path, clock
        self._seen: tuple[int, int] | None = None
        self._limits: list[ShipOrder] = []

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Orders | None:
        """Return those of this process's job; None: nobody would give any."""
        path = environment.get(SHIPPING)
        return cls(Path(path)) if path else None

    def in_force(self) -> list[ShipOrder]:
        """Return the limits whose time is not up. One look at the file if it has not changed."""
        # A file that cannot be read says nothing new: what was told last holds until its end.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found = os.stat(self._path)  # noqa: PTH116 - each chunk does it
            mark = (found.st_ino, found.st_mtime_ns)
            if mark != self._seen:
                self._limits = msgspec.json.decode(self._path.read_bytes(), type=ShipOrders).limits
                self._seen = mark
        now = self._clock()
        return [each for each in self._limits if now < each.until]

    def bytes_per_s(self) -> float | None:
        """Return how fast bytes may go; None: without bound; 0: not at all."""
        return min((each.bytes_per_s for each in self.in_force()), default=None)


class Obedience:
    """What a keeper asks before it sends, and says what it keeps to, by ``send``, as it asks.

    It is asked at each chunk, and while one waits: so what is told is what is done.
    """

    def __init__(
        self,
        orders: Orders,
        send: Callable[[list[str]], object],
        *,
        own_bytes_per_s: float | None = None,
        clock: Callable[[], float] = boottime,
    ) -> None:
        """``own_bytes_per_s`` is what the user allows, whatever else is told; None: all."""
        self._orders, self._send, self._own, self._clock = orders, send, own_bytes_per_s, clock
        self._said: list[str] | None = None
        self._said_at = -float("inf")

    def rate(self) -> float | None:
        """Return how fast bytes may go; None: without bound; 0: not at all."""
        told = self._orders.bytes_per_s()
        self._say()
        return min((each for each in (told, self._own) if each is not None), default=None)

    def may_ship(self) -> bool:
        """Say whether another checkpoint may be begun."""
        rate = self.rate()
        return rate is None or rate > 0

    def _say(self) -> None:
        ids, now = [each.id for each in self._orders.in_force()], self._clock()
        if ids != self._said or now - self._said_at >= _AGAIN_S:
            self._said, self._said_at = ids, now
            self._send(ids)
